"""One ssh hop: name, socket, host key, login, channels, and why it failed."""
