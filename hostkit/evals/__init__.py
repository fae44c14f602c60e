"""Evaluations: how good a checkpoint is, against the last one, and what the figure rests on."""
