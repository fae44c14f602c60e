"""A training's status for a person at three in the morning: the verdict in words first, then why, then figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hostkit.formatting import age, moment, rate, size
from hostkit.liveness.verdict import Verdict
from hostkit.report.console import sanitize

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from hostkit.liveness.status import CheckpointStatus, TrainStatus

_STYLES = {0: "bold green", 1: "bold yellow", 2: "bold red", 3: "bold yellow"}  # by the verdict's exit code
_SHOWN = 5  # checkpoints


def show(console: Console, status: TrainStatus, *, brief: bool = False, log: bool = True) -> None:
    """Print one run's status. `brief`: without older checkpoints, for a list of runs; `log`: with its last lines."""
    for part in _parts(status, brief=brief):
        console.print(part)
    if status.log.lines and log:
        _log(console, status)
    console.print()


def _parts(status: TrainStatus, *, brief: bool) -> list[RenderableType]:
    parts: list[RenderableType] = [_headline(status)]
    parts += [_row("", line, mark="·") for line in status.evidence]
    parts += [_row(label, text) for label, text in _figures(status)]
    for finding in status.findings:
        parts.append(
            _row(
                "act now" if finding.severity > 1 else "look at",
                finding.text,
                style="bold red" if finding.severity > 1 else "yellow",
            )
        )
        parts.append(_row("", f"try: {finding.advice}"))
    parts += [_row(name, url) for name, url in status.links.items()]
    if not brief:
        parts += _checkpoints(status)
    return parts


def _log(console: Console, status: TrainStatus) -> None:
    """Print the log's last lines: a row for each on a terminal, whole where a file or a program reads them."""
    from rich.rule import Rule
    from rich.text import Text

    count = len(status.log.lines)
    title = (
        f"the last {f'{count} lines' if count > 1 else 'line'} of {sanitize(status.log.path or 'the log')}"
    )
    console.print(Rule(Text(title), style="dim", align="left"))
    for line in status.log.lines:
        text = Text(sanitize(line), style="dim")
        if console.is_terminal:
            console.print(text, no_wrap=True, overflow="ellipsis")
        else:
            console.print(text, soft_wrap=True)


def _headline(status: TrainStatus) -> RenderableType:
    from rich.text import Text

    style = _STYLES[status.verdict.exit]
    line = Text.assemble(
        (status.verdict, style), f"  {status.run} on {status.host.name}: ", (status.verdict.phrase, style)
    )
    since = (
        f"  since {moment(status.since)} ({age(max(0.0, status.at - status.since))})"
        if status.since < status.at
        else ""
    )
    line.append(since + (f", before that {status.before}" if status.before and since else ""), style="dim")
    return line


def _row(label: str, text: str, *, mark: str = "", style: str = "") -> RenderableType:
    """Return a label and its text, which wraps beside it at any width."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    table.add_column(width=12, justify="right", style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(Text(mark or label), Text(sanitize(text), style=style))
    return table


def _figures(status: TrainStatus) -> list[tuple[str, str]]:
    step, out = status.step, []
    moves = status.verdict != Verdict.STALLED  # else what the rate foretells does not come
    if status.last_known:
        out.append(("last known", status.last_known))
    if step.live is not None:
        of = f" of {step.total:,} ({step.percent:.1f} %)" if step.total and step.percent is not None else ""
        loss = f", loss {step.loss_text}" if step.loss_text else ""
        out.append(("step", f"{step.live:,}{of}{loss}"))
        pace = f"{rate(step.rate)} ({step.rate_from})" if step.rate else step.rate_from
        end = f"; ends in about {age(step.eta)}" if step.eta is not None else "; its end is not known"
        if not moves:
            end = ", before it stood still" if step.rate else ""
        out.append(("rate", pace + (end if status.processes else "")))
    newest = next((one for one in status.checkpoints if one.newest), None)
    if newest is not None:
        out.append(("saved", _saved(status, newest)))
    elif status.checkpoints:
        out.append(("saved", "no complete checkpoint of this attempt"))
    if status.checkpoints_error:
        out.append(("saved", f"not known: the checkpoints cannot be listed ({status.checkpoints_error})"))
    if step.next_save is not None and status.processes:
        when = f", in about {age(step.next_save_in)}" if step.next_save_in is not None and moves else ""
        out.append(("next save", f"step {step.next_save:,}{when}"))
    out += [("GPUs", line) for line in _gpus(status)]
    if status.verdict == Verdict.UNKNOWN and len(status.hops) > 1:
        out.append(("route", " → ".join(f"{hop.name} {hop.state}" for hop in status.hops)))
    return out


def _saved(status: TrainStatus, newest: CheckpointStatus) -> str:
    step = status.step
    old = f", {age(newest.age)} old" if newest.age is not None else ""
    lag = ""
    if step.lag == 0:
        lag = "; the run is at that step"
    elif step.lag is not None and step.lag_percent is not None:
        minutes = f", {age(step.lag_minutes * 60)}" if step.lag_minutes is not None else ""
        lag = f"; the live weights are {step.lag:,} steps ({step.lag_percent:.0f} % of the run so far{minutes}) ahead"
    return f"step {newest.step:,}{old}, {size(newest.size or 0)}{lag}"


def _gpus(status: TrainStatus) -> list[str]:
    gpus = status.host.gpus
    if not gpus:
        return []
    return [
        "; ".join(
            f"{one.get('index')}: {one.get('use')} %, {one.get('memory_used')} of {one.get('memory_total')} MiB"
            for one in gpus
        )
    ]


def _checkpoints(status: TrainStatus) -> list[RenderableType]:
    """Say what has a higher step than the checkpoint that counts, and why it was not taken."""
    newest = status.step.saved if status.step.saved is not None else -1
    odd = [one for one in status.checkpoints if one.step > newest]
    rows: list[RenderableType] = []
    for one in odd[:_SHOWN]:
        what = (
            "of an earlier attempt: its step is above the live one"
            if one.attempt == "earlier"
            else "incomplete"
        )
        rows.append(
            _row("not taken", f"step {one.step:,}: {what}" + (f" ({one.reason})" if one.reason else ""))
        )
    if len(odd) > _SHOWN:
        rows.append(_row("", f"and {len(odd) - _SHOWN} more (--json shows all)"))
    return rows
