"""Which of the processes found are the run: one trainer, or a launcher with its workers (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from hostkit.formatting import age
from hostkit.inventory.models import Run
from hostkit.liveness.containers import ANY, container_name, is_in
from hostkit.liveness.readings import ProcessFacts, Reading


@dataclass(frozen=True)
class Group:
    """The processes that are one run: a trainer with its helpers, or a launcher with its workers."""

    all: tuple[ProcessFacts, ...] = ()
    main: ProcessFacts | None = None
    workers: int = 0
    expected: int | None = None
    doubt: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # where it runs, or why what fits does not count

    @classmethod
    def of(cls, run: Run, reading: Reading) -> Group:
        fitting = reading.run.processes
        declared = run.process.container
        if declared not in (None, ANY):
            fitting = [one for one in fitting if is_in(one.cgroup, declared)]
        if not fitting:
            others = [one for one in reading.run.processes if declared]
            return cls(notes=tuple(f"not counted: {_where(one)}, not in {declared}" for one in others))
        own = [one for one in fitting if not reading.in_container(one)] or fitting
        tops = {one.top for one in own if one.role != "launcher"} or {one.top for one in own}
        own = [one for one in own if one.top in tops]
        main = next((one for one in own if one.role in ("trainer", "worker")), own[0])
        workers = run.process.workers
        if len(tops) > 1 and not (workers and len(tops) <= workers and _kin(own, tops)):
            lines = [
                f"{len(tops)} processes fit, and it is unknown which of them is the run; all are protected"
            ]
            lines += [_name(one, reading, run.host) for one in own if one.pid == one.top]
            lines.append("tell them apart in the inventory: process.args, process.cwd or process.container")
            return cls(all=tuple(fitting), doubt=tuple(lines))
        notes = (_where(main),) if reading.in_container(main) else ()
        if notes and declared is None and run.log.path and reading.run.log.held is not True:
            lines = [
                f"{_where(main)}; {run.log.path} on {run.host} is not a file that it has open: is it the run?",
                f"declare process.container ({container_name(main.cgroup) or ANY}) if it is, "
                "or make the container a host of the inventory",
            ]
            return cls(all=tuple(fitting), doubt=tuple(lines))
        launched = any(one.role == "launcher" for one in own)
        alive = sum(one.role == "worker" for one in own) if launched else len(tops)
        if not launched and len(tops) == 1:  # a trainer that starts its workers by itself
            forked = sum(one.role == "helper" and one.ppid == main.pid for one in own)
            alive = max(1, forked, main.spawned)
        expected = workers or max((one.expects or 0 for one in own), default=0) or (1 if launched else None)
        return cls(all=tuple(own), main=main, workers=alive, expected=expected, notes=notes)


def _where(process: ProcessFacts) -> str:
    """Say in which container a process is, as its cgroup names it."""
    name = container_name(process.cgroup)
    return f"process {process.pid} is in " + (f"container {name}" if name else "another pid namespace")


def _kin(own: list[ProcessFacts], tops: set[int]) -> bool:
    """Whether several roots are workers of one run: one parent (not init) or one session started them."""
    heads = [one for one in own if one.pid in tops]
    return len({one.ppid for one in heads}) == 1 != heads[0].ppid or len({one.session for one in heads}) == 1


def _name(one: ProcessFacts, reading: Reading, host: str) -> str:
    command = " ".join(one.argv) or f"[{one.comm}]"
    command = command if len(command) <= 120 else command[:120] + "…"
    return f"process {one.pid} on {host}, {age(reading.age(one))} old, in {one.cwd or '?'}: {command}"
