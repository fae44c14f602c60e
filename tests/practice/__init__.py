"""The practice fleet, tested with a stand-in for the trainer: no torch, a few seconds."""
