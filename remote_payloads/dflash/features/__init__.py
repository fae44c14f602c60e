"""The target's features: computed, queued, or stored for training."""
