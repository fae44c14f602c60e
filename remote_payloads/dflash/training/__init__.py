"""Training a drafter: blocks, loss, steps, files, and how a run ends."""
