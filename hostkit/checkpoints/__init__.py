"""Checkpoints: which is whole, which is the latest, what it holds, whether the harness would load it."""

from hostkit.checkpoints.choosing import Choice, Ranked, choose, choose_step
from hostkit.checkpoints.fitting import Fit, fits
from hostkit.checkpoints.models import Candidate, Contents, Layout

__all__ = [
    "Candidate",
    "Choice",
    "Contents",
    "Fit",
    "Layout",
    "Ranked",
    "choose",
    "choose_step",
    "fits",
]
