"""Show an evaluation to a person: the figure with what it rests on, the comparison, the caveats, the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hostkit.evals.compare import FEW_PROMPTS
from hostkit.report.console import remote, sanitize_document

if TYPE_CHECKING:
    from rich.console import Console

_WORDS = {
    "accept_len": "drafts accepted in a row, no anchor, no bonus",
    "accept_len_top4_oracle": "bound: the token is among the 4 likeliest",
    "accept_len_top8_oracle": "bound: the token is among the 8 likeliest",
    "tau_loop": "accepted in the simulated loop, bonus counted",
}


def show(document: dict[str, Any], console: Console) -> None:
    """Print a `hostkit.eval-latest/1` document."""
    from rich.text import Text

    document = sanitize_document(document)
    result, checkpoint = document["result"], document["checkpoint"]
    settings, coverage = result["settings"], result["coverage"]
    console.print()
    console.print(
        Text.assemble(
            (f"{document['eval']}", "bold"),
            f"  step {checkpoint['step']}  ",
            remote(str(checkpoint["path"]), "dim"),
            ("  (from the archive)" if document["reused"] else ""),
        ),
        soft_wrap=True,
    )
    partial = coverage["prompts_done"] < coverage["prompts_asked"]
    console.print(
        Text.assemble(
            f"{coverage['blocks']} blocks of {settings['block_size']}, ",
            (
                f"{coverage['prompts_done']} of {coverage['prompts_asked']} prompts",
                "bold red" if partial else "",
            ),
            f", seed {settings['seed']}, {settings['dtype']}, {document['sample']} sample",
        )
    )
    console.print(_metrics(result))
    if len(coverage["by_domain"]) > 1:
        console.print(_domains(document))
    _comparison(document.get("comparison"), console)
    for caveat in document["caveats"]:
        console.print(Text.assemble(("caveat: ", "yellow"), remote(caveat)))
    _training(document, console)
    console.print(Text(f"archived: {document['archive']}", "dim"), soft_wrap=True)


def _metrics(result: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title, side in (
        ("metric", "left"),
        ("mean", "right"),
        ("95 % interval", "right"),
        ("n", "right"),
        ("", "left"),
    ):
        table.add_column(title, justify=side)  # type: ignore[arg-type]
    for name, metric in sorted(result["metrics"].items(), key=_order):
        if name.startswith(("accept_rate@", "cond_accept_rate@")):
            continue
        table.add_row(
            name,
            number(metric["mean"]),
            bounds(metric.get("interval")),
            str(metric["n"]),
            _WORDS.get(name, _tree(name)),
        )
    return table


def _domains(document: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("domain", "accept_len", "prompts", "blocks"):
        table.add_column(title, justify="left" if title == "domain" else "right")
    for domain, part in sorted(document["by_domain"].items()):
        table.add_row(
            remote(domain),
            number(part["accept_len"]),
            f"{part['done']} of {part['asked']}",
            str(part["blocks"]),
        )
    return table


def _comparison(comparison: dict[str, Any] | None, console: Console) -> None:
    from rich.text import Text

    if comparison is None:
        console.print("compared with: nothing yet, this is the first result of this evaluation")
        return
    console.print(Text.assemble(f"against {comparison['label']}: ", (comparison["verdict"], "bold")))
    for reason in comparison["reasons"]:
        console.print(Text.assemble("  not comparable: ", remote(reason)))
    if comparison["conflict"]:
        console.print(Text.assemble("  ", (f"conflict: {comparison['conflict']}", "bold red")))
    for name, item in comparison["differences"].items():
        few = " (too few to generalise)" if item["prompts"] < FEW_PROMPTS else ""
        style = {"better": "green", "worse": "red"}.get(item["words"], "")
        console.print(
            Text.assemble(
                f"  {name} {number(item['reference'])} → {number(item['other'])}, difference {item['difference']:+.2f} "
                f"{bounds(item['interval'])} over {item['prompts']} prompts{few}: ",
                (item["words"], style),
            )
        )
    for caveat in comparison["caveats"]:
        console.print(Text.assemble("  ", ("caveat: ", "yellow"), remote(caveat)))


def _training(document: dict[str, Any], console: Console) -> None:
    from rich.text import Text

    training = document["training"]
    before, after = training["before"], training["after"]
    well = training["same_process"] is not False and before["exit"] == 0 and after["exit"] == 0
    steps = (
        f", step {before['step']['live']} → {after['step']['live']}"
        if before["step"]["live"] is not None
        else ""
    )
    same = "same process" if training["same_process"] else "NOT the same process"
    console.print(
        Text.assemble(
            f"training {document['run']}: ",
            (f"{before['verdict']} before, {after['verdict']} after", "green" if well else "bold red"),
            f"; {same if training['same_process'] is not None else 'no process to compare'}{steps}",
        )
    )
    for words in training["words"]:
        console.print(Text.assemble(("  note: ", "yellow"), remote(words)))


def number(value: float | None) -> str:
    """Return a mean with two decimals; a dash when it is not a number."""
    return "–" if value is None else f"{value:.2f}"


def bounds(interval: list[float] | tuple[float, float] | None) -> str:
    """Return an interval as `[2.10, 4.60]`; words when there is none."""
    return "(no interval)" if interval is None else f"[{interval[0]:.2f}, {interval[1]:.2f}]"


def _tree(name: str) -> str:
    kind, _, budget = name.partition("@")
    return f"in the best tree of {budget} drafted nodes" if kind == "accept_len_ddtree" else ""


def _order(item: tuple[str, Any]) -> tuple[int, int, str]:
    name, _, budget = item[0].partition("@")
    known = [
        "accept_len",
        "tau_loop",
        "accept_len_ddtree",
        "accept_len_top4_oracle",
        "accept_len_top8_oracle",
    ]
    return (known.index(name) if name in known else len(known), int(budget) if budget.isdigit() else 0, name)
