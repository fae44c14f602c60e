"""What an entry point says: one JSON object a line on stdout, and how it ends.

    {"event": "progress", "phase": "features", "done": 3, "of": 20}
    {"event": "smoke", "ok": true}
    {"event": "done", "result": "/path"}
    {"event": "error", "what": "...", "hint": "..."}

Standard library only, Python 3.8: the preflight uses it before anything is known to be installed.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Callable

from refusal import Refused


def emit(event: str, **fields: Any) -> None:
    """Print one event and flush: whoever follows the output sees it at once."""
    print(json.dumps({"event": event, **fields}, ensure_ascii=False), flush=True)


def guarded(work: Callable[[], int]) -> int:
    """Run an entry point's work; a refusal or a missing package is one error event and exit status 1."""
    try:
        return work()
    except Refused as refused:
        emit("error", what=refused.what, hint=refused.hint)
    except ModuleNotFoundError as error:
        emit("error", what=f"Python package {error.name} is missing", hint=f"install it for {sys.executable}")
    except MemoryError:
        emit("error", what="out of memory", hint="preflight.py prints what is needed")
    except KeyboardInterrupt:
        emit("error", what="interrupted", hint="run it again: it goes on where it stopped")
        return 130
    return 1
