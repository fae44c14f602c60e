"""What the screen of a training's status says: headline, rows, log lines. Data only; `report.status` prints it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hostkit.formatting import age, moment, rate, size
from hostkit.liveness.status import CheckpointStatus, TrainStatus
from hostkit.liveness.verdict import Verdict

CHECKPOINTS_SHOWN = 5
BULLET = "·"


@dataclass(frozen=True)
class Row:
    """A label and its text."""

    label: str
    text: str
    level: Literal["", "warning", "critical"] = ""


@dataclass(frozen=True)
class Screen:
    """One run: its headline (verdict, name, since when), its rows, the end of its log."""

    verdict: Verdict
    name: str
    since: str
    rows: tuple[Row, ...]
    log_title: str = ""
    log_lines: tuple[str, ...] = ()


def screen_of(status: TrainStatus, *, brief: bool = False, log: bool = True) -> Screen:
    """Return one run's screen. `brief`: without older checkpoints, for a list of runs; `log`: with its last lines."""
    rows = [Row(BULLET, line) for line in status.evidence]
    rows += [*_progress(status), *_saves(status), *_host(status), *_findings(status)]
    rows += [Row(name, url) for name, url in status.links.items()]
    rows += [] if brief else _unused_checkpoints(status)
    lines = tuple(status.log.lines) if log else ()
    count = f"{len(lines)} lines" if len(lines) > 1 else "line"
    return Screen(
        verdict=status.verdict,
        name=f"{status.run} on {status.host.name}",
        since=_since(status),
        rows=tuple(rows),
        log_title=f"the last {count} of {status.log.path or 'the log'}" if lines else "",
        log_lines=lines,
    )


def _since(status: TrainStatus) -> str:
    if status.since >= status.at:
        return ""
    before = f", before that {status.before}" if status.before else ""
    return f"since {moment(status.since)} ({age(status.at - status.since)}){before}"


def _findings(status: TrainStatus) -> Iterator[Row]:
    for finding in status.findings:
        level: Literal["warning", "critical"] = "critical" if finding.severity > 1 else "warning"
        yield Row(level, finding.text, level)
        yield Row("", f"try: {finding.advice}")


def _progress(status: TrainStatus) -> Iterator[Row]:
    step = status.step
    if status.last_known:
        yield Row("last known", status.last_known)
    if step.live is None:
        return
    of = f" of {step.total} ({step.percent:.1f} %)" if step.total and step.percent is not None else ""
    loss = f", loss {step.loss_text}" if step.loss_text else ""
    yield Row("step", f"{step.live}{of}{loss}")
    pace = f"{rate(step.rate)} ({step.rate_from})" if step.rate else step.rate_from
    if not status.processes:
        end = ""
    elif status.verdict == Verdict.STALLED:  # what the rate promises does not come
        end = ", before it stalled" if step.rate else ""
    else:
        end = f"; ends in about {age(step.eta)}" if step.eta is not None else "; end unknown"
    yield Row("rate", pace + end)


def _saves(status: TrainStatus) -> Iterator[Row]:
    step = status.step
    newest = next((one for one in status.checkpoints if one.newest), None)
    if newest is not None:
        yield Row("saved", _newest(status, newest))
    elif status.checkpoints:
        yield Row("saved", "no complete checkpoint of this attempt")
    if status.checkpoints_error:
        yield Row("saved", f"unknown: the checkpoints cannot be listed ({status.checkpoints_error})")
    if step.next_save is not None and status.processes:
        soon = step.next_save_in is not None and status.verdict != Verdict.STALLED
        yield Row(
            "next save",
            f"step {step.next_save}" + (f", in about {age(step.next_save_in or 0)}" if soon else ""),
        )


def _newest(status: TrainStatus, newest: CheckpointStatus) -> str:
    step = status.step
    old = f", {age(newest.age)} old" if newest.age is not None else ""
    lag = ""
    if step.lag == 0:
        lag = "; the run is at that step"
    elif step.lag is not None and step.lag_percent is not None:
        minutes = f", {age(step.lag_minutes * 60)}" if step.lag_minutes is not None else ""
        lag = f"; the run is {step.lag} steps ahead ({step.lag_percent:.0f} %{minutes})"
    return f"step {newest.step}{old}, {size(newest.size or 0)}{lag}"


def _host(status: TrainStatus) -> Iterator[Row]:
    gpus = [
        f"{gpu.get('index')}: {gpu.get('use')} %, {gpu.get('memory_used')} of {gpu.get('memory_total')} MiB"
        for gpu in status.host.gpus
    ]
    if gpus:
        yield Row("GPUs", "; ".join(gpus))
    if status.verdict == Verdict.UNKNOWN and len(status.hops) > 1:
        yield Row("route", " → ".join(f"{hop.name} {hop.state}" for hop in status.hops))


def _unused_checkpoints(status: TrainStatus) -> Iterator[Row]:
    """Say which checkpoints have a higher step than the one that counts, and why they are not used."""
    newest = status.step.saved if status.step.saved is not None else -1
    higher = [one for one in status.checkpoints if one.step > newest]
    for checkpoint in higher[:CHECKPOINTS_SHOWN]:
        earlier = checkpoint.attempt == "earlier"
        why = "of an earlier attempt: its step is above the live one" if earlier else "incomplete"
        yield Row(
            "not used",
            f"step {checkpoint.step}: {why}" + (f" ({checkpoint.reason})" if checkpoint.reason else ""),
        )
    if len(higher) > CHECKPOINTS_SHOWN:
        yield Row("", f"and {len(higher) - CHECKPOINTS_SHOWN} more (--json shows all)")
