"""Which harness an evaluation names: the one place that knows them all."""

from __future__ import annotations

from hostkit.errors import ConfigError
from hostkit.evals.dflash import DFlash
from hostkit.evals.harness import Harness
from hostkit.inventory.models import Inventory


def harness_of(inventory: Inventory, name: str) -> Harness:
    """Return the harness of the evaluation `name`. Raises ConfigError where it cannot run it."""
    evaluation = inventory.evals[name]
    if evaluation.harness != "dflash":
        raise ConfigError(
            "eval-latest does not run a harness of your own yet",
            where=f"evals.{name}.harness",
            hint="`harness: dflash` runs the bundled one; `hostkit stage` brings a checkpoint to yours",
        )
    if evaluation.target is None:
        raise ConfigError(
            "the dflash harness needs a target",
            where=f"evals.{name}",
            hint="write target: {model: /models/...}",
        )
    return DFlash()
