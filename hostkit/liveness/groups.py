"""Which of the processes that fit are the run: one trainer, or a launcher with its workers (pure)."""

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
            fitting = [process for process in fitting if is_in(process.cgroup, declared)]
        if not fitting:
            others = [process for process in reading.run.processes if declared]
            return cls(
                notes=tuple(f"not counted: {_where(process)}, not in {declared}" for process in others)
            )
        own = [process for process in fitting if not reading.in_container(process)] or fitting
        tops = {process.top for process in own if process.role != "launcher"} or {
            process.top for process in own
        }
        own = [process for process in own if process.top in tops]
        main = next((process for process in own if process.role in ("trainer", "worker")), own[0])
        workers = run.process.workers
        if len(tops) > 1 and not (workers and len(tops) <= workers and _related(own, tops)):
            lines = [
                f"{len(tops)} processes fit, and it is unknown which of them is the run; all are protected"
            ]
            lines += [_described(process, reading, run.host) for process in own if process.pid == process.top]
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
        launched = any(process.role == "launcher" for process in own)
        alive = sum(process.role == "worker" for process in own) if launched else len(tops)
        if not launched and len(tops) == 1:  # a trainer that starts its workers by itself
            forked = sum(process.role == "helper" and process.ppid == main.pid for process in own)
            alive = max(1, forked, main.spawned)
        expected = (
            workers or max((process.expects or 0 for process in own), default=0) or (1 if launched else None)
        )
        return cls(all=tuple(own), main=main, workers=alive, expected=expected, notes=notes)


def _where(process: ProcessFacts) -> str:
    """Say in which container a process is, as its cgroup names it."""
    name = container_name(process.cgroup)
    return f"process {process.pid} is in " + (f"container {name}" if name else "another pid namespace")


def _related(own: list[ProcessFacts], tops: set[int]) -> bool:
    """Whether several roots are workers of one run: one parent (not init) or one session started them."""
    heads = [process for process in own if process.pid in tops]
    return (
        len({process.ppid for process in heads}) == 1 != heads[0].ppid
        or len({process.session for process in heads}) == 1
    )


def _described(process: ProcessFacts, reading: Reading, host: str) -> str:
    command = " ".join(process.argv) or f"[{process.comm}]"
    command = command if len(command) <= 120 else command[:120] + "…"
    return f"process {process.pid} on {host}, {age(reading.age(process))} old, in {process.cwd or '?'}: {command}"
