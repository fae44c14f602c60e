"""Checkpoints: which is the latest, what it holds, whether the harness would load it, and staging it."""

from hostkit.checkpoints.choosing import Choice, Ranked, choose, choose_step
from hostkit.checkpoints.fitting import Fit, fits
from hostkit.checkpoints.models import Candidate, Contents, Layout
from hostkit.staging.inspect import inspect_checkpoint
from hostkit.staging.plan import StagePlan, plan_stage
from hostkit.staging.stage import Staged, stage

__all__ = [
    "Candidate",
    "Choice",
    "Contents",
    "Fit",
    "Layout",
    "Ranked",
    "StagePlan",
    "Staged",
    "choose",
    "choose_step",
    "fits",
    "inspect_checkpoint",
    "plan_stage",
    "stage",
]
