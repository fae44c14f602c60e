"""Check, inspect and copy checkpoints by hand, each with one JSON document on one line.

`python checkpoint_cli.py check FILE`, `inspect FILE`, `plan FILE --keys drafter,step`, `copy FILE OUT --keys …`, and
`stream FILE --keys … --from N` (its bytes on stdout, the JSON on stderr). `--keys` are exactly what is taken; left
out, all that holds tensors, and small metadata as plain data. The exit status is 0 when `code` is null.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from typing import Any, NoReturn

import checkpoint_reader
from subset import local_copy, stream
from subset.layout import SelectError


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


def _parsed(argv: list[str], about: str) -> argparse.Namespace:
    parser = _Parser(
        prog="checkpoint_cli.py",
        description="%s Only copy writes: OUT." % about.replace(" Writes nothing.", ""),
    )
    parser.add_argument(
        "op",
        choices=["look", "check", "inspect", "plan", "stream", "copy"],
        help="look: is it whole, by its frame; check: that, and by what its pickle or header says of each tensor; "
        "inspect: what it holds; plan: the smaller file of --keys, laid out; stream: its bytes on stdout, JSON on "
        "stderr; copy: written as OUT",
    )
    parser.add_argument("file")
    parser.add_argument("out", nargs="?", help="of copy alone")
    parser.add_argument("--keys", type=_list, help="names of what is taken, by commas")
    parser.add_argument("--strip", type=_list, default=[], help="prefixes such as net., by commas")
    parser.add_argument("--from", dest="begin", type=int, default=0, help="of stream: the first byte")
    parser.add_argument("--rate", type=_rate, help="bytes a second at most")
    asked = parser.parse_args(argv)
    if (asked.out is None) == (asked.op == "copy"):
        parser.error("copy FILE OUT: where to?" if asked.op == "copy" else "only copy has an OUT")
    if asked.begin and asked.op != "stream":
        parser.error("only stream has --from")
    return asked


def _answer(asked: argparse.Namespace) -> dict[str, Any]:
    path, keys, exactly = asked.file, asked.keys, asked.keys is not None
    more = {"strip": asked.strip}
    if asked.op == "copy":
        return local_copy.copy(path, asked.out, keys, exactly, asked.rate, **more)
    if asked.op == "stream":
        return stream.stream(path, keys, exactly, asked.begin, asked.rate, **more)
    if asked.op == "plan":
        return stream.plan(path, keys, exactly, **more)
    return checkpoint_reader.serve({"op": asked.op, "path": path})


def main(argv: list[str]) -> int:
    """Do what the words of a command line ask for, print one line of JSON, and return the exit status.

    0: `code` is null; 64: called wrongly; 128 and the number of a signal that came; 1: all else.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _interrupt)
    missing = os.open(os.devnull, os.O_RDWR)
    while missing < 3:  # else a file that we open would stand where the output goes
        missing = os.dup(missing)
    os.close(missing)
    try:
        asked = _parsed(argv, str(checkpoint_reader.__doc__).split("\n\n", maxsplit=1)[0])
        reply = _answer(asked)
        status = 0 if reply.get("complete", True) and not reply.get("code") else 1
    except _UsageError as why:
        reply, status = {"code": "usage", "reason": str(why)}, 64
    except _Interrupted as why:
        reply, status = {"code": "interrupted", "reason": "signal %d came" % why.number}, 128 + why.number
    try:
        line = (json.dumps(reply) + "\n").encode()
        stream.write(2 if argv[:1] == ["stream"] else 1, line)
    except (BrokenPipeError, SelectError):
        return status or 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
