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
            f"no harness is called {evaluation.harness!r}",
            where=f"evals.{name}.harness",
            hint="write `harness: dflash`",
        )
    if evaluation.target is None:
        raise ConfigError(
            "the dflash harness needs a target",
            where=f"evals.{name}",
            hint="write target: {model: /models/...}",
        )
    return DFlash()
