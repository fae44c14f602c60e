"""Say what some files of one folder are: SHA-256 and size of each, and their text when asked. Reads only.

Travels to hosts: standard library only, Python 3.8 or newer.
request: {"folder": "/root/eval/harness", "names": ["a.py"], "text_limit": 0}
reply:   {"exists": true, "files": {"a.py": {"sha256": "...", "size": 12, "text": null}}, "others": ["b.py"]}
"""

import hashlib
import json
import os
import stat
import sys
from typing import Any, Dict, List, Optional, Set


def describe(path: str, text_limit: int) -> Optional[Dict[str, Any]]:
    """Return what the file at `path` is; None when there is none; a reason when it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        return {"sha256": None, "size": None, "text": None, "reason": error.strerror}
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return {"sha256": None, "size": None, "text": None, "reason": "not a regular file"}
        digest, size, head = hashlib.sha256(), 0, b""
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
            size += len(block)
            if len(head) < text_limit:
                head += block[: text_limit - len(head)]
    text = head.decode("utf-8", "replace") if text_limit and size <= text_limit else None
    return {"sha256": digest.hexdigest(), "size": size, "text": text}


def serve(request: Dict[str, Any]) -> Dict[str, Any]:
    """Answer one request."""
    folder = request["folder"]
    names = list(request["names"])
    limit = int(request.get("text_limit", 0))
    files = {name: describe(os.path.join(folder, name), limit) for name in names}
    return {"exists": os.path.isdir(folder), "files": files, "others": _others(folder, set(names))}


def _others(folder: str, names: Set[str]) -> List[str]:
    """Return the files below the folder that are none of `names`, at most 500; bytecode is left out."""
    others: List[str] = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        below = [os.path.relpath(os.path.join(place, name), folder) for name in sorted(files)]
        others += [name for name in below if name not in names]
        if len(others) > 500:
            break
    return others[:500]


if __name__ == "__main__":
    print(json.dumps(serve(json.load(sys.stdin))))
