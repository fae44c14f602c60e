"""What a host says that it has left, and whether a job there would outlive the log-out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from host import cgroups
from jobs import capacity


def test_facts_of_this_machine_are_plausible(tmp_path: Path) -> None:
    found = capacity.facts([str(tmp_path), str(tmp_path / "not" / "yet")])
    assert 0 < found["memory"]["available"] <= found["memory"]["total"]
    assert found["disk"][str(tmp_path / "not" / "yet")]["at"] == str(tmp_path)
    free = os.statvfs(tmp_path)
    assert abs(found["disk"][str(tmp_path)]["free"] - free.f_bavail * free.f_frsize) < 2**30


@pytest.mark.report("g3")
def test_a_group_that_leaves_less_than_the_machine_bounds_what_is_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("900000\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 300000\n")
    monkeypatch.setattr(cgroups, "groups", lambda _: [("/nowhere", True), (str(tmp_path), True)])
    assert capacity.memory() == {"total": 1000000, "available": 400000, "bound_by": str(tmp_path)}
    (tmp_path / "memory.max").write_text("max\n")
    assert capacity.memory()["bound_by"] is None


SESSION = "0::/user.slice/user-1000.slice/session-3.scope\n"
KILLS = "[Login]\nKillUserProcesses=yes\n"


@pytest.mark.report("g1")
@pytest.mark.parametrize(
    ("groups", "files", "uid", "doomed"),
    [
        (SESSION, {"etc/systemd/logind.conf": KILLS}, 1000, True),
        (SESSION, {"etc/systemd/logind.conf": KILLS}, 0, False),
        (SESSION, {"etc/systemd/logind.conf": KILLS + "KillExcludeUsers=\n"}, 0, True),
        (SESSION, {"etc/systemd/logind.conf": "#KillUserProcesses=yes\n[Login]\n"}, 1000, False),
        (SESSION, {"etc/systemd/logind.conf.d/50-kill.conf": KILLS}, 1000, True),
        (
            SESSION,
            {
                "usr/lib/systemd/logind.conf.d/50-kill.conf": KILLS,
                "etc/systemd/logind.conf.d/50-kill.conf": "[Login]\nKillUserProcesses=no\n",
            },
            1000,
            False,
        ),
        (SESSION, {"etc/systemd/logind.conf": KILLS + "KillOnlyUsers=ann\n"}, 1000, False),
        (SESSION, {}, 1000, False),
        ("0::/system.slice/ssh.service\n", {"etc/systemd/logind.conf": KILLS}, 1000, False),
        (
            "1:name=systemd:/user.slice/user-1.slice/session-c1.scope\n",
            {"etc/systemd/logind.conf": KILLS},
            1000,
            True,
        ),
    ],
)
def test_a_login_manager_that_ends_sessions_whole_is_seen_before_the_launch(
    tmp_path: Path, groups: str, files: dict[str, str], uid: int, doomed: bool
) -> None:
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    why = capacity.ended_at_logout(str(tmp_path), uid)
    assert (why is not None) == doomed
    assert why is None or "KillExcludeUsers" in why
