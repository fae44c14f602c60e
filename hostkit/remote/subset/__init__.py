"""A smaller checkpoint with only the wanted tensors, laid out and streamed."""
