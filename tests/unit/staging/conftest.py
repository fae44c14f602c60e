"""A training host and an evaluation host: real sshd on loopback, `pct` stand-in, real rsync, real torch files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hostkit.checkpoints import Candidate
from hostkit.inventory.models import Inventory
from hostkit.staging.inspect import list_checkpoints
from hostkit.staging.method import Method
from hostkit.staging.plan import KEEP, plan_stage
from hostkit.staging.stage import Staged, stage
from hostkit.staging.transfer_route import By
from hostkit.transport.connections import Connections
from tests.contract.servers import SSHD, Fleet, private_fleet


def saved(path: Path, step: int, *, numbers: int = 200_000, seed: int = 0) -> Path:
    """Save a drafter at path, as a trainer does."""
    import torch

    path.parent.mkdir(parents=True, exist_ok=True)
    weights = torch.randn(numbers, generator=torch.Generator().manual_seed(seed + step))
    torch.save({"drafter": {"fc.weight": weights}, "step": step, "config": {"block_size": 16}}, path)
    return path


@dataclass
class Ground:
    """Where a test stages: a run's folder on `source`, a folder on `destination`, both on this machine."""

    folder: Path
    hosts: dict[str, dict[str, Any]]
    source: str = "box"
    destination: str = "box"
    told: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def staged(self) -> Path:
        return self.folder / "staged"

    def inventory(self, **checkpoints: Any) -> Inventory:
        run = {
            "host": self.source,
            "process": {"script": "train.py"},
            "checkpoints": {"root": str(self.root), **checkpoints},
        }
        return Inventory.model_validate(
            {
                "hostkit": 1,
                "archive": str(self.folder / "archive"),
                "hosts": self.hosts,
                "runs": {"drafter": run},
            }
        )

    def candidates(
        self, connections: Connections, pattern: str = "step_{step}/checkpoint.pt"
    ) -> list[Candidate]:
        transport = connections.transport(self.source)
        return [
            Candidate.model_validate(one)
            for one in list_checkpoints(transport, "python3", str(self.root), pattern)
        ]

    def stage(
        self,
        step: int,
        *,
        pattern: str = "step_{step}/checkpoint.pt",
        method: Method = "full",
        rate: int | None = None,
        by: By = "auto",
        keep: int | None = KEEP,
        **more: Any,
    ) -> Staged:
        inventory = self.inventory(pattern=pattern)
        with Connections(inventory) as connections:
            (one,) = [each for each in self.candidates(connections, pattern) if each.step == step]
            where = ("drafter", one, self.destination, str(self.staged))
            plan = plan_stage(connections, inventory, *where, method=method, rate=rate, by=by, keep=keep)
            tell = lambda *told: self.told.append(told)  # noqa: E731
            return stage(connections, inventory, plan, progress=tell, **more)

    def finals(self) -> list[str]:
        """Return what stands under a final name."""
        if not self.staged.exists():
            return []
        return sorted(one.name for one in self.staged.iterdir() if one.name != ".staging")


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """Source and destination are this machine."""
    return Ground(tmp_path, {"box": {"local": True}})


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    if not Path(SSHD).exists():
        pytest.skip("no sshd on this machine")
    with private_fleet(tmp_path_factory.mktemp("sshd")) as fleet:
        yield fleet


@pytest.fixture
def far(tmp_path: Path, servers: Fleet) -> Ground:
    """The fleet of the story: ct200 behind pve, and that behind ct129, which is also where it is staged to."""
    hosts = {
        "ct129": servers.host(servers.server("ct129")),
        "pve": servers.host(servers.server("pve"), via="ct129", login="there"),
        "ct200": {"pct": 200, "via": "pve"},
    }
    return Ground(tmp_path, hosts, source="ct200", destination="ct129")
