"""No second name of the run's container, no link, no path through its node leads a write among the run's files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.saves import listing, save, torch_file
from tests.fleet.test_staging import hostkit_json

pytestmark = pytest.mark.fleet

INSIDE = "/workspace/checkpoints/x"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return torch_file(tmp_path_factory.mktemp("small") / "checkpoint.pt", step=40)


def test_every_way_into_the_runs_checkpoints_is_refused_before_anything_is_written(
    fleet: Fleet, small: Path
) -> None:
    save(fleet, small, 40)
    fleet.sh("ct200", ["ln", "-s", "/workspace/checkpoints", "/root/elsewhere"])
    before = listing(fleet.root("ct200") / "workspace")
    ways = [
        ("ct200", INSIDE),
        ("ct200", f"/proc/1/root{INSIDE}"),
        ("ct200", "/root/elsewhere/x"),
        ("ct200", "/root/elsewhere"),
        ("ct200-forward", INSIDE),
        ("ct200-forward", "/root/elsewhere/x"),
        ("pve", f"/var/lib/lxc/200/rootfs{INSIDE}"),
        ("pve", f"/proc/{seen_from_node(fleet)}/root{INSIDE}"),
    ]
    for host, folder in ways:
        for flags in (["--dry-run"], []):
            code, told = hostkit_json(fleet, "stage", "--to", host, "--folder", folder, *flags)
            assert (code, told.get("rule")) == (77, "no-write"), f"{host}:{folder}: {told}"
    code, told = hostkit_json(fleet, "stage", "--dry-run", "--to", "ct200", "--folder", "/root/staged")
    assert code == 0, told
    assert listing(fleet.root("ct200") / "workspace") == before


def seen_from_node(fleet: Fleet) -> int:
    """Return the pid, on pve, of the container's first process: the one whose root has the run's workspace."""
    code = (
        "import os\n"
        "for pid in sorted(int(p) for p in os.listdir('/proc') if p.isdigit()):\n"
        "    if os.path.isdir('/proc/%d/root/workspace/checkpoints/step_40' % pid): print(pid); break\n"
    )
    return int(fleet.sh("pve", [sys.executable, "-c", code]).stdout)
