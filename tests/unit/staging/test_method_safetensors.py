"""Of a safetensors file too, only the declared weights come, for whoever's own harness reads them."""

from __future__ import annotations

from typing import Any

import pytest

from hostkit.inventory.models import Inventory
from hostkit.staging.plan import plan_stage
from hostkit.staging.stage import stage
from hostkit.transport.connections import Connections
from tests.unit.staging.conftest import Ground

PATTERN = "step_{step}/checkpoint.safetensors"


def with_harness(inventory: Inventory) -> Inventory:
    """Have somebody's own harness read the run's checkpoints."""
    document: dict[str, Any] = inventory.model_dump(mode="json", exclude_unset=True, by_alias=True)
    document["evals"] = {
        "mine": {
            "run": "drafter",
            "host": "box",
            "workspace": "/tmp/none",
            "python": "/usr/bin/python3",
            "harness": {"command": ["/usr/bin/python3", "/x.py"]},
        }
    }
    return Inventory.model_validate(document)


@pytest.mark.parametrize("own", [True, False])
def test_of_a_safetensors_file_the_declared_weights_alone_come(ground: Ground, own: bool) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    path = ground.root / "step_1" / "checkpoint.safetensors"
    path.parent.mkdir(parents=True)
    saved = {"net.w": torch.randn(50_000), "optimizer.m": torch.randn(300_000)}
    save_file(saved, path)
    inventory = ground.inventory(pattern=PATTERN, weights=["net"])
    inventory = with_harness(inventory) if own else inventory
    with Connections(inventory) as connections:
        (one,) = ground.candidates(connections, PATTERN)
        where = ("drafter", one, ground.destination, str(ground.staged))
        plan = plan_stage(connections, inventory, *where, method="weights")
        if not own:  # the bundled harness would not find them under their names
            assert plan.refused == "tensors cannot be extracted from safetensors"
            return
        staged = stage(connections, inventory, plan)
    assert staged.bytes < 1.01 * 4 * 50_000
    found = load_file(staged.path)
    assert list(found) == ["net.w"]
    assert torch.equal(found["net.w"], saved["net.w"])
    assert staged.manifest["kept"] == ["net"]
