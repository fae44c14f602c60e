"""Read checkpoints on the host where they are written: whole or not, and what they hold. Writes nothing.

Travels to hosts: standard library only, Python 3.8 or newer. Also by itself, each with one JSON document on one line:
`python torchzip.py check FILE`, `inspect FILE`, `plan FILE --keys drafter,step`, `copy FILE OUT --keys …`, and
`stream FILE --keys … --from N` (its bytes on stdout, the JSON on stderr). `--keys` are exactly what is taken; left
out, all that holds tensors, and small metadata as plain data. The exit status is 0 when `code` is null.

request: {"op": "look"|"check"|"inspect", "path": "/…", "marker": null, "weights": ["drafter"] | null}
reply:   what `completeness.examine` says, and `code`: null, or why not in one word; for `inspect` also
         files, top, tensors, metadata, globals, tools. {"op": "list", "path": root, "pattern"} lists a run's,
         {"op": "summaries", "paths"} says of each the step inside and the size of each top-level key.
         A foreign layout: "step" (where the step stands, as trainer.global_step), "strip" (prefixes in names), and
         for summaries "names" (whose bytes are told)
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import signal
import sys
from typing import Any, Callable, Iterable, NoReturn

import completeness
import completeness_formats
import torchzip_archive
import torchzip_inspect
import torchzip_stream
from completeness import IncompleteError
from completeness_formats import GARBLED
from torchzip_archive import Archive
from torchzip_inspect import Named
from torchzip_pickle import PickleError
from torchzip_select import SelectError, more_of

NEEDS = (
    "completeness",
    "completeness_formats",
    "torchzip_archive",
    "torchzip_inspect",
    "torchzip_pickle",
    "torchzip_select",
    "torchzip_stream",
)

DEEP = 8  # candidates of the highest steps, among which the newest whole one is looked for


def check(path: str, marker: str | None = None) -> dict[str, Any]:
    """Return what `examine` says, after looking at every record's header and every storage's size too."""
    seen: dict[str, Any] = dict(completeness.examine(path, marker), code=None)
    if not seen["complete"]:
        return dict(seen, code="incomplete")
    return _guarded(seen, lambda: _deep(path, seen["format"]))


def candidates(root: str, pattern: str, marker: str | None = None) -> list[dict[str, Any]]:
    """Return what `completeness.candidates` does; the highest steps looked at as `check` does."""
    found: list[dict[str, Any]] = completeness.candidates(root, pattern, marker)
    for one in found[-DEEP:]:
        if one["complete"]:
            said = _guarded({}, functools.partial(_deep, one["path"], one["format"]))
            if not said.get(
                "complete", True
            ):  # whole, but of a layout that nothing is taken out of, is whole
                one.update(complete=False, reason=said["reason"])
    return found


def _deep(path: str, form: str) -> dict[str, Any]:
    if form == "torch-zip":
        with Archive(path) as archive:
            archive.tile()
            torchzip_archive.tree(archive)
    elif form == "dcp":
        completeness_formats.distributed(path)
    elif form == "torch-legacy":
        torchzip_archive.legacy(path)
        return {"reason": None}  # its storages fill it exactly: that is the proof
    return {}


def _guarded(seen: dict[str, Any], look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Add what a look finds; or say in one word and one sentence why it found nothing."""
    try:
        return dict(seen, code=None, **look())
    except IncompleteError as why:
        return dict(seen, complete=False, reason=str(why), code="incomplete")
    except PickleError as why:
        return dict(seen, reason=str(why), code="layout")
    except GARBLED as why:
        told = (type(why).__name__, str(why)[:200])
        return dict(seen, reason="it makes no sense, or is nested too deep (%s: %s)" % told, code="layout")
    except OSError as error:
        gone = isinstance(error, FileNotFoundError)
        return dict(
            seen,
            complete=False,
            reason="vanished" if gone else "not readable: %s" % error.strerror,
            code="vanished" if gone else "unreadable",
        )


def inspect(
    path: str,
    marker: str | None = None,
    weights: Iterable[str] | None = None,
    named: Named | None = None,
) -> dict[str, Any]:
    """Return `check`, and what the checkpoint holds. `weights`: tell the tensors of these top-level keys only."""
    seen = check(path, marker)
    seen["files"] = torchzip_inspect.files(path)
    seen["tools"] = torchzip_inspect.tools()
    if seen["code"] is not None:
        return seen
    wanted = None if weights is None else set(weights)
    named = named or Named({})
    return _guarded(seen, lambda: torchzip_inspect.contents(path, str(seen["format"]), wanted, named))


def summary(path: str, named: Named) -> dict[str, Any]:
    """Return the step inside, the bytes of what is named, and the size of each top-level key, without the tensors."""
    seen = inspect(path, None, [], named)
    told = {key: seen.get(key) for key in ("path", "code", "step", "named")}
    return dict(told, top=seen.get("top", []))


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Answer one request."""
    path, marker = request.get("path", ""), request.get("marker")
    if request["op"] == "list":
        return {"candidates": candidates(path, request["pattern"], marker)}
    if request["op"] == "summaries":
        return {"summaries": [summary(one, Named(request)) for one in request["paths"]]}
    if request["op"] == "plan":
        return torchzip_stream.plan(path, request.get("keys"), **more_of(request))
    if request["op"] == "look":
        return dict(completeness.examine(path, marker))
    if request["op"] == "check":
        return check(path, marker)
    return inspect(path, marker, request.get("weights"), Named(request))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _UsageError(message)


class _UsageError(Exception):
    pass


class _Interrupted(BaseException):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _interrupt(number: int, _frame: object) -> NoReturn:
    raise _Interrupted(number)


def _list(text: str) -> list[str]:
    return text.split(",")


def _rate(text: str) -> int:
    if int(text) <= 0:
        raise ValueError
    return int(text)


def _parsed(argv: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="torchzip.py", description=str(__doc__).split("\n\n")[0])
    parser.add_argument("op", choices=["look", "check", "inspect", "plan", "stream", "copy"])
    parser.add_argument("file")
    parser.add_argument("out", nargs="?", help="of copy")
    parser.add_argument("--keys", type=_list, help="names of what is taken, by commas")
    parser.add_argument("--strip", type=_list, default=[], help="prefixes such as net., by commas")
    parser.add_argument("--trim", action="store_true", help="of each storage only what the tensors view")
    parser.add_argument("--from", dest="begin", type=int, default=0, help="of stream: the first byte")
    parser.add_argument("--rate", type=_rate, help="bytes a second at most")
    asked = parser.parse_args(argv)
    if (asked.out is None) == (asked.op == "copy"):
        parser.error("copy FILE OUT: where to?" if asked.op == "copy" else "only copy has an OUT")
    if asked.begin and asked.op != "stream":
        parser.error("only stream has --from")
    return asked


def _answer(asked: argparse.Namespace) -> dict[str, Any]:
    what, more = (asked.file, asked.keys, asked.keys is not None), {"strip": asked.strip, "trim": asked.trim}
    path, keys, exactly = what
    if asked.op == "copy":
        import torchzip_copy

        return torchzip_copy.copy(path, asked.out, keys, exactly, asked.rate, **more)
    if asked.op == "stream":
        return torchzip_stream.stream(path, keys, exactly, asked.begin, asked.rate, **more)
    if asked.op == "plan":
        return torchzip_stream.plan(path, keys, exactly, **more)
    return serve({"op": asked.op, "path": path})


def main(argv: list[str]) -> int:
    """Run from a command line: one JSON document on one line, and a status that is 0 when `code` is null.

    64: called wrongly; 128 and the number of a signal that came; 1: all else.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _interrupt)
    missing = os.open(os.devnull, os.O_RDWR)
    while missing < 3:  # else a file that we open would stand where the output goes
        missing = os.dup(missing)
    os.close(missing)
    try:
        asked = _parsed(argv)
        reply = _answer(asked)
        status = 0 if reply.get("complete", True) and not reply.get("code") else 1
    except _UsageError as why:
        reply, status = {"code": "usage", "reason": str(why)}, 64
    except _Interrupted as why:
        reply, status = {"code": "interrupted", "reason": "signal %d came" % why.number}, 128 + why.number
    try:
        line = (json.dumps(reply) + "\n").encode()
        torchzip_stream.write(2 if argv[:1] == ["stream"] else 1, line)
    except (BrokenPipeError, SelectError):
        return status or 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
