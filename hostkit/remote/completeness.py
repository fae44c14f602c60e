"""Whether a checkpoint on this host is whole, told from its tail and headers (standard library, Python 3.8+).

`examine(path)` looks at one checkpoint, `candidates(root, pattern)` at all that a pattern names. Both read
a few kilobytes a file, write nothing, never wait. What cannot be proven whole is incomplete, with the reason.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import signal
import stat
import struct
import time
from typing import Any, Callable, NamedTuple

SETTLE = 10  # seconds; where no lease tells about writers, a file changed so recently is not whole yet
HEADER_CAP = 100 << 20  # the safetensors library refuses longer headers too
JSON_CAP = 8 << 20  # of a header or an index that is read here, beside the run: about 80 thousand tensors
MAX_GAP = 65600  # between two records: an extra field of padding and a data descriptor
LEGACY = bytes.fromhex("80028a0a6cfc9c46f9206aa85019")
# what a parser may run into where the bytes are garbage: that is an answer, and must not cost the others theirs
GARBLED = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


class Record(NamedTuple):
    """One record of a zip archive, as its central directory has it; `offset` is that of its local header."""

    name: bytes
    offset: int
    size: int
    crc: int
    method: int


class IncompleteError(Exception):
    """The checkpoint is not whole; the message says why."""


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
    except (*GARBLED, struct.error) as error:
        seen["reason"] = "damaged: its headers make no sense (%s)" % type(error).__name__
    return seen


def candidates(
    root: str, pattern: str, marker: str | None = None, limit: int = 64
) -> list[dict[str, object]]:
    """Return `examine` of what `pattern` names below root, with its `step`, ascending: `limit` at most.

    Of more than that, a quarter are the newest, and the others those of the highest steps: an earlier attempt may
    have left more than `limit` above the live one.

    `{step}` in the pattern stands for the number, `*` for anything within one name. Names that only start
    like it (`step_5000.tmp`) do not fit. A root that is not there has none; one that cannot be listed raises.
    """
    found = [(-1, root)]
    for part in pattern.split("/"):
        deeper = []
        for step, folder in found:
            if "{step}" not in part and "*" not in part:
                deeper.append((step, os.path.join(folder, part)))
                continue
            text = re.escape(part).replace(r"\{step\}", "(?P<step>[0-9]{1,18})").replace(r"\*", ".*")
            fits = re.compile(text, re.DOTALL)
            for name in _names(folder, folder == root):
                match = fits.fullmatch(name)
                if match:
                    deeper.append((int(match.groupdict().get("step") or step), os.path.join(folder, name)))
        found = deeper
    there = sorted((step, path) for step, path in found if os.path.lexists(path))
    out = []
    for step, path in _chosen(there, limit):
        seen = examine(path, marker.replace("{step}", str(step)) if marker else None)
        if seen["reason"] != "vanished":  # pruned between the listing and the look
            out.append(dict(seen, step=step))
    return out


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
    """Every file below a folder, by name; a file alone is itself."""
    if not os.path.isdir(path):
        return [path]
    return sorted(os.path.join(at, name) for at, _, names in os.walk(path) for name in names)


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
        seen["format"], files = folder_parts(path)
    elif path.endswith(".index.json"):
        seen["format"], files = "sharded", shards(path)
    else:
        seen["format"], files = sniff(path), [path]
    if marker:
        _marked(path, marker)
    seen["writer"] = False
    for name in files:
        at = "" if name == path else os.path.basename(name) + ": "
        held = writer(name)
        seen["writer"] = held if held is not False else seen["writer"]
        if held:
            raise IncompleteError(at + "open for writing")
        try:
            kind = "dcp" if seen["format"] == "dcp" else sniff(name)
            _CHECKS[kind](name)
        except UnknownError as why:
            unknown = at + str(why)
            if not marker:
                raise IncompleteError(unknown) from None
        except IncompleteError as why:
            raise IncompleteError(at + str(why)) from None
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


def folder_parts(path: str) -> tuple[str, list[str]]:
    """Format of a folder, and the files in it that prove it (all others are not looked into)."""
    names = os.listdir(path)
    full = [os.path.join(path, name) for name in sorted(names)]
    index = [name for name in full if name.endswith(".index.json")]
    single = [os.path.join(path, n) for n in ("model.safetensors", "pytorch_model.bin") if n in names]
    if ".metadata" in names:
        parts = [name for name in full if name.endswith(".distcp")]
        empty = [name for name in [*parts, os.path.join(path, ".metadata")] if not os.path.getsize(name)]
        if empty:
            raise IncompleteError("%s is empty (0 bytes)" % os.path.basename(empty[0]))
        if not parts:
            raise IncompleteError("no .distcp file beside .metadata")
        return "dcp", parts
    if any(name.endswith(".distcp") for name in names):
        raise IncompleteError("no .metadata: torch.distributed.checkpoint writes it last")
    if index:
        return "sharded", shards(index[0])
    if single:
        return "huggingface", single
    if not names:
        raise IncompleteError("an empty folder")
    raise IncompleteError("not understood: a folder with no .metadata, *.index.json or model.safetensors")


def shards(index: str) -> list[str]:
    try:
        if not stat.S_ISREG(os.stat(index).st_mode):  # a pipe would be waited for
            raise TypeError
        wanted = sorted(set(json.loads(read_part(index, 0, JSON_CAP).decode())["weight_map"].values()))
    except GARBLED:
        raise IncompleteError("%s is no whole index" % os.path.basename(index)) from None
    lost = [str(n) for n in wanted if not os.path.isfile(os.path.join(os.path.dirname(index), str(n)))]
    if lost:
        raise IncompleteError("%d of %d shards missing: %s" % (len(lost), len(wanted), ", ".join(lost[:3])))
    return [os.path.join(os.path.dirname(index), str(name)) for name in wanted]


class UnknownError(IncompleteError):
    """The format is none that we know."""


def open_quietly(path: str) -> int:
    """Open for reading without touching the access time where we may; never blocks on a pipe."""
    for flags in (getattr(os, "O_NOATIME", 0), 0):
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
        except PermissionError:
            if not flags:
                raise
    raise AssertionError


def writer(path: str) -> bool | None:
    """Whether anybody has the file open for writing (a read lease is refused then); None: cannot tell."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return None
    old = signal.signal(signal.SIGIO, signal.SIG_IGN)  # sent when a writer comes while we hold the lease
    fd = open_quietly(path)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return False
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    finally:
        os.close(fd)
        signal.signal(signal.SIGIO, old)


def read_part(path: str, offset: int, length: int) -> bytes:
    fd = open_quietly(path)
    try:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # read-ahead would pull megabytes for each look
        return os.pread(fd, length, offset)
    finally:
        os.close(fd)


def sniff(path: str) -> str | None:
    look = os.stat(path)
    if not stat.S_ISREG(look.st_mode):
        raise IncompleteError("not understood: neither a regular file nor a folder")
    if not look.st_size:
        raise IncompleteError("an empty file (0 bytes)")
    head = read_part(path, 0, 512)
    if head[:4] == b"PK\3\4":
        return "torch-zip"
    if head.startswith(LEGACY):
        return "torch-legacy"
    if len(head) > 8 and head[8:9] == b"{" and struct.unpack("<Q", head[:8])[0] <= HEADER_CAP:
        return "safetensors"
    return None


def _not_understood(path: str) -> None:
    head = read_part(path, 0, 512)
    what = "no known format"
    if not head.strip(b"\0"):
        what = "begins with zeros"
    elif head[:1] == b"\x80":
        what = "a bare pickle"
    elif head[257:262] == b"ustar":
        what = "a tar archive"
    raise UnknownError("not understood: " + what)


def directory(path: str) -> list[Record]:
    """Return a zip's central directory, by offset.

    Raises IncompleteError unless the end record stands at the exact end and the directory just before it.
    """
    size = os.stat(path).st_size
    tail = read_part(path, max(0, size - 98), 98)
    if len(tail) < 22 or tail[-22:-18] != b"PK\5\6":
        raise IncompleteError(
            "truncated archive: no end record at its end (cut short, or still being written)"
        )
    disk, _, _, count, length, start, comment = struct.unpack("<4H2LH", tail[-18:])
    end = size - 22
    if tail[-42:-38] == b"PK\6\7":  # zip64: locator, and before it the larger end record
        end = struct.unpack("<Q", tail[-34:-26])[0]
        if tail[-98:-94] != b"PK\6\6" or end != size - 98:
            raise IncompleteError("damaged archive: its zip64 end record is not where it says")
        count, length, start = struct.unpack("<3Q", tail[-66:-42])
    if disk or comment or start + length != end or length > HEADER_CAP:
        raise IncompleteError("damaged archive: its directory does not end at the end record")
    raw = read_part(path, start, length)
    out: list[Record] = []
    at = 0
    while at + 46 <= len(raw) and raw[at : at + 4] == b"PK\1\2":
        method, crc, packed, plain, name_len, extra_len, note_len, offset = struct.unpack(
            "<H4xL2L3H8xL", raw[at + 10 : at + 46]
        )
        name = raw[at + 46 : at + 46 + name_len]
        extra = raw[at + 46 + name_len : at + 46 + name_len + extra_len]
        while len(extra) >= 4:
            kind, width = struct.unpack("<2H", extra[:4])
            if kind == 1:
                wide = list(struct.unpack("<%dQ" % (width // 8), extra[4 : 4 + width // 8 * 8]))
                plain = wide.pop(0) if plain == 0xFFFFFFFF and wide else plain
                packed = wide.pop(0) if packed == 0xFFFFFFFF and wide else packed
                offset = wide.pop(0) if offset == 0xFFFFFFFF and wide else offset
            extra = extra[4 + width :]
        out.append(Record(name, offset, packed, crc, method))
        at += 46 + name_len + extra_len + note_len
    if len(out) != count or at != length:
        raise IncompleteError("damaged archive: its directory lists %d of %d records" % (len(out), count))
    out.sort(key=lambda record: record.offset)
    at = 0
    for name, offset, packed, _, _ in [*out, Record(b"", start, 0, 0, 0)]:
        if not 0 <= offset - at <= MAX_GAP or (at == 0 and offset):
            raise IncompleteError("damaged archive: its records do not fill it (near byte %d)" % at)
        at = offset + 30 + len(name) + packed
    return out


def _zip(path: str) -> None:
    if not any(record.name.endswith(b"/data.pkl") for record in directory(path)):
        raise UnknownError("not understood: a zip archive without data.pkl")


def safetensors_header(path: str) -> dict[str, dict[str, Any]]:
    """Return a safetensors header; raises IncompleteError unless its tensors fill the file exactly."""
    size = os.stat(path).st_size
    length = struct.unpack("<Q", read_part(path, 0, 8))[0]
    if 8 + length > size:
        raise IncompleteError("truncated: its header alone is longer than the file")
    if length > JSON_CAP:
        raise IncompleteError(
            "its header of %d bytes is longer than the %d that are read" % (length, JSON_CAP)
        )
    try:
        header = json.loads(read_part(path, 8, length).decode())
        entries = [entry for key, entry in header.items() if key != "__metadata__"]
        spans = sorted((begin, end) for begin, end in (entry["data_offsets"] for entry in entries))
        if not all(isinstance(edge, int) for span in spans for edge in span):
            raise TypeError
    except GARBLED:
        raise IncompleteError("its header is no safetensors header") from None
    at = 0
    for begin, end in spans:
        if begin != at or end < begin:
            raise IncompleteError("damaged: its tensors do not fill it")
        at = end
    if 8 + length + at != size:
        raise IncompleteError("truncated: its header promises %d bytes, it has %d" % (8 + length + at, size))
    return dict(header)


def _nothing(_path: str) -> None:
    """No cheap proof exists; the absence of a writer has to do."""


_CHECKS: dict[str | None, Callable[[str], object]] = {
    "torch-zip": _zip,
    "safetensors": safetensors_header,
    "torch-legacy": _nothing,
    "dcp": _nothing,
    None: _not_understood,
}


if __name__ == "__main__":
    import sys

    for argument in sys.argv[1:]:
        print(json.dumps(examine(argument)))
