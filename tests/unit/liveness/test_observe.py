"""One round trip to a host, and what becomes of it when the host, a hop or the reply is not as it should be."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from hostkit.errors import ConfigError, HostKeyError, ProtocolError, UnreachableError
from hostkit.inventory.models import Inventory
from hostkit.liveness import history
from hostkit.liveness.observe import observe
from hostkit.liveness.past import PastObservation
from hostkit.transport.base import Completed, Transport
from hostkit.transport.connections import Connections
from hostkit.transport.fake import FakeTransport
from hostkit.transport.route import Route

BASE = json.loads((Path(__file__).parent / "base.json").read_text())


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def fleet(**process: Any) -> Inventory:
    return Inventory.model_validate(
        {
            "hostkit": 1,
            "archive": "/data",
            "hosts": {
                "ct129": {"address": "10.1.230.172"},
                "pve": {"address": "10.1.2.6", "via": "ct129", "login": "there"},
                "ct200": {"pct": 200, "via": "pve"},
            },
            "runs": {
                "drafter": {**BASE["run"], "process": process or {"script": "train_dflash_pipeline.py"}}
            },
        }
    )


class Fakes:
    """Connections over fake transports: each host has a function, or an error that it raises."""

    def __init__(
        self, inventory: Inventory, **hosts: Callable[[list[str], bytes], Completed] | Exception
    ) -> None:
        self.inventory, self.hosts = inventory, hosts
        self.asked: list[str] = []

    def route(self, name: str) -> Route:
        return Route.to(self.inventory, name)

    def transport(self, name: str) -> Transport:
        def answer(argv: list[str], stdin: bytes) -> Completed:
            self.asked.append(name)
            given = self.hosts[name]
            if isinstance(given, Exception):
                raise given
            return given(argv, stdin)

        return FakeTransport(name, answer)


def through(inventory: Inventory, **hosts: Any) -> Connections:
    return cast(Connections, Fakes(inventory, **hosts))


def replying(reply: dict[str, Any]) -> Callable[[list[str], bytes], Completed]:
    return lambda argv, _: Completed(tuple(argv), 0, json.dumps({"reply": reply}).encode(), b"")


def recorded(**change: Any) -> dict[str, Any]:
    reading = BASE["reading"]
    return {**reading, "runs": {"drafter": {**reading["run"], **change}}}


def saying(code: int, out: str = "", err: str = "") -> Callable[[list[str], bytes], Completed]:
    return lambda argv, _: Completed(tuple(argv), code, out.encode(), err.encode())


def test_a_recorded_reply_becomes_a_document_with_every_promised_key() -> None:
    inventory = fleet()
    status = observe(through(inventory, ct200=replying(recorded())), inventory, "drafter")
    document = status.document()
    promised = {"schema", "run", "verdict", "exit", "since", "evidence", "findings", "step", "processes"}
    assert promised | {"checkpoints", "log", "hops", "at"} <= set(document)
    assert document["schema"] == "hostkit.train-status/1"
    assert (document["verdict"], document["step"]["live"], document["step"]["lag"]) == ("RUNNING", 5296, 1296)
    assert [hop["state"] for hop in document["hops"]] == ["ok"] * 3
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_one_look_is_one_round_trip() -> None:
    inventory = fleet()
    connections = Fakes(inventory, ct200=replying(recorded()))
    observe(cast(Connections, connections), inventory, "drafter")
    assert connections.asked == ["ct200"]


def test_a_hop_that_is_not_reached_is_unknown_and_named_with_what_stood_and_what_to_try() -> None:
    inventory = fleet()
    lost = UnreachableError("connection refused", hop="pve", hops_reached=("ct129",), hint="is its sshd up?")
    status = observe(through(inventory, ct200=lost), inventory, "drafter")
    assert (status.verdict, status.exit, status.processes) == ("UNKNOWN", 3, [])
    assert status.evidence == [
        "pve was not reached: connection refused",
        "stood: ct129",
        "try: is its sshd up?",
    ]
    assert [hop.state for hop in status.hops] == ["ok", "failed", "not tried"]


@pytest.mark.parametrize(
    "error", [HostKeyError("changed key", hop="ct129"), ProtocolError("no frame", where="ct200")]
)
def test_no_error_of_a_host_is_raised(error: Exception) -> None:
    inventory = fleet()
    hosts = {"ct200": error, "pve": saying(0, "status: running\n")}
    status = observe(through(inventory, **hosts), inventory, "drafter")
    assert status.verdict == "UNKNOWN"
    assert [hop.answered for hop in status.hops][-1] == isinstance(error, ProtocolError)
    assert "answered" not in str(status.document())


def test_a_fault_of_the_inventory_is_raised() -> None:
    inventory = fleet()
    with pytest.raises(ConfigError):
        observe(through(inventory, ct200=ConfigError("a loop in via")), inventory, "drafter")


@pytest.mark.report("f1")
@pytest.mark.parametrize(
    "said", [b"", b"ok", b"[]", b'{"reply": 5}', b'{"reply": {"runs": {}}}', b"lxc-attach: failed to exec"]
)
def test_a_reply_that_is_not_whole_is_unknown_whatever_its_exit_status(said: bytes) -> None:
    inventory = fleet()
    hosts = {
        "ct200": lambda argv, _: Completed(tuple(argv), 0, said, b""),
        "pve": saying(0, "status: running\n"),
    }
    status = observe(through(inventory, **hosts), inventory, "drafter")
    assert (status.verdict, status.exit) == ("UNKNOWN", 3)
    assert "pct status 200 on pve: status: running" in status.evidence


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("wall", float("inf")),
        ("wall", float("nan")),
        ("wall", 1e300),
        ("wall", -5),
        ("boot", 10**400),
        ("now_ticks", 10**400),
        ("hz", 0),
        ("kernel", 1e300),
    ],
)
def test_a_clock_that_no_machine_has_makes_the_answer_unknown(key: str, value: float) -> None:
    reply = recorded()
    reply["clock"] = {**reply["clock"], key: value}
    hosts = {"ct200": replying(reply), "pve": saying(0, "status: running\n")}
    inventory = fleet()
    assert observe(through(inventory, **hosts), inventory, "drafter").verdict == "UNKNOWN"


@pytest.mark.report("f7")
def test_a_container_that_is_not_on_its_host_has_moved_and_is_not_dead() -> None:
    inventory = fleet()
    gone = UnreachableError(
        "Configuration file 'nodes/pve1/lxc/200.conf' does not exist",
        hop="ct200",
        hops_reached=("ct129", "pve"),
    )
    answer = saying(255, err="Configuration file 'nodes/pve1/lxc/200.conf' does not exist\n")
    status = observe(through(inventory, ct200=gone, pve=answer), inventory, "drafter")
    assert status.verdict == "UNKNOWN"
    assert any(line.startswith("CT 200 is not on pve (moved?)") for line in status.evidence)


def test_a_stopped_container_is_told_by_its_proxmox_host() -> None:
    inventory = fleet()
    lost = UnreachableError("container '200' not running!", hop="ct200", hops_reached=("ct129", "pve"))
    status = observe(through(inventory, ct200=lost, pve=saying(0, "status: stopped\n")), inventory, "drafter")
    assert "pct status 200 on pve: status: stopped" in status.evidence
    silent = observe(
        through(inventory, ct200=lost, pve=UnreachableError("lost", hop="pve")), inventory, "drafter"
    )
    assert any("did not answer either" in line for line in silent.evidence)


def test_what_was_last_known_is_told_when_a_host_is_not_reached() -> None:
    inventory = fleet()
    observe(through(inventory, ct200=replying(recorded())), inventory, "drafter")
    lost = UnreachableError("refused", hop="ct129")
    first = observe(through(inventory, ct200=lost), inventory, "drafter")
    again = observe(through(inventory, ct200=lost), inventory, "drafter")
    assert first.before == again.before == "RUNNING"
    assert first.since == again.since < again.at
    assert again.last_known
    assert again.last_known.startswith("RUNNING at step 5296, ")
    back = observe(through(inventory, ct200=replying(recorded())), inventory, "drafter")
    assert (back.verdict, back.before, back.last_known) == ("RUNNING", "UNKNOWN", None)


def test_what_was_last_known_has_the_step_of_that_look_and_not_of_a_later_doubtful_one() -> None:
    inventory = fleet()
    observe(through(inventory, ct200=replying(recorded())), inventory, "drafter")
    facts = BASE["reading"]["run"]
    twins = [facts["processes"][0], {**facts["processes"][0], "pid": 7, "root": 7}]
    log = {**facts["log"], "tail": "step 6001 loss 2\n"}
    doubtful = observe(
        through(inventory, ct200=replying(recorded(processes=twins, log=log))), inventory, "drafter"
    )
    assert (doubtful.verdict, doubtful.step.live) == ("UNKNOWN", 6001)
    assert doubtful.last_known
    assert doubtful.last_known.startswith("RUNNING at step 5296, ")


def test_the_last_look_goes_with_the_next_request() -> None:
    inventory = fleet()
    asked: list[dict[str, Any]] = []

    def answer(argv: list[str], stdin: bytes) -> Completed:
        length, rest = stdin.split(b"\n", 1)
        asked.append(json.loads(rest[int(length) :].split(b"\n", 1)[1]))
        return replying(recorded())(argv, stdin)

    for _ in range(2):
        observe(through(inventory, ct200=answer), inventory, "drafter")
    assert asked[0]["runs"]["drafter"]["last"] is None
    assert asked[1]["runs"]["drafter"]["last"]["pid"] == 42639
    assert asked[1]["runs"]["drafter"]["last"]["exe"] == "/usr/bin/python3.11"


def test_the_run_s_pattern_stands_in_no_argv() -> None:
    inventory = fleet()
    seen: list[list[str]] = []

    def answer(argv: list[str], stdin: bytes) -> Completed:
        seen.append(argv)
        return replying(recorded())(argv, stdin)

    observe(through(inventory, ct200=answer), inventory, "drafter")
    assert "train_dflash" not in json.dumps(seen)


@pytest.mark.parametrize("text", ["", "{", '{"at": "yesterday"}', "\x00"])
def test_a_memory_that_cannot_be_read_is_no_memory(text: str) -> None:
    inventory = fleet()
    place = history.place(inventory, "drafter")
    place.parent.mkdir(parents=True)
    place.write_text(text)
    assert observe(through(inventory, ct200=replying(recorded())), inventory, "drafter").verdict == "RUNNING"
    assert history.recall(place) is not None
    assert place.stat().st_mode & 0o077 == 0


def test_a_memory_that_cannot_be_written_costs_nothing_but_itself(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "hostkit").mkdir()
    (tmp_path / "state" / "hostkit" / "liveness").write_text("a file in the way")
    inventory = fleet()
    assert observe(through(inventory, ct200=replying(recorded())), inventory, "drafter").verdict == "RUNNING"


@pytest.mark.report("h1", "h5")
@pytest.mark.parametrize("place", ["/proc", "/etc/passwd", "/nonexistent/home"])
def test_a_user_without_a_home_is_answered_all_the_same(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", place)
    if place == "/nonexistent/home":  # root may make any folder
        monkeypatch.setattr(Path, "mkdir", _refuse)
    inventory = fleet()
    assert observe(through(inventory, ct200=replying(recorded())), inventory, "drafter").verdict == "RUNNING"


def _refuse(*_: Any, **__: Any) -> None:
    raise PermissionError(13, "Permission denied")


def test_runs_of_one_name_in_two_inventories_have_two_memories() -> None:
    one, two = fleet(script="a.py"), fleet(script="b.py")
    assert history.place(one, "drafter") != history.place(two, "drafter")
    history.remember(history.place(one, "drafter"), PastObservation(at=1, verdict="RUNNING", since=1))
    assert history.recall(history.place(two, "drafter")) is None


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Connections]:
    (tmp_path / "train.log").write_text("step 9 loss 2\nstep 10 loss 2\n")
    run = {
        "host": "me",
        "process": {"script": f"no-such-{tmp_path.name}.py"},
        "log": {"path": str(tmp_path / "train.log")},
        "total_steps": 10,
    }
    hosts = {"me": {"local": True, "python": sys.executable}}
    inventory = Inventory.model_validate(
        {"hostkit": 1, "archive": "/data", "hosts": hosts, "runs": {"mine": run}}
    )
    with Connections(inventory) as connections:
        yield connections


def test_the_real_probe_answers_over_a_real_transport(local: Connections) -> None:
    status = observe(local, local.inventory, "mine")
    assert (status.verdict, status.exit) == ("FINISHED", 0)
    assert status.log.lines == ["step 9 loss 2", "step 10 loss 2"]
    assert status.host.boot_id
