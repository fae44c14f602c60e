"""What proves a file of each format whole, told from its tail and headers (standard library, Python 3.8+).

Reads a few kilobytes a file, opens nothing but regular files, believes no length before it is held against the size.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import struct
from typing import Any, NamedTuple

HEADER_CAP = 100 << 20  # the safetensors library refuses longer headers too
JSON_CAP = 8 << 20  # of a header or an index that is read here, beside the run: about 80 thousand tensors
DIRECTORY_CAP = 16 << 20  # of a zip's directory: about 170 thousand records
MAX_GAP = 65600  # between two records: an extra field of padding and a data descriptor
MAX_DIGITS = 20
LEGACY = bytes.fromhex("80028a0a6cfc9c46f9206aa85019")
# what a parser may run into where the bytes are garbage: that is an answer, and must not cost the others theirs
GARBLED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)
WIDTHS = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2,
    "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1, "C64": 8,
}  # fmt: skip
OTHERS = (
    (0, b"\x80\2", "a bare pickle"),
    (0, b"\x80\3", "a bare pickle"),
    (0, b"\x80\4", "a bare pickle"),
    (0, b"\x80\5", "a bare pickle"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x1f\x8b", "a gzip file"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd file"),
    (0, b"\xfd7zXZ\0", "an xz file"),
    (0, b"BZh", "a bzip2 file"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"GGUF", "a GGUF file"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (0, b"\x93NUMPY", "a numpy array"),
    (0, b"PK\5\6", "an empty zip archive"),
)
POINTER = b"version https://git-lfs"


class Record(NamedTuple):
    """One record of a zip archive, as its central directory has it; `offset` is that of its local header."""

    name: bytes
    offset: int
    size: int
    crc: int
    method: int


class IncompleteError(Exception):
    """The checkpoint is not whole; the message says why."""


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


def open_regular(path: str) -> int:
    """Open a regular file quietly. A pipe is not opened: its writer would go on, and be killed by our leaving."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise IncompleteError("not understood: neither a regular file nor a folder")
    descriptor = open_quietly(path)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ESTALE, "replaced while it was looked at", path)
    return descriptor


def read_part(path: str, offset: int, length: int) -> bytes:
    """Return a piece of a regular file."""
    descriptor = open_regular(path)
    try:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # read-ahead would pull megabytes each
        return os.pread(descriptor, length, offset)
    finally:
        os.close(descriptor)


def sniff(path: str) -> str | None:
    """Return a file's format by its first bytes; None when it is none that we know."""
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


def not_understood(path: str) -> None:
    """Raise UnknownError with the name of what the file is."""
    head = read_part(path, 0, 512)
    if not head.strip(b"\0"):
        raise IncompleteError("not understood: begins with zeros")  # whatever marker stands beside it
    if head.startswith(POINTER):
        raise IncompleteError("not understood: a pointer of Git LFS, not the file itself")
    for at, mark, name in OTHERS:
        if head[at : at + len(mark)] == mark:
            raise UnknownError("not understood: " + name)
    if head[8:9] == b"{":
        length = struct.unpack("<Q", head[:8])[0]
        raise UnknownError("not understood: like safetensors, with a header of %d bytes" % length)
    raise UnknownError("not understood: no known format")


def parsed(text: bytes) -> Any:
    """Return what JSON says. A key that stands twice is a ValueError, and so is a number that takes long to read."""
    return json.loads(text.decode("utf-8"), object_pairs_hook=_once, parse_int=_short)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands in it twice")
    return made


def _short(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError("a number has too many digits")
    return int(digits)


def end_record(path: str) -> tuple[int, int, int]:
    """Return how many records a zip's directory has, its length, and where it begins.

    Raises IncompleteError unless the end record stands at the exact end, and the directory just before it.
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
    if disk or comment or start + length != end:
        raise IncompleteError("damaged archive: its directory does not end at the end record")
    if length > DIRECTORY_CAP:
        told = (length, DIRECTORY_CAP)
        raise IncompleteError("its directory of %d bytes is longer than the %d that are read" % told)
    return count, length, start


def directory(path: str) -> list[Record]:
    """Return a zip's central directory, by offset.

    Raises IncompleteError unless the records, whose names all differ, fill what is before it.
    """
    count, length, start = end_record(path)
    out = _entries(read_part(path, start, length))
    if len(out) != count:
        raise IncompleteError("damaged archive: its directory lists %d of %d records" % (len(out), count))
    out.sort(key=lambda record: record.offset)
    at = 0
    for name, offset, packed, _, _ in [*out, Record(b"", start, 0, 0, 0)]:
        if not 0 <= offset - at <= MAX_GAP or (at == 0 and offset):
            raise IncompleteError("damaged archive: its records do not fill it (near byte %d)" % at)
        at = offset + 30 + len(name) + packed
    # torch finds a record by its name without regard to case
    if len({record.name.lower() for record in out}) != len(out):
        raise IncompleteError("damaged archive: two of its records have one name")
    return out


def _entries(raw: bytes) -> list[Record]:
    out: list[Record] = []
    at = 0
    while at + 46 <= len(raw) and raw[at : at + 4] == b"PK\1\2":
        flags, method, crc, packed, plain, name_len, extra_len, note_len, offset = struct.unpack(
            "<2H4xL2L3H8xL", raw[at + 8 : at + 46]
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
        if flags & 1:
            raise UnknownError("not understood: record %s is encrypted" % name.decode("utf-8", "replace"))
        if not method and plain != packed:
            raise IncompleteError("damaged archive: a record has two sizes (near byte %d)" % offset)
        out.append(Record(name, offset, packed, crc, method))
        at += 46 + name_len + extra_len + note_len
    if at != len(raw):
        raise IncompleteError("damaged archive: its directory is cut after %d records" % len(out))
    return out


def torch_zip(path: str) -> None:
    """Raise IncompleteError unless it is a torch file whose directory is sound."""
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
        header = parsed(read_part(path, 8, length))
        entries = [(key, entry) for key, entry in header.items() if key != "__metadata__"]
        spans = sorted((begin, end) for begin, end in (entry["data_offsets"] for _, entry in entries))
        if not all(type(edge) is int for span in spans for edge in span):
            raise TypeError
        wrong = [key for key, entry in entries if not _fits(entry)]
        if not all(isinstance(text, str) for text in (header.get("__metadata__") or {}).values()):
            raise TypeError
    except GARBLED as why:
        twice = ": " + str(why) if "twice" in str(why) else ""
        raise IncompleteError("its header is no safetensors header" + twice) from None
    at = 0
    for begin, end in spans:
        if begin != at or end < begin:
            raise IncompleteError("damaged: its tensors do not fill it")
        at = end
    if 8 + length + at != size:
        raise IncompleteError("truncated: its header promises %d bytes, it has %d" % (8 + length + at, size))
    if wrong:
        raise IncompleteError("damaged: tensor %s has another size than its shape" % wrong[0][:200])
    return dict(header)


def _fits(entry: dict[str, Any]) -> bool:
    begin, end = entry["data_offsets"]
    wanted = WIDTHS.get(entry["dtype"])
    for size in entry["shape"]:
        if type(size) is not int or size < 0:
            raise TypeError
        if wanted is not None and wanted:
            wanted = min(wanted * size, 1 << 64)  # never larger: a long shape must not become a long number
    return wanted is None or wanted == end - begin


def inside(name: object) -> bool:
    """Whether an index may name a file so: by a path below its own folder."""
    return (
        isinstance(name, str)
        and bool(name)
        and not name.startswith("/")
        and "\0" not in name
        and ".." not in name.split("/")
    )
