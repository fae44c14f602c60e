"""Whether a checkpoint on this host is whole, told from its tail and headers (standard library, Python 3.8+).

`examine(path)` looks at one checkpoint, `candidates(root, pattern)` at all that a pattern names. Both read
a few kilobytes a file, write nothing, never wait. What cannot be proven whole is incomplete, with the reason.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import stat
import time
from typing import Callable

from checkpoint import folders, formats
from checkpoint.folders import temporary
from checkpoint.formats import (
    GARBLED,
    IncompleteError,
    Record,
    UnknownError,
    directory,
    end_record,
    open_quietly,
    open_regular,
    read_part,
    safetensors_header,
    sniff,
)

__all__ = [
    "IncompleteError",
    "Record",
    "UnknownError",
    "candidates",
    "directory",
    "end_record",
    "examine",
    "open_quietly",
    "open_regular",
    "payload",
    "read_part",
    "safetensors_header",
    "sniff",
]

SETTLE = 10  # seconds; where no lease tells about writers, a file changed so recently is not whole yet
METADATA_CAP = (
    1 << 20
)  # of a distributed checkpoint, in a look at many; `checkpoint_reader.check` reads larger ones
WRITTEN = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".distcp", ".json", ".npz", ".pkl")


def examine(path: str, marker: str | None = None) -> dict[str, object]:
    """Return the facts and the answer for one checkpoint (a file or a folder), whatever its bytes are.

    `reason` says why it is not complete; beside a complete one it is a reservation, or None. `writer`:
    whether somebody has it open for writing; None where the file system or our rights cannot tell.
    """
    seen: dict[str, object] = {
        "path": path,
        "format": None,
        "complete": False,
        "reason": None,
        "writer": None,
    }
    seen.update(dict.fromkeys(("size", "mtime_ns", "inode", "dev")))
    try:
        first = _facts(path)
        seen.update(first)
        seen["reason"] = _judge(path, marker, seen)
        if _facts(path) != first:
            raise IncompleteError("changed while it was looked at (still growing?)")
        seen["complete"] = True
    except IncompleteError as why:
        seen["reason"] = str(why)
    except OSError as error:
        gone = error.errno in (errno.ENOENT, errno.ELOOP)
        seen["reason"] = _missing(path) if gone else "not readable: %s" % error.strerror
    except GARBLED as error:
        seen["reason"] = "damaged: its headers make no sense (%s)" % type(error).__name__
    return seen


def candidates(
    root: str, pattern: str, marker: str | None = None, limit: int = 64
) -> list[dict[str, object]]:
    """Return `examine` of what `pattern` names below root, with its `step`, ascending: `limit` at most.

    Of more than that, a quarter are the newest, and the others those of the highest steps: an earlier attempt may
    have left more than `limit` above the live one.

    `{step}` in the pattern stands for the number, the same wherever it stands; `*` for anything within one name but
    what looks temporary or hidden. Names that only start like the pattern (`step_5000.tmp`) do not fit. A root
    that is not there has none; one that cannot be listed raises.
    """
    found = [(-1, root)]
    for part in pattern.split("/"):
        deeper = []
        fits = _fitting(part)
        for step, folder in found:
            if fits is None:
                deeper.append((step, os.path.join(folder, part)))
                continue
            for name in _names(folder, folder == root):
                match = fits.fullmatch(name)
                if match is None or ("*" in part and temporary(name, part)):
                    continue
                own = int(match.groupdict().get("step", step))
                if step in (-1, own):
                    deeper.append((own, os.path.join(folder, name)))
        found = deeper
    there = sorted((step, path) for step, path in found if os.path.lexists(path))
    out = []
    for step, path in _chosen(there, limit):
        seen = examine(path, marker.replace("{step}", str(step)) if marker else None)
        if seen["reason"] != "vanished":  # pruned between the listing and the look
            out.append(dict(seen, step=step))
    return out


def _fitting(part: str) -> re.Pattern[str] | None:
    if "{step}" not in part and "*" not in part:
        return None
    text = re.escape(part).replace(r"\{step\}", "(?P<step>[0-9]{1,18})", 1)
    return re.compile(text.replace(r"\{step\}", "(?P=step)").replace(r"\*", ".*"), re.DOTALL)


def _chosen(there: list[tuple[int, str]], limit: int) -> list[tuple[int, str]]:
    if len(there) <= limit:
        return there
    newest = sorted(there, key=lambda one: _changed(one[1]))[len(there) - limit // 4 :]
    highest = [one for one in there if one not in newest]
    return sorted(newest + highest[len(there) - limit :])


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _names(folder: str, must: bool) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        if must:
            raise
        return []


def _missing(path: str) -> str:
    if not os.path.lexists(path):
        return "vanished"
    if os.path.exists(path):
        return "a file in it has vanished, or is a link to nothing"
    return "a link to nothing: %s" % os.readlink(path)


def payload(path: str) -> list[str]:
    """Every file below a folder, by name; a file alone is itself. A folder in it that cannot be read raises."""
    if not os.path.isdir(path):
        return [path]
    return sorted(os.path.join(at, name) for at, _, names in os.walk(path, onerror=_raise) for name in names)


def _raise(error: OSError) -> None:
    if error.errno != errno.ENOENT:
        raise error


def _facts(path: str) -> dict[str, object]:
    """Size, newest mtime, inode, device: what must be equal in two looks."""
    own = os.stat(path)
    looks = [own]
    if stat.S_ISDIR(own.st_mode):
        looks = [os.stat(name) for name in payload(path) if os.path.exists(name)]
    return {
        "size": sum(look.st_size for look in looks),
        "mtime_ns": max([look.st_mtime_ns for look in looks] or [own.st_mtime_ns]),
        "inode": own.st_ino,
        "dev": own.st_dev,
    }


def _judge(path: str, marker: str | None, seen: dict[str, object]) -> str | None:
    """Fill in format and writer; return a reservation or None. Raises IncompleteError."""
    unknown = None
    if os.path.isdir(path):
        seen["format"], files = folders.folder_parts(path)
    elif path.endswith(".index.json"):
        seen["format"], files = "sharded", folders.shards(path)
    else:
        seen["format"], files = sniff(path), [path]
    if marker:
        _marked(path, marker)
    seen["writer"] = False
    for name in files:
        at = "" if name == path else os.path.basename(name) + ": "
        try:
            kind = "dcp" if seen["format"] == "dcp" else sniff(name)
            held = writer(name)
            seen["writer"] = held if held is not False else seen["writer"]
            if held:
                raise IncompleteError("open for writing")
            _CHECKS[kind](name)
        except UnknownError as why:
            unknown = at + str(why)
            if not marker:
                raise IncompleteError(unknown) from None
        except IncompleteError as why:
            raise IncompleteError(at + str(why)) from None
    for name in payload(path) if os.path.isdir(path) else []:
        if name not in files and name.endswith(WRITTEN) and os.path.isfile(name) and writer(name):
            raise IncompleteError("%s: open for writing" % os.path.relpath(name, path))
    if seen["format"] == "dcp":
        folders.distributed(path, METADATA_CAP)
    age = time.time() - int(str(seen["mtime_ns"])) / 1e9
    if seen["writer"] is None and not marker and abs(age) < SETTLE:
        raise IncompleteError(
            "changed %.0f s ago, and whether a writer is still at it cannot be told here" % age
        )
    if unknown:
        return "taken as whole for its marker alone; " + unknown
    if seen["format"] == "torch-legacy":
        return "legacy torch file: it has no end mark, so that only loading proves it"
    return None


def _marked(path: str, marker: str) -> None:
    beside = os.path.join(os.path.dirname(path), marker)
    inside = os.path.join(path, marker)
    there = inside if os.path.isdir(path) and os.path.exists(inside) else beside
    try:
        made = os.stat(there).st_mtime_ns
    except FileNotFoundError:
        raise IncompleteError("no marker %s (still being written?)" % marker) from None
    for name in payload(path):
        if name != there and os.stat(name).st_mtime_ns > made:
            late = os.path.basename(name)
            raise IncompleteError("%s is newer than the marker %s (being rewritten?)" % (late, marker))


def writer(path: str) -> bool | None:
    """Whether anybody has the file open for writing (a read lease is refused then); None: cannot tell."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return None
    old = signal.signal(signal.SIGIO, signal.SIG_IGN)  # sent when a writer comes while we hold the lease
    fd = open_regular(path)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return False
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    finally:
        os.close(fd)
        signal.signal(signal.SIGIO, old)


def _nothing(_path: str) -> None:
    """No cheap proof exists; the absence of a writer has to do."""


_CHECKS: dict[str | None, Callable[[str], object]] = {
    "torch-zip": formats.torch_zip,
    "safetensors": safetensors_header,
    "torch-legacy": _nothing,
    "dcp": _nothing,
    None: formats.not_understood,
}
