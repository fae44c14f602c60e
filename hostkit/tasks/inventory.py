"""`inventory` checks and shows the inventory, `hosts` how each host is reached. Neither contacts anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hostkit.tasks.command import Outcome, Session, command

if TYPE_CHECKING:
    from rich.console import Console

    from hostkit.inventory.loading import Loaded
    from hostkit.transport.route import Hop, Route


@command(
    "inventory",
    help={
        "check": "only say whether the file is sound",
        "schema": "print the JSON schema of the format, for editors",
    },
    examples=("inventory --check", "inventory --schema --json"),
)
def inventory(session: Session, check: bool = False, schema: bool = False) -> Outcome:
    """Check the inventory file, and show it with every default filled in. No host is contacted."""
    if schema:
        from hostkit.inventory.schema import schema as made
        from hostkit.inventory.schema import schema_text

        return Outcome(made(), render=lambda console: console.out(schema_text(), end=""))

    from hostkit.inventory.loading import check as load_and_check

    loaded = load_and_check(session.inventory_path)
    values = loaded.inventory.model_dump(mode="json", exclude={"defaults"}, exclude_none=True)
    for host in values["hosts"].values():
        if "pct" in host or host.get("local"):
            del host["login"]  # says nothing of what is entered without ssh
    values["archive"] = loaded.inventory.archive_folder
    document = {
        "schema": "hostkit.inventory/1",
        "file": str(loaded.file),
        "notes": list(loaded.notes),
        "inventory": values,
    }
    return Outcome(document, render=lambda console: _show(console, loaded, values, only_check=check))


@command("hosts", examples=("hosts", "hosts --here ct129"))
def hosts(session: Session) -> Outcome:
    """Show how each host is reached, hop by hop, and what runs there. No host is contacted."""
    from hostkit.errors import ConfigError
    from hostkit.transport.route import Route

    rows = []
    for name, host in session.inventory.hosts.items():
        row: dict[str, Any] = {
            "name": name,
            "kind": _kind(host.pct, host.local),
            "machine": host.machine or name,
        }
        try:
            route = Route.to(session.inventory, name, here=session.here)
        except ConfigError as error:
            row |= {"route": None, "words": f"not from here: {error.what}"}
        else:
            row |= {"route": [_hop(hop, index, route) for index, hop in enumerate(route.hops)]}
            row["words"] = ", then ".join(hop["words"] for hop in row["route"])
        row["runs"] = [run for run, entry in session.inventory.runs.items() if entry.host == name]
        row["evals"] = [
            evaluation for evaluation, entry in session.inventory.evals.items() if entry.host == name
        ]
        rows.append(row)
    document = {
        "schema": "hostkit.hosts/1",
        "file": str(session.inventory_path),
        "here": session.here,
        "hosts": rows,
    }
    return Outcome(document, render=lambda console: _table(console, rows))


TASKS = [inventory, hosts]


def _kind(pct: int | None, local: bool | None) -> str:
    return "local" if local else "ssh" if pct is None else "pct"


def _hop(hop: Hop, index: int, route: Route) -> dict[str, str]:
    """Return one hop as a document: what is done, and where."""
    host = hop.host
    before = route.hops[index - 1].name if index else "this machine"
    if hop.kind == "local":
        words = "this machine"
    elif hop.kind == "pct":
        words = f"pct exec {host.pct} on {before}"
    else:
        name = _alias(hop) if host.alias else str(host.address)
        name = f"{host.user}@{name}" if host.user else name
        name += f" port {host.port}" if host.port else ""
        inner = hop in route.wrapped() and index
        tunnel = bool(index) and not inner and route.hops[index - 1].kind != "local"
        words = f"ssh {name}" + (
            f" on {before}" if inner else f" by a tunnel through {before}" if tunnel else ""
        )
    if host.sudo:
        words += f", as {host.sudo} by sudo"
    return {"name": hop.name, "kind": hop.kind, "words": words}


def _alias(hop: Hop) -> str:
    """Return an alias with what this machine's OpenSSH makes of it."""
    from hostkit.errors import HostkitError
    from hostkit.transport.ssh.resolve import resolve

    try:
        end = resolve(hop)
    except HostkitError as error:
        return f"{hop.host.alias} (your ssh config: {error.what})"
    through = f" through {','.join(end.jumps)}" if end.jumps else ""
    return f"{hop.host.alias} (your ssh config: {end.user}@{end.address} port {end.port}{through})"


def _table(console: Console, rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("host", "kind", "how it is reached", "what is there"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        there = [f"run {name}" for name in row["runs"]] + [f"eval {name}" for name in row["evals"]]
        table.add_row(row["name"], row["kind"], row["words"], ", ".join(there))
    console.print(table)


def _show(console: Console, loaded: Loaded, values: dict[str, Any], *, only_check: bool) -> None:
    if not only_check:
        import yaml

        console.out(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100), end="")
    found = loaded.inventory
    count = ", ".join(
        f"{len(entries)} {word if len(entries) == 1 else word + 's'}"
        for word, entries in (("host", found.hosts), ("run", found.runs), ("eval", found.evals))
    )
    console.print(f"{'# ' if not only_check else ''}{loaded.file}: sound ({count})", soft_wrap=True)
    for note in loaded.notes:
        console.print(f"{'# ' if not only_check else ''}note: {note}", soft_wrap=True)
