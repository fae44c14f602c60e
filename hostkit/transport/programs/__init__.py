"""Programs of hostkit/remote: what travels, and the call."""
