"""What a training run looks like on its host: its processes and its log."""
