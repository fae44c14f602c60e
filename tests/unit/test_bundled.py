"""The payloads and the example inventories are found in a checkout, and travel in the wheel."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hostkit.bundled import bundled

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("folder", "file"), [("remote_payloads", "eval_drafter.py"), ("inventory", "fleet.yaml")]
)
def test_what_travels_with_hostkit_is_found_in_a_checkout(folder, file):
    assert (bundled(folder) / file).is_file()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_installed_wheel_brings_payloads_inventories_types_and_remote_programs(tmp_path):
    argv = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(argv, check=True, timeout=280, stdin=subprocess.DEVNULL)
    (wheel,) = tmp_path.glob("hostkit-*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    code = (
        "import hostkit; from hostkit.bundled import bundled; from pathlib import Path\n"
        "home = Path(hostkit.__file__).parent\n"
        "print(bundled('remote_payloads') / 'eval_drafter.py')\n"
        "print(bundled('inventory') / 'fleet.yaml')\n"
        "print(home / 'py.typed'); print(home / 'remote' / 'probe.py')"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed)},
        capture_output=True,
        check=True,
    ).stdout.decode()
    paths = [Path(line) for line in shown.splitlines()]
    assert len(paths) == 4
    for path in paths:
        assert path.is_file()
        assert path.is_relative_to(installed)
