"""Which of the processes found are the run: one trainer, or a launcher with its workers (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from hostkit.formatting import age
from hostkit.inventory.models import Run
from hostkit.liveness.readings import ProcessFacts, Reading


@dataclass(frozen=True)
class Group:
    """The processes that are one run: a trainer with its helpers, or a launcher with its workers."""

    all: tuple[ProcessFacts, ...] = ()
    main: ProcessFacts | None = None
    workers: int = 0
    expected: int | None = None
    doubt: tuple[str, ...] = ()

    @classmethod
    def of(cls, run: Run, reading: Reading) -> Group:
        found = reading.run.processes
        if not found:
            return cls()
        own = [one for one in found if one.pid_ns in (None, reading.host.pid_ns)] or found
        tops = {one.top for one in own if one.role != "launcher"} or {one.top for one in own}
        own = [one for one in own if one.top in tops]
        main = next((one for one in own if one.role in ("trainer", "worker")), own[0])
        declared = run.process.workers
        if len(tops) > 1 and not (declared and len(tops) <= declared and _kin(own, tops)):
            lines = [
                f"{len(tops)} processes fit, and which of them is the run cannot be told; all are protected"
            ]
            lines += [_name(one, reading, run.host) for one in own if one.pid == one.top]
            lines.append("tell them apart in the inventory: process.args or process.cwd")
            return cls(all=tuple(found), main=None, doubt=tuple(lines))
        launched = any(one.role == "launcher" for one in own)
        workers = sum(one.role == "worker" for one in own) if launched else len(tops)
        if not launched and len(tops) == 1:  # a trainer that starts its workers by itself
            forked = sum(one.role == "helper" and one.ppid == main.pid for one in own)
            workers = max(1, forked, main.spawned)
        expected = declared or max((one.expects or 0 for one in own), default=0) or (1 if launched else None)
        return cls(all=tuple(own), main=main, workers=workers, expected=expected)


def _kin(own: list[ProcessFacts], tops: set[int]) -> bool:
    """Whether several roots are workers of one run: one parent (not init) or one session started them."""
    heads = [one for one in own if one.pid in tops]
    return len({one.ppid for one in heads}) == 1 != heads[0].ppid or len({one.session for one in heads}) == 1


def _name(one: ProcessFacts, reading: Reading, host: str) -> str:
    command = " ".join(one.argv) or f"[{one.comm}]"
    command = command if len(command) <= 120 else command[:120] + "…"
    return f"process {one.pid} on {host}, {age(reading.age(one))} old, in {one.cwd or '?'}: {command}"
