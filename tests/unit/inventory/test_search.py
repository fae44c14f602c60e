"""Which inventory file is used, and that one which was named is never replaced by another."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostkit.errors import ConfigError
from hostkit.inventory import find
from hostkit.inventory.search import user_file


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOSTKIT_INVENTORY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))


def made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_the_flag_comes_first_then_the_environment_then_here_then_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = made(user_file())
    assert users.is_relative_to(tmp_path)
    assert find() == users
    made(tmp_path / "inventory" / "fleet.yaml")
    assert find() == Path("inventory/fleet.yaml")
    named = made(tmp_path / "named.yaml")
    monkeypatch.setenv("HOSTKIT_INVENTORY", str(named))
    assert find() == named
    flagged = made(tmp_path / "flagged.yaml")
    assert find(flagged) == flagged


def test_without_any_file_every_place_and_the_way_out_are_named() -> None:
    with pytest.raises(ConfigError) as caught:
        find()
    assert caught.value.exit_code == 78
    said = str(caught.value)
    assert "inventory/fleet.yaml" in said
    assert str(user_file()) in said
    assert "--inventory" in said
    assert "$HOSTKIT_INVENTORY" in said


def test_a_named_file_that_is_not_there_is_an_error_though_another_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "inventory" / "fleet.yaml")
    with pytest.raises(ConfigError, match="no such inventory file"):
        find(tmp_path / "typo.yaml")
    monkeypatch.setenv("HOSTKIT_INVENTORY", str(tmp_path / "typo.yaml"))
    with pytest.raises(ConfigError, match=r"\$HOSTKIT_INVENTORY"):
        find()


@pytest.mark.report("j9")
@pytest.mark.parametrize("value", ["", "  "])
def test_a_variable_that_is_set_and_empty_is_an_error(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "inventory" / "fleet.yaml")
    monkeypatch.setenv("HOSTKIT_INVENTORY", value)
    with pytest.raises(ConfigError, match="is set, but empty"):
        find()


def test_a_tilde_that_the_shell_left_is_the_home_directory(tmp_path: Path) -> None:
    assert find("~/mine.yaml" if made(tmp_path / "mine.yaml") else None) == tmp_path / "mine.yaml"
