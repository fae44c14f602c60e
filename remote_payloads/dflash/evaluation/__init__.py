"""Evaluating a drafter: anchors, metrics, intervals, the result document."""
