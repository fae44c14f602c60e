"""What one look at a host brought back, as typed values: the probe's reply, one run at a time (pure)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hostkit.checkpoints.models import Candidate
from hostkit.errors import DataError, ProtocolError
from hostkit.identity import Identity
from hostkit.sanitize import one_line

SKEW = 5.0  # seconds that two clocks may differ before it is said


_FAR = 1e11  # seconds; a clock beyond the year 5000 is none


class Fact(BaseModel):
    """Frozen; what a newer probe says on top is passed over, and what is no number is none here."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Clock(Fact):
    """The far clocks in seconds. `kernel` dates files; it differs from `wall` only where a library lies."""

    wall: float = Field(ge=0, lt=_FAR)
    boot: float = Field(0.0, ge=0, lt=_FAR)
    kernel: float | None = Field(None, ge=0, lt=_FAR)
    now_ticks: int = Field(0, ge=0, lt=10**18)
    hz: int = Field(100, gt=0, lt=10**6)
    sane: bool = True

    @property
    def files(self) -> float:
        """The present by the clock that dates files."""
        return self.kernel if self.kernel is not None and abs(self.kernel - self.wall) > 2 else self.wall


class HostFacts(Fact):
    name: str = ""
    boot_id: str = "unknown"
    pid_ns: int | None = None
    init_start_ticks: int | None = None
    uid: int = 0
    python: str = ""


class Table(Fact):
    """What could be seen of the process table. `others`: processes of other users; `hidden`: hidepid is set."""

    pids: int = 0
    others: int = 0
    init: bool = True
    unreadable: int = 0
    hidden: bool = False

    def gap(self) -> str | None:
        """Return why a process may be there unseen; None when the table is whole."""
        if not self.init:
            return "process 1 cannot be seen"
        if self.hidden and not self.others:
            return "other users' processes are hidden (hidepid)"
        if self.unreadable > self.others:
            return f"{self.unreadable} processes cannot be read"
        return None


class ProcessFacts(Fact):
    """One process. `role`: trainer, launcher, worker (of a launcher), helper (forked by a trainer)."""

    pid: int
    ppid: int = 0
    root: int | None = None
    role: Literal["trainer", "launcher", "worker", "helper"] = "trainer"
    how: Literal["argv", "pidfile", "record"] = "argv"
    why: str | None = None
    doubt: bool = False
    wrapper: bool = (
        False  # of what has the log open: starts others or holds their output, as shells and tee do
    )
    comm: str = ""
    state: str = "S"
    session: int = 0
    cpu_ticks: int = 0
    threads: int = 1
    start_ticks: int = 0
    uid: int = 0
    argv: list[str] = []
    exe: str | None = None
    cwd: str | None = None
    pid_ns: int | None = None
    cgroup: str | None = None
    children: int = 0
    spawned: int = 0
    zombies: int = 0
    expects: int | None = None

    @property
    def top(self) -> int:
        return self.pid if self.root is None else self.root

    @property
    def stopped(self) -> bool:
        return self.state in ("T", "t")


class Pidfile(Fact):
    path: str
    text: str | None = None
    valid: bool = False
    pid: int | None = None
    reason: str | None = None


class Record(Fact):
    """What has become of the process that was seen before: same, zombie, reused, gone, other boot."""

    pid: int
    state: str


class OpenLog(Fact):
    pid: int
    fd: int
    path: str
    deleted: bool = False
    size: int = 0
    mtime: float = 0.0


class LogFacts(Fact):
    path: str | None = None
    origin: str | None = Field(None, alias="from")
    held: bool | None = None  # whether the run's process has it open
    error: str | None = None
    missing: bool = False
    size: int | None = None
    mtime: float | None = None
    inode: int | None = None
    deleted: bool = False
    rotated: bool = False
    renamed: str | None = None
    tail: str = ""
    begins: bool = False  # the tail does not reach back to the file's beginning
    cut: int = 0  # bytes left out of an overlong last line
    others: list[OpenLog] = []
    writers: list[ProcessFacts] = []


class Space(Fact):
    free: int
    free_root: int = 0
    size: int = 0
    files: int = 0
    files_free: int = 0


class Saves(Fact):
    root: str | None = None
    found: list[Candidate] = []
    error: str | None = None
    space: Space | None = None


class Gpus(Fact):
    state: str = ""
    each: list[dict[str, str]] = []


class RunFacts(Fact):
    processes: list[ProcessFacts] = []
    gone: list[int] = []
    titles: list[ProcessFacts] = []
    near: list[ProcessFacts] = []
    zombies: list[ProcessFacts] = []
    pidfile: Pidfile | None = None
    record: Record | None = None
    log: LogFacts = LogFacts()
    checkpoints: Saves = Saves()


class Reading(Fact):
    """One run as its host showed it at one moment."""

    clock: Clock
    host: HostFacts = HostFacts()
    table: Table = Table()
    run: RunFacts = RunFacts()
    gpus: Gpus = Gpus()
    memory: dict[str, int | None] = {}
    load: list[float] = []

    def in_container(self, process: ProcessFacts) -> bool:
        """Whether a process lives in another pid namespace than the one in which the probe asked."""
        return None not in (process.pid_ns, self.host.pid_ns) and process.pid_ns != self.host.pid_ns

    def age(self, process: ProcessFacts) -> float:
        """Return how long a process has lived, in seconds, by start ticks and the boot clock."""
        return max(0.0, (self.clock.now_ticks - process.start_ticks) / self.clock.hz)

    def started(self, process: ProcessFacts) -> float:
        """Return when a process began, by the clock that dates files."""
        return self.clock.files - self.age(process)

    def identity(self, process: ProcessFacts) -> Identity:
        return Identity(
            boot_id=self.host.boot_id,
            pid_ns=process.pid_ns or self.host.pid_ns or 0,
            pid=process.pid,
            start_ticks=process.start_ticks,
            init_start_ticks=self.host.init_start_ticks or 0,
        )


def reading_of(reply: dict[str, Any], run: str, *, host: str) -> Reading:
    """Return the reading of one run in a probe's reply. Raises DataError where the probe could not make it."""
    try:
        facts = reply["runs"][run]
        if "error" in facts:
            raise DataError(f"the probe failed: {one_line(str(facts['error']))}", where=host)
        return Reading.model_validate({**reply, "run": facts})
    except (ValidationError, KeyError, TypeError) as error:
        first = str(error).splitlines()[0]
        raise ProtocolError(
            f"the probe's reply is not what it should be: {first}",
            where=host,
            hint="is another program answering as this host's python?",
        ) from error
