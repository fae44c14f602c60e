"""The harness on the host: a hand edit is told from age, and what an older hostkit left does not stay importable."""

from __future__ import annotations

import sys

import pytest

from hostkit.errors import RefusedError
from hostkit.evals.harness_files import MANIFEST, HarnessFiles, compare_harness, drift, install_harness
from hostkit.inventory.models import Host, Inventory
from hostkit.transport.connections import Connections


@pytest.fixture
def bench(tmp_path):
    """Give a host, a folder on it, and a way to make harnesses of this side."""
    host = Host.model_validate({"local": True, "python": sys.executable, "state": str(tmp_path / "state")})
    inventory = Inventory.model_validate({"hostkit": 1, "archive": "/nowhere", "hosts": {"here": host}})
    folder = tmp_path / "harness"

    def harness(name, **files):
        ours = tmp_path / name
        names = [file.replace("__", "/") + ".py" for file in files]
        for file, text in zip(names, files.values(), strict=True):
            (ours / file).parent.mkdir(parents=True, exist_ok=True)
            (ours / file).write_text(text)
        return HarnessFiles(ours, tuple(names))

    with Connections(inventory, here="here") as connections:
        transport = connections.transport("here")

        def bring(files, *, update=False):
            state = compare_harness(transport, host, files, str(folder), update=update)
            edited = () if state.ready else install_harness(transport, host, files, str(folder), state)
            assert set(edited) == {name for name in state.dropped if (folder / name).exists()}
            return state

        def drifted(files):
            return drift(transport, host.python, files, str(folder))

        yield folder, harness, bring, drifted


def test_files_that_a_newer_hostkit_dropped_are_removed_with_their_empty_folders(bench):
    folder, harness, bring, drifted = bench
    bring(harness("old", run="1", dflash__gone="1", dflash__kept="1", deep__er__gone="1"))
    newer = harness("new", run="2", dflash__kept="1")
    state = bring(newer)
    assert (state.wanted, set(state.dropped)) == (("run.py",), {"dflash/gone.py", "deep/er/gone.py"})
    left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert left == ["dflash/kept.py", MANIFEST, "run.py"]
    assert not (folder / "deep").exists()
    assert drifted(newer).none and bring(newer).ready


def test_a_dropped_file_that_somebody_edited_stays_and_is_named(bench):
    folder, harness, bring, drifted = bench
    bring(harness("old", run="1", gone="1"))
    (folder / "gone.py").write_text("mine")
    newer = harness("new", run="1")
    bring(newer)
    assert (folder / "gone.py").read_text() == "mine"
    assert drifted(newer).others == ("gone.py",)


def test_an_edit_is_refused_and_age_is_not(bench):
    folder, harness, bring, _ = bench
    bring(harness("old", run="1", other="1"))
    newer = harness("new", run="2", other="1")
    (folder / "other.py").write_text("edited")
    with pytest.raises(RefusedError, match=r"changed on the host: other\.py"):
        bring(newer)
    assert set(bring(newer, update=True).wanted) == {"run.py", "other.py"}
    assert (folder / "other.py").read_text() == "1"


def test_a_stray_module_in_a_folder_is_seen(bench):
    folder, harness, bring, drifted = bench
    ours = harness("ours", dflash__run="1")
    bring(ours)
    (folder / "dflash" / "torch.py").write_text("")
    (folder / "dflash" / "__pycache__").mkdir()
    (folder / "dflash" / "__pycache__" / "x.py").write_text("")
    assert drifted(ours).others == ("dflash/torch.py",)
