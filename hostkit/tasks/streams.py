"""The standard streams of a command, such that none of them can end it: closed, full, or their reader gone."""

from __future__ import annotations

import io
import os
import select
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["harden_streams", "reader_gone", "silence_stdout"]


class _Unheard(io.FileIO):
    """Standard error as it is for progress: where nobody can hear it any more, the work goes on."""

    def write(self, data: ReadableBuffer, /) -> int:
        size = memoryview(data).nbytes
        try:
            return super().write(data) or size
        except OSError:  # a full disk, a reader or a terminal that has gone
            return size


def harden_streams() -> None:
    """Open closed standard streams on /dev/null; let no character be refused, nor a word on stderr end a command."""
    for number, (stream, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, stream) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, stream, os.fdopen(number, mode, encoding="utf-8", closefd=False))
        elif mode == "w" and hasattr(getattr(sys, stream), "reconfigure"):
            getattr(sys, stream).reconfigure(errors="backslashreplace")
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        raw = _Unheard(2, "w", closefd=False)
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=sys.stderr.encoding,
            errors="backslashreplace",
            write_through=True,
            line_buffering=True,
        )


def reader_gone() -> bool:
    """Whether what reads our standard output has gone."""
    poll = select.poll()
    poll.register(1, select.POLLOUT)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def silence_stdout() -> None:
    """Let what is still written to stdout go nowhere."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, 1)
    os.close(descriptor)
