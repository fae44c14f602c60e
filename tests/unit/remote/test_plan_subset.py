"""The plan of a smaller checkpoint is made on the host where the run is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import plan_subset
from tests.unit.remote.subset.test_torch_layout import save


def test_a_plan_is_made_at_the_lowest_priority(tmp_path: Path) -> None:
    path = str(save(tmp_path / "c.pt"))
    code = (
        f"import json, os, sys; sys.path.insert(0, {str(Path(plan_subset.__file__).parent)!r}); import plan_subset\n"
        f"reply = plan_subset.serve({{'path': {path!r}, 'keys': ['drafter']}})\n"
        "print(json.dumps([reply['code'], os.nice(0)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=True)
    assert json.loads(done.stdout) == [None, 19]


def test_what_an_older_request_says_of_trimming_is_ignored(tmp_path: Path) -> None:
    path = str(save(tmp_path / "c.pt"))
    plain = plan_subset.stream.plan(path, ["drafter"])
    more = plan_subset.more_of({"trim": True, "rate": None})
    assert plan_subset.stream.plan(path, ["drafter"], **more)["digest"] == plain["digest"]
