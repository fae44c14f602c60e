"""What a checkpoint file is: whether it is whole, and what it holds."""
