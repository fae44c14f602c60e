"""Send a selection to a receiver, framed as `wire` says: the last line is `code` null, or why it ends before its end.

Travels to hosts: standard library only, Python 3.8 or newer. Writes nothing on the source.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any

from subset import stream
from subset.lay_out import lay_out
from subset.layout import SelectError, more_of
from subset.stream import write
from transfer import protocol


def answer(request: dict[str, Any]) -> None:
    """Answer a receiver: marker, blocks, one line of JSON."""
    out = os.dup(1)
    os.dup2(2, 1)
    protocol.widen(out)

    def block(data: Any) -> None:
        write(out, struct.pack("<I", len(data)))
        write(out, data)

    def work() -> dict[str, Any]:
        more = more_of(request)
        layout = lay_out(request["path"], request["keys"], **more)
        if layout.document()["digest"] != request["digest"]:
            raise SelectError("changed", "the source changed after it was looked at")
        return stream.send(layout, request["path"], block, request["begin"], request.get("rate"))

    write(out, ("\n" + request["marker"] + "\n").encode())
    told = stream.guarded(work)
    if told["code"] != "closed":
        write(out, struct.pack("<I", 0) + json.dumps(told).encode() + b"\n")
