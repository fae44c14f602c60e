"""One round trip to a host, and what becomes of it when the host, a hop or the reply is not as it should be."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from hostkit.errors import ConfigError, HostKeyError, ProtocolError, UnreachableError
from hostkit.inventory.models import Inventory
from hostkit.liveness.history import PERSON, History
from hostkit.liveness.observe import observe, observe_all
from hostkit.liveness.past import Past, PastObservation
from hostkit.liveness.verdict import Verdict
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
        self.deadline: float | None = None

    def route(self, name: str) -> Route:
        return Route.to(self.inventory, name)

    def transport(self, name: str, *, deadline: float | None = None) -> Transport:
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


def test_a_hop_that_is_not_reached_is_unknown_and_named_with_the_hops_reached_and_what_to_try() -> None:
    inventory = fleet()
    lost = UnreachableError("connection refused", hop="pve", hops_reached=("ct129",), hint="is its sshd up?")
    status = observe(through(inventory, ct200=lost), inventory, "drafter")
    assert (status.verdict, status.exit, status.processes) == ("UNKNOWN", 3, [])
    assert status.evidence == [
        "pve was not reached: connection refused",
        "hops reached: ct129",
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
    place = History.of(inventory, "drafter").path
    place.parent.mkdir(parents=True)
    place.write_text(text)
    assert observe(through(inventory, ct200=replying(recorded())), inventory, "drafter").verdict == "RUNNING"
    assert History(place).read().last is not None
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
    assert History.of(one, "drafter").path != History.of(two, "drafter").path
    History.of(one, "drafter").append(Past(), PastObservation(at=1, verdict="RUNNING", since=1))
    assert History.of(two, "drafter").read() == Past()


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


def ten_runs(**hosts: dict[str, Any]) -> Inventory:
    """Return an inventory with ten runs on each host."""
    runs = {
        f"{host}-{number}": {"host": host, "process": {"script": f"train-{number}.py"}}
        for host in hosts
        for number in range(10)
    }
    return Inventory.model_validate({"hostkit": 1, "archive": "/data", "hosts": hosts, "runs": runs})


def of_each(inventory: Inventory, host: str) -> dict[str, Any]:
    facts = BASE["reading"]
    names = [name for name, run in inventory.runs.items() if run.host == host]
    return {**facts, "runs": dict.fromkeys(names, facts["run"])}


def test_all_runs_of_a_host_are_asked_in_one_round_trip() -> None:
    inventory = ten_runs(a={"address": "10.0.0.1"}, b={"address": "10.0.0.2"})
    connections = Fakes(inventory, a=replying(of_each(inventory, "a")), b=replying(of_each(inventory, "b")))
    statuses = observe_all(cast(Connections, connections), inventory, inventory.runs)
    assert sorted(connections.asked) == ["a", "b"]
    assert [status.run for status in statuses] == list(inventory.runs)
    assert {status.verdict for status in statuses} == {Verdict.RUNNING}


def test_a_host_that_hangs_keeps_no_other_waiting() -> None:
    inventory = ten_runs(
        **{f"dead-{number}": {"address": f"10.0.1.{number + 1}"} for number in range(20)},
        well={"address": "10.0.0.1"},
    )
    answered = threading.Event()

    def hang(argv: list[str], _: bytes) -> Completed:
        assert answered.wait(30), "the healthy host was asked only after those that hang"
        raise UnreachableError("no answer", hop="x")

    def answer(argv: list[str], stdin: bytes) -> Completed:
        answered.set()
        return replying(of_each(inventory, "well"))(argv, stdin)

    hosts: dict[str, Any] = {name: hang for name in inventory.hosts if name != "well"}
    statuses = observe_all(through(inventory, **hosts, well=answer), inventory, inventory.runs)
    assert [status.run for status in statuses if status.verdict != "UNKNOWN"] == [
        f"well-{number}" for number in range(10)
    ]


def test_a_host_s_failure_is_looked_into_once_for_all_of_its_runs() -> None:
    inventory = ten_runs(pve={"address": "10.1.2.6"}, ct200={"pct": 200, "via": "pve"})
    names = [name for name in inventory.runs if name.startswith("ct200")]
    lost = UnreachableError("container '200' not running!", hop="ct200", hops_reached=("pve",))
    connections = Fakes(inventory, ct200=lost, pve=saying(0, "status: stopped\n"))
    statuses = observe_all(cast(Connections, connections), inventory, names)
    assert connections.asked == ["ct200", "pve"]
    assert all("pct status 200 on pve: status: stopped" in status.evidence for status in statuses)


def test_a_reading_of_one_run_that_is_not_as_it_should_be_spoils_no_other() -> None:
    inventory = ten_runs(a={"address": "10.0.0.1"})
    reply = of_each(inventory, "a")
    reply["runs"]["a-3"] = {"error": "OSError: odd"}
    statuses = observe_all(through(inventory, a=replying(reply)), inventory, inventory.runs)
    assert [status.run for status in statuses if status.verdict == "UNKNOWN"] == ["a-3"]
    assert "OSError: odd" in statuses[3].evidence[0]


def test_a_restart_that_an_evaluation_saw_is_still_told_to_the_person() -> None:
    inventory = fleet()
    process = BASE["reading"]["run"]["processes"][0]
    again = {**process, "pid": 99, "root": 99, "start_ticks": process["start_ticks"] + 5_000_000}
    observe(through(inventory, ct200=replying(recorded())), inventory, "drafter", reader=PERSON)
    restarted = through(inventory, ct200=replying(recorded(processes=[again])))
    observe(restarted, inventory, "drafter")
    told = observe(restarted, inventory, "drafter", reader=PERSON)
    assert "restarted" in [finding.kind for finding in told.findings]
    told = observe(restarted, inventory, "drafter", reader=PERSON)
    assert "restarted" not in [finding.kind for finding in told.findings]


def test_two_looks_within_a_second_keep_the_rate() -> None:
    inventory = fleet()

    def at(boot: float, step: int) -> dict[str, Any]:
        reply = recorded(log={**BASE["reading"]["run"]["log"], "tail": f"step {step} loss 2\n"})
        return {**reply, "clock": {**reply["clock"], "boot": boot}}

    for boot, step in ((1000000.0, 5000), (1000100.0, 5200), (1000100.5, 5201)):
        status = observe(through(inventory, ct200=replying(at(boot, step))), inventory, "drafter")
    assert status.step.rate == pytest.approx(2.0, rel=0.01)
