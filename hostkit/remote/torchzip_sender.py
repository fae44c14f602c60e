"""Send a selection to a receiver, framed as `wire` says: the last line is `code` null, or why it ends before its end.

Travels to hosts: standard library only, Python 3.8 or newer. Writes nothing on the source.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any

import torchzip_select
import torchzip_stream
import wire
from torchzip_select import SelectError
from torchzip_stream import write

NEEDS = ("torchzip_select", "torchzip_stream", "wire")


def answer(request: dict[str, Any]) -> None:
    """Answer a receiver: marker, blocks, one line of JSON."""
    out = os.dup(1)
    os.dup2(2, 1)
    wire.widen(out)

    def block(data: Any) -> None:
        write(out, struct.pack("<I", len(data)))
        write(out, data)

    def work() -> dict[str, Any]:
        more = torchzip_select.more_of(request)
        layout = torchzip_select.lay_out(request["path"], request["keys"], **more)
        if layout.document()["digest"] != request["digest"]:
            raise SelectError("changed", "the source changed after it was looked at")
        return torchzip_stream.send(layout, request["path"], block, request["begin"], request.get("rate"))

    write(out, ("\n" + request["marker"] + "\n").encode())
    told = torchzip_stream.guarded(work)
    if told["code"] != "closed":
        write(out, struct.pack("<I", 0) + json.dumps(told).encode() + b"\n")
