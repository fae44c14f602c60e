"""The command by which a destination pulls a selection: the sender's text for `python3 -`, and the way to the source.

What is asked for, whatever its name, stands in the program's text, which goes in on standard input; the words of the
command are only the route's and the interpreter's.
"""

from __future__ import annotations

import base64
import secrets
import zlib
from typing import TYPE_CHECKING, Any

from hostkit.checkpoints.rsync_exit import last_lines
from hostkit.errors import DataError, HostkitError, UnreachableError
from hostkit.inventory.models import Inventory
from hostkit.transport.program import FINDER, sources_of
from hostkit.transport.route import Route

if TYPE_CHECKING:
    from hostkit.checkpoints.plan import StagePlan

_SENDER = (
    FINDER
    + """
request = {request!r}
request['begin'] = BEGIN
import torchzip_stream
torchzip_stream.wire(request)
"""
)


def sender(request: dict[str, Any]) -> bytes:
    """Return the program for the source; the receiver writes the byte to begin at in place of @BEGIN@."""
    text = _SENDER.format(sources=sources_of("torchzip_stream"), request=request)
    packed = base64.b85encode(zlib.compress(text.encode("utf-8", "surrogatepass"), 9)).decode()
    return (
        f"BEGIN = @BEGIN@\nimport base64, zlib\nexec(zlib.decompress(base64.b85decode({packed!r})).decode())\n"
    ).encode()


def marker() -> str:
    """Return a line that no login shell prints."""
    return f"hostkit-stream-{secrets.token_hex(16)}"


def command(route: Route, inventory: Inventory, tools: dict[str, str | None]) -> list[str]:
    """Return the argv that runs the source's interpreter on `python -`, as started on the route's vantage host."""
    python = [inventory.hosts[route.host].python, "-I", "-S", "-B", "-"]
    words = [
        *(["nice", "-n19"] if tools.get("nice") else []),
        *(["ionice", "-c3"] if tools.get("ionice") else []),
    ]
    return route.piped_argv([*words, *python])


def copy_request(plan: StagePlan) -> tuple[str, dict[str, Any]]:
    """Return the receiver's op and request that carry a plan out."""
    if plan.selection is None:
        files = [file.model_dump() for file in plan.files]
        return "receive", {
            "argv": list(plan.argv),
            "names": plan.names,
            "files": files,
            "format": plan.format,
        }
    line = marker()
    asked = {
        "path": plan.source_path,
        "keys": plan.selection["keys"],
        **plan.selection["asked"],
        "digest": plan.selection["digest"],
        "marker": line,
        "rate": plan.rate,
    }
    return "pull", {
        "argv": list(plan.argv),
        "program": base64.b64encode(sender(asked)).decode(),
        "marker": line,
        "entry": plan.entry,
        "plan": {key: plan.selection[key] for key in ("size", "pieces", "crc_unrecorded")},
    }


def broken(exit: int, said: str, *, source: str, destination: str) -> HostkitError | None:
    """Return the error that a sender which broke off stands for; None when it came to its own end."""
    if exit == 0:
        return None
    told = last_lines(said)
    return UnreachableError(
        f"the stream from {source} broke off ({exit}){': ' + told if told else ''}",
        hop=source,
        where=destination,
        hint="the same command again goes on where it stopped",
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
        return DataError(what, where=where, hint="nothing was staged; the same command chooses again")
    return DataError(f"{code}: {reason}", where=where, hint="`--full` copies the whole checkpoint")
