"""A job on its host: its folder, its supervisor, its isolation."""
