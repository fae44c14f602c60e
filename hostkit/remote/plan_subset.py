"""Lay out the smaller checkpoint of only the wanted keys, on the host where it is written. Writes nothing.

Travels to hosts: standard library only, Python 3.8 or newer. request: {"path", "keys": [...] or null, and what
`subset.layout.Selection` takes}; reply: the layout's document, or `code` and `reason` why there is none.
"""

from __future__ import annotations

from typing import Any

from host import priority
from subset import stream
from subset.layout import more_of


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Answer one request."""
    priority.take()  # what has no CRC is read and summed for it: gigabytes, beside the run
    return stream.plan(request["path"], request.get("keys"), **more_of(request))
