"""The drafter: its config, its model, and the files that it is saved as."""
