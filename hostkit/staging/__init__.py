"""Getting a checkpoint from where it is written to where it is read."""
