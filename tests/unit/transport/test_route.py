"""A route is the one source of the Fabric chain, the OpenSSH argv and the rsync words."""

from __future__ import annotations

import itertools
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hostkit.errors import ConfigError, UsageError
from hostkit.inventory.models import Inventory
from hostkit.transport.route import Route

FLEET: dict[str, dict[str, Any]] = {
    "workspace": {"local": True},
    "ct129": {"address": "10.1.230.172", "user": "root", "identity": "/keys/laptop"},
    "pve": {"address": "10.1.2.6", "via": "ct129", "login": "there", "identity": "/keys/ct129"},
    "pvf": {"address": "10.1.2.6", "via": "ct129", "identity": "/keys/laptop"},
    "ct200": {"pct": 200, "via": "pve"},
    "ct201": {"pct": 201, "via": "pvf"},
    "ct300": {"pct": 300, "via": "workspace"},
    "six": {"address": "fe80::1%eth0", "port": 2222, "user": "me"},
    "known": {"alias": "my-box"},
    "behind": {"address": "inner.example", "via": "known", "sudo": "root"},
    "ct400": {"pct": 400, "via": "behind"},
}


def route(name: str, here: str | None = None, **more: Any) -> Route:
    hosts = FLEET | {key: value for key, value in more.items() if isinstance(value, dict)}
    inventory = Inventory.model_validate({"hostkit": 1, "archive": "/a", "hosts": hosts})
    return Route.to(inventory, name, here, standing_there=bool(more.get("standing_there")))


@pytest.mark.parametrize(
    ("name", "here", "hops", "connected"),
    [
        ("workspace", None, ["workspace:local"], []),
        ("ct129", None, ["ct129:ssh"], ["ct129"]),
        ("pve", None, ["ct129:ssh", "pve:ssh"], ["ct129"]),
        ("pvf", None, ["ct129:ssh", "pvf:ssh"], ["ct129", "pvf"]),
        ("ct200", None, ["ct129:ssh", "pve:ssh", "ct200:pct"], ["ct129"]),
        ("ct201", None, ["ct129:ssh", "pvf:ssh", "ct201:pct"], ["ct129", "pvf"]),
        ("ct300", None, ["workspace:local", "ct300:pct"], []),
        ("ct200", "ct129", ["ct129:local", "pve:ssh", "ct200:pct"], ["pve"]),
        ("ct200", "pve", ["pve:local", "ct200:pct"], []),
        ("ct200", "ct200", ["ct200:local"], []),
        ("ct129", "pve", ["ct129:ssh"], ["ct129"]),
    ],
)
def test_a_route_lists_its_hops_from_where_one_stands(
    name: str, here: str | None, hops: list[str], connected: list[str]
) -> None:
    found = route(name, here)
    assert [f"{hop.name}:{hop.kind}" for hop in found.hops] == hops
    assert [hop.name for hop in found.connected()] == connected
    local = 1 if found.hops[0].kind == "local" else 0
    assert len(found.connected()) + len(found.wrapped()) + local == len(found.hops)


@pytest.mark.parametrize(
    ("hosts", "name", "said"),
    [
        ({"a": {"address": "a", "via": "b"}, "b": {"address": "b", "via": "a"}}, "a", "loop"),
        ({"a": {"pct": 100}}, "a", "no `via`"),
        ({"a": {"address": "a", "via": "gone"}}, "a", "no host 'gone'"),
        ({"a": {"address": "a", "via": "ct200"}}, "a", "no tunnel"),
        ({"a": {"address": "a", "via": "pve"}}, "a", "no tunnel"),
    ],
)
def test_a_route_that_cannot_be_is_refused(hosts: dict[str, Any], name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        route(name, **hosts)


def test_a_host_that_is_not_there_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean ct129"):
        route("ct128")
    with pytest.raises(UsageError):
        route("ct129", "nowhere")


def test_the_local_machine_cannot_be_reached_from_elsewhere_unless_one_stands_there() -> None:
    with pytest.raises(ConfigError, match="local"):
        route("workspace", "ct129")
    assert route("workspace", "ct129", standing_there=True).hops[0].kind == "local"


def passed(words: list[str]) -> list[str]:
    """Return what a hop on the way starts: behind the program that names it, and ends what hangs there."""
    assert words[:2] == ["sh", "-c"]
    assert words[2].endswith('exec "$@"')
    return words[5:]


def test_pct_gets_an_argv_without_a_shell_and_an_environment_of_its_own() -> None:
    words = passed(route("ct300").wrap(["cat", "it's"]))
    assert words[:4] == ["pct", "exec", "300", "--"]
    assert words[-2:] == ["cat", "it's"]
    assert "-i" in words
    assert any(word.startswith("PATH=/usr/local/sbin:") for word in words)


def test_an_argv_is_quoted_once_for_each_shell_that_reads_it() -> None:
    argv = ["printf", "%s", "a b'c\"d$e\\f;g|h\n*"]
    *ssh, line = passed(route("ct200").wrap(argv))
    assert ssh[0] == "ssh"
    assert shlex.split(line)[-3:] == argv
    assert passed(shlex.split(line))[:4] == ["pct", "exec", "200", "--"]
    assert ssh[-1] == "pve"


def test_sudo_stands_at_each_host_that_asks_for_it_before_what_it_may_be_allowed_for() -> None:
    assert route("behind").wrap(["id"]) == ["sudo", "-n", "-u", "root", "--", "id"]
    words = passed(route("ct400").wrap(["id"]))
    assert words[:8] == ["sudo", "-n", "-u", "root", "--", "pct", "exec", "400"]
    there = route("inner", inner={"address": "i", "via": "behind", "login": "there", "sudo": "ops"})
    *ssh, line = passed(there.wrap(["id"]))
    assert ssh[:6] == ["sudo", "-n", "-u", "root", "--", "ssh"]
    assert shlex.split(line) == ["sudo", "-n", "-u", "ops", "--", "id"]


@pytest.mark.parametrize(
    ("named", "reached"),
    [([], []), (["ct129"], ["ct129"]), (["ct129", "pve"], ["ct129", "pve"]), (["pve"], [])],
)
def test_a_hop_counts_as_reached_when_it_has_named_itself(named: list[str], reached: list[str]) -> None:
    stderr = "".join(f"Welcome!\nhostkit-hop {name}\n" for name in named).encode()
    assert list(route("ct200").hops_reached(stderr)) == reached


def test_a_hop_that_is_connected_to_counts_as_reached_when_something_runs_behind_it() -> None:
    assert route("ct201").hops_reached(b"") == ("ct129",)
    assert route("pvf").hops_reached(b"") == ("ct129",)
    assert route("ct129").hops_reached(b"") == ()


def options(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for flag, word in itertools.pairwise(words) if flag == "-o")


def test_an_ssh_that_runs_there_uses_the_keys_that_lie_there() -> None:
    said = options(route("pve").wrap(["true"]))
    assert said["IdentityFile"] == "/keys/ct129"
    assert said["IdentitiesOnly"] == "yes"
    assert said["HostName"] == "10.1.2.6"
    assert said["BatchMode"] == "yes"
    assert said["StrictHostKeyChecking"] == "yes"
    assert (said["UpdateHostKeys"], said["CheckHostIP"]) == (
        "no",
        "no",
    )  # nothing is added to known_hosts there
    assert said["ControlMaster"] == "no"
    assert said["ForwardAgent"] == "no"


def test_seen_from_another_machine_this_ones_key_paths_are_left_out() -> None:
    assert "IdentityFile" not in options(list(route("ct201", "ct129").rsync_source().rsh))
    assert options(list(route("ct200", "ct129").rsync_source().rsh))["IdentityFile"] == "/keys/ct129"
    standing = route("pvf", "ct129", standing_there=True)
    assert options(list(standing.rsync_source().rsh))["IdentityFile"] == "/keys/laptop"


@pytest.mark.parametrize(
    ("name", "here", "shells"),
    [("ct200", "ct129", 1), ("ct201", None, 1), ("ct200", None, 2), ("pvf", None, 1), ("ct200", "ct200", 0)],
)
def test_what_is_piped_through_arrives_word_for_word(name: str, here: str | None, shells: int) -> None:
    argv = ["/opt/my python; $(touch x)", "-I", "it's"]
    words = route(name, here).piped_argv(argv)
    for _ in range(shells):
        assert words[:2] == ["ssh", "-T"]
        words = shlex.split(words[-1])
    assert words[-3:] == argv
    assert (words[:2] == ["pct", "exec"]) == (name.startswith("ct") and bool(shells))


def test_who_stands_on_a_host_is_its_user_already() -> None:
    assert route("behind", "behind").piped_argv(["id"]) == ["id"]
    assert route("ct400", "behind").piped_argv(["id"])[:3] == ["pct", "exec", "400"]


def test_rsync_enters_a_container_without_a_shell_of_its_own() -> None:
    source = route("ct200", "ct129").rsync_source()
    assert source.rsh[0] == "ssh"
    assert source.rsh[-3:] == ("pve", "pct", "exec")
    assert source.host == "200"
    assert source.rsync_path[0] == "--"
    assert source.rsync_path[-1] == "rsync"
    assert source.spec("/x") == "200:/x"
    assert source.options()[1].endswith("pve pct exec")


def test_an_ipv6_address_never_stands_in_an_rsync_spec() -> None:
    source = route("six").rsync_source()
    assert source.spec("/data") == "six:/data"
    said = options(list(source.rsh))
    assert said["HostName"] == "fe80::1%%eth0"
    assert said["Port"] == "2222"
    assert said["User"] == "me"


def test_rsync_on_the_same_host_needs_no_ssh() -> None:
    source = route("ct200", "ct200").rsync_source()
    assert (source.rsh, source.options(), source.spec("/a b")) == ((), [], "/a b")


def test_rsync_through_two_tunnelled_hops_carries_its_way_in_a_proxy_command() -> None:
    source = route("pvf").rsync_source()
    proxy = shlex.split(options(list(source.rsh))["ProxyCommand"])
    assert proxy[0] == "ssh"
    assert proxy[-3:] == ["-W", "[%h]:%p", "ct129"]
    assert source.host == "pvf"
    words = rsync_splits(source.options()[1])
    assert tuple(words) == source.rsh


def rsync_splits(text: str) -> list[str]:
    """Split as rsync splits -e: blanks; quotes of both kinds, doubled inside; no backslash (main.c, do_cmd)."""
    words: list[str] = []
    word: str | None = None
    index = 0
    while index < len(text):
        char = text[index]
        if char == " ":
            if word is not None:
                words.append(word)
                word = None
        elif char in "'\"":
            word = word or ""
            index += 1
            while True:
                if text[index] == char:
                    if text[index + 1 : index + 2] != char:
                        break
                    index += 1
                word += text[index]
                index += 1
        else:
            word = (word or "") + char
        index += 1
    return words if word is None else [*words, word]


def understood(found: Route, hop: str) -> dict[str, str]:
    done = subprocess.run(found.ssh_config_queries()[hop], capture_output=True, text=True, check=True)
    return dict(line.partition(" ")[::2] for line in done.stdout.splitlines())


def test_openssh_understands_the_options_that_are_made_for_it(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("Host *\n  ForwardAgent yes\n  Compression yes\n")
    hosts = {
        "a": {
            "address": "fe80::1%eth0",
            "port": 2200,
            "ssh_config": str(tmp_path / "users"),
            "identity": "/a b/key",
        },
        "b": {
            "address": "10.0.0.9",
            "via": "a",
            "known_hosts": "/kh b",
            "ssh_config": str(tmp_path / "users"),
        },
    }
    found = route("b", **hosts)
    outer = understood(found, "a")
    assert (outer["hostname"], outer["port"]) == ("fe80::1%eth0", "2200")
    assert outer["identityfile"] == "/a b/key"
    assert outer["forwardagent"] == "no"
    assert outer["compression"] == "yes"
    inner = understood(found, "b")
    assert inner["hostname"] == "10.0.0.9"
    assert inner["userknownhostsfile"] == "/kh b"
    assert inner["stricthostkeychecking"] in ("yes", "true")


def test_an_alias_is_left_to_the_users_own_configuration() -> None:
    found = route("known")
    assert "HostName" not in options(list(found.rsync_source().rsh))
    assert found.rsync_source().host == "my-box"
    assert found.piped_argv(["true"])[-2] == "my-box"
