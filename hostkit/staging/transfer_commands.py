"""The words and programs of a copy's two ends: the sender's text for `python3 -`, the receiver's, and the way to each.

What is asked for, whatever its name, stands in a program's text, which goes in on standard input; the words of the
commands are only the route's and the interpreter's.
"""

from __future__ import annotations

import base64
import secrets
import zlib
from typing import TYPE_CHECKING, Any

from hostkit.errors import DataError, HostkitError, UnreachableError
from hostkit.inventory.models import Inventory
from hostkit.staging.rsync_exit import last_lines
from hostkit.transport.programs.run import FINDER, sources_of
from hostkit.transport.route import Route

if TYPE_CHECKING:
    from hostkit.staging.models import StagePlan

_SENDER = (
    FINDER
    + """
request = {request!r}
request['begin'] = BEGIN
from host import priority
import {module}
priority.take()
{module}.answer(request)
"""
)
_RECEIVER = (
    FINDER
    + """
import receiver
receiver.receive_stdin({request!r})
"""
)
# No quote, no newline, no `!`, no backslash: each login shell on the way reads it alike once it is quoted.
LOADER = "import sys,zlib;b=sys.stdin.buffer;exec(zlib.decompress(b.read(int(b.readline()))))"
SILENCE = 120  # seconds without a byte after which a receiver, or rsync, gives up; what has come stays


def sender(module: str, request: dict[str, Any]) -> bytes:
    """Return the program for the source; where to begin is written in place of @BEGIN@ once that is known."""
    text = _SENDER.format(sources=sources_of(module, "host.priority"), module=module, request=request)
    packed = base64.b85encode(zlib.compress(text.encode("utf-8", "surrogatepass"), 9)).decode()
    return (
        "BEGIN = @BEGIN@\nimport base64, zlib\n"
        f"exec(zlib.decompress(base64.b85decode({packed!r})).decode('utf-8', 'surrogatepass'))\n"
    ).encode()


def receiver(request: dict[str, Any]) -> bytes:
    """Return the program for the destination, as it goes in before the stream."""
    text = _RECEIVER.format(sources=sources_of("receiver"), request=request)
    packed = zlib.compress(text.encode("utf-8", "surrogateescape"), 9)
    return b"%d\n%s" % (len(packed), packed)


def marker() -> str:
    """Return a line that no login shell prints."""
    return f"hostkit-stream-{secrets.token_hex(16)}"


def send_argv(route: Route, inventory: Inventory, tools: dict[str, str | None]) -> list[str]:
    """Return the argv that runs the source's interpreter on `python -`, as started on the route's vantage host."""
    return _argv(route, inventory, tools, ["-"])


def receive_argv(route: Route, inventory: Inventory, tools: dict[str, str | None]) -> list[str]:
    """Return the argv that runs the destination's interpreter on a receiver that comes on its standard input."""
    return _argv(route, inventory, tools, ["-c", LOADER])


def _argv(route: Route, inventory: Inventory, tools: dict[str, str | None], more: list[str]) -> list[str]:
    python = [inventory.hosts[route.host].python, "-I", "-S", "-B", *more]
    return route.piped_argv([*low_priority_argv(tools), *python])


def low_priority_argv(tools: dict[str, str | None]) -> list[str]:
    """Return the words before a command that is to run last; by their paths, since csh has a `nice` of its own."""
    nice, ionice = tools.get("nice"), tools.get("ionice")
    return [*([nice, "-n19"] if nice else []), *([ionice, "-c3"] if ionice else [])]


def pull_request(plan: StagePlan) -> tuple[str, dict[str, Any]]:
    """Return the receiver's op and request by which a destination pulls."""
    if plan.via == "rsync":
        return "receive", wanted(plan) | {"argv": list(plan.argv), "names": plan.names}
    line = marker()
    program = base64.b64encode(sending(plan, line)).decode()
    return "pull", wanted(plan) | {"argv": list(plan.argv), "program": program, "marker": line}


def wanted(plan: StagePlan) -> dict[str, Any]:
    """Return what a receiver must know of what comes."""
    if plan.selection is None:
        return {"files": [file.model_dump() for file in plan.files], "format": plan.format}
    return {
        "entry": plan.entry,
        "plan": {key: plan.selection[key] for key in ("size", "pieces", "crc_unrecorded")},
    }


def sending(plan: StagePlan, line: str) -> bytes:
    """Return the program that sends a plan's bytes behind the marker's line."""
    if plan.selection is None:
        files = [file.model_dump() for file in plan.files]
        return sender("send_files", {"base": plan.base, "files": files, "marker": line, "rate": plan.rate})
    request = {
        "path": plan.source_path,
        "keys": plan.selection["keys"],
        **plan.selection["asked"],
        "digest": plan.selection["digest"],
        "marker": line,
        "rate": plan.rate,
        "summed": plan.selection.get("summed", {}),
    }
    return sender("send_subset", request)


def broken(exit: int, said: str, *, source: str, destination: str) -> HostkitError | None:
    """Return the error that a sender which broke off stands for; None when it came to its own end."""
    if exit == 0:
        return None
    message = last_lines(said)
    return UnreachableError(
        f"the stream from {source} broke off ({exit}){': ' + message if message else ''}",
        hop=source,
        where=destination,
        hint="run the same command to resume",
    )


def refusal(trailer: dict[str, Any], where: str) -> HostkitError | None:
    """Return the error that the sender's last word stands for; None when all was sent."""
    code, reason = trailer.get("code"), str(trailer.get("reason"))
    if code is None:
        return None
    if code == "crc":
        hint = "damaged on the source's disk; nothing was staged"
        return DataError(f"{reason}: not what was saved", where=where, hint=hint)
    if code in ("changed", "incomplete", "vanished"):
        what = {"changed": reason, "incomplete": f"source changed: {reason}", "vanished": "source vanished"}[
            code
        ]
        return DataError(what, where=where, hint="nothing was staged; run the command again to choose again")
    return DataError(f"{code}: {reason}", where=where, hint="`--full` copies the whole checkpoint")
