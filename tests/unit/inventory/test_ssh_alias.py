"""An alias is what the user's own OpenSSH says it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostkit.errors import ConfigError
from hostkit.inventory.ssh_alias import parse_options, resolve_alias

from .cases import FOLDER


def recorded(name: str) -> dict[str, list[str]]:
    return parse_options((FOLDER / "ssh_g" / f"{name}.txt").read_text())


def test_each_keyword_has_its_values_in_order() -> None:
    options = recorded("jump")
    assert options["hostname"] == ["fe80::1%eth0"]
    assert options["port"] == ["2222"]
    assert options["proxyjump"] == ["ops@a.example:2222,b"]
    assert options["identityfile"] == ["/k/one", "/k/two with blank"]
    assert options["userknownhostsfile"] == ["/a /b"]


def test_a_command_keeps_its_blanks() -> None:
    assert recorded("proxy")["proxycommand"] == ["nc -X connect %h %p"]


def test_empty_lines_and_lone_words_do_no_harm() -> None:
    assert parse_options("\nuser root\n\nlone\n  \n") == {"user": ["root"], "lone": [""]}


def test_openssh_itself_resolves_include_and_match(tmp_path: Path) -> None:
    (tmp_path / "more").write_text("Host box\n  HostName 10.9.8.7\n  ProxyJump door\n")
    config = tmp_path / "config"
    config.write_text(f"Include {tmp_path}/more\nMatch host 10.9.8.7\n  User alice\nHost *\n  Port 2222\n")
    options = resolve_alias("box", str(config))
    told = [options[key] for key in ("hostname", "user", "port", "proxyjump")]
    assert told == [["10.9.8.7"], ["alice"], ["2222"], ["door"]]


def test_a_broken_ssh_config_is_a_config_error_in_openssh_s_words(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Host box\n  NoSuchKeyword yes\n")
    with pytest.raises(ConfigError, match=r"(?i)bad configuration option") as caught:
        resolve_alias("box", str(tmp_path / "config"))
    assert caught.value.exit_code == 78


@pytest.mark.parametrize("alias", ["", "-oProxyCommand=touch /tmp/x"])
def test_an_option_is_no_alias(alias: str) -> None:
    with pytest.raises(ConfigError, match="is no alias"):
        resolve_alias(alias)


def test_without_openssh_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ConfigError, match="write address:"):
        resolve_alias("box")
