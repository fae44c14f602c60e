"""What an entry point says: one JSON object a line on stdout, and how it ends.

    {"event": "progress", "phase": "features", "done": 3, "of": 20}
    {"event": "smoke", "ok": true}
    {"event": "done", "result": "/path"}
    {"event": "error", "what": "...", "hint": "..."}

Exit status: 0 done; 1 refused or failed, as the last event says; 2 wrong usage; 70 a fault of the program, its
traceback on stderr; 130 interrupted. When whoever reads the output goes away, the work goes on without a word:
its results are in files.

Standard library only, Python 3.8: the preflight uses it before anything is known to be installed.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from contextlib import suppress
from typing import Any, Callable

from dflash.errors import Refused


def emit(event: str, **fields: Any) -> None:
    """Print one event and flush: whoever follows the output sees it at once."""
    say(json.dumps({"event": event, **fields}, ensure_ascii=False))


def say(line: str) -> None:
    """Print a line of output, whatever the terminal's encoding; nobody reading it is no fault."""
    try:
        try:
            print(line, flush=True)
        except UnicodeEncodeError:
            print(line.encode("ascii", "backslashreplace").decode(), flush=True)
    except BrokenPipeError:
        _turn_off(sys.stdout)
    except (OSError, ValueError):  # a log on a full disk; closed from the start, as daemons have it
        pass


def guarded(work: Callable[[], int]) -> int:
    """Run an entry point's work; whatever ends it is one error event and an exit status."""
    status = _guarded(work)
    try:
        if sys.stdout is not None:  # closed from the start
            sys.stdout.flush()
    except (OSError, ValueError):
        _turn_off(sys.stdout)  # or Python would end with a status of its own, as it flushes once more
    return status


def _guarded(work: Callable[[], int]) -> int:
    try:
        return work()
    except Refused as refused:
        emit("error", what=refused.what, hint=refused.hint)
    except ModuleNotFoundError as error:
        emit("error", what=f"Python package {error.name} is missing", hint=f"install it for {sys.executable}")
    except ImportError as error:
        emit("error", what=f"a Python package does not load: {error}", hint="is its installation whole?")
    except MemoryError:
        emit("error", what="out of memory", hint="preflight.py prints what is needed")
    except KeyboardInterrupt:
        emit("error", what="interrupted", hint="run it again: it goes on where it stopped")
        return 130
    except OSError as error:
        emit("error", what=os_words(error), hint=HINTS.get(error.errno or 0))
    except Exception as error:  # noqa: BLE001 - the reader of events must hear of it; people get the traceback
        emit(
            "error",
            what=f"{type(error).__name__}: {error}",
            hint="a fault of this program: traceback on stderr",
        )
        traceback.print_exc()
        return 70
    return 1


HINTS = {
    errno.ENOSPC: "free space there, or take another place; what was whole before is whole still",
    errno.EDQUOT: "the quota there is used up; what was whole before is whole still",
    errno.EFBIG: "a limit on file sizes (ulimit -f) is in the way",
    errno.EACCES: "permissions, or another place",
    errno.EPERM: "permissions, or another place",
    errno.ENOENT: "is the path right?",
    errno.EROFS: "another place: this one is read-only",
}


def os_words(error: OSError) -> str:
    """What the system refused, and where."""
    said = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {said}" if error.filename else said


def _turn_off(stream: Any) -> None:
    """Send the rest of a stream nowhere: Python flushes it once more at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
