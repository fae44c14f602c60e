"""What proves a folder whole: the files of an index, of Hugging Face, of torch.distributed.checkpoint.

Standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Any

from checkpoint.formats import (
    GARBLED,
    JSON_CAP,
    IncompleteError,
    UnknownError,
    inside,
    open_regular,
    parsed,
    read_part,
)

APART = 60  # seconds between a shard before its index and one after it: two saves, one over the other
METADATA_CAP = 64 << 20
TEMPORARY = re.compile(
    r"(^|[._~-])tmp([._~-]|\d*$)|\.(part|partial|incomplete|writing|saving|temp|temporary|bak|swp)\d*$|~$",
    re.I,
)
SINGLE = ("model.safetensors", "pytorch_model.bin")
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


def folder_parts(path: str) -> tuple[str, list[str]]:
    """Format of a folder, and the files in it that prove it (all others are not looked into).

    Of several that a Hugging Face folder may hold, the one that transformers would load.
    """
    names = sorted(os.listdir(path))
    full = {name: os.path.join(path, name) for name in names}
    if ".metadata" in names:
        return "dcp", _written_before(full[".metadata"], [full[n] for n in names if n.endswith(".distcp")])
    if any(name.endswith(".distcp") for name in names):
        raise IncompleteError("no .metadata: torch.distributed.checkpoint writes it last")
    for single, index in zip(SINGLE, INDEXES):  # noqa: B905 (3.8 has no strict=)
        if single in names:
            return "huggingface", [full[single]]
        if index in names:
            return "sharded", shards(full[index])
    index_files = [name for name in names if name.endswith(".index.json") and not name.startswith(".")]
    if index_files:
        return "sharded", shards(full[index_files[0]])
    alone = [full[n] for n in names if n.endswith(".safetensors") and not temporary(n, "")]
    if alone:
        return "huggingface", alone
    if not names:
        raise IncompleteError("an empty folder")
    unfinished = [name for name in names if temporary(name, "")]
    if len(unfinished) == len(names):
        raise IncompleteError("only temporary files in it: %s" % ", ".join(unfinished[:3]))
    raise IncompleteError("not understood: a folder with no .metadata, *.index.json or *.safetensors")


def _written_before(metadata: str, parts: list[str]) -> list[str]:
    if not parts:
        raise IncompleteError("no .distcp file beside .metadata")
    for name in [*parts, metadata]:
        look = os.stat(name)
        if not stat.S_ISREG(look.st_mode):
            raise UnknownError("%s is no regular file" % os.path.basename(name))
        if not look.st_size:
            raise IncompleteError("%s is empty (0 bytes)" % os.path.basename(name))
    made = os.stat(metadata).st_mtime_ns
    late = [name for name in parts if os.stat(name).st_mtime_ns > made + 10**9]
    if late:
        raise IncompleteError("%s is newer than .metadata (being rewritten?)" % os.path.basename(late[0]))
    return parts


def shards(index: str) -> list[str]:
    """Return the files that an index names. Raises IncompleteError where one is missing, or is of another save."""
    folder, called = os.path.dirname(index), os.path.basename(index)
    try:
        told = parsed(read_part(index, 0, JSON_CAP))
        wanted = sorted(set(told["weight_map"].values()))
    except (IncompleteError, *GARBLED) as why:
        twice = ": " + str(why) if "twice" in str(why) else ""
        raise IncompleteError("%s is no whole index%s" % (called, twice)) from None
    if not wanted or not all(inside(name) for name in wanted):
        outside = next((repr(name)[:200] for name in wanted if not inside(name)), "none")
        raise IncompleteError("%s names a file outside its folder, or none: %s" % (called, outside))
    lost = [name for name in wanted if not os.path.isfile(os.path.join(folder, name))]
    if lost:
        raise IncompleteError("%d of %d shards missing: %s" % (len(lost), len(wanted), ", ".join(lost[:3])))
    full = {name: os.path.join(folder, name) for name in wanted}
    _one_save(index, list(full.values()))
    return list(full.values())


def _one_save(index: str, files: list[str]) -> None:
    """Shards long before their index and others after it: a save over an older one has come half way."""
    made = os.stat(index).st_mtime_ns
    times = {name: os.stat(name).st_mtime_ns for name in files}
    late = max(times, key=lambda name: times[name])
    if times[late] > made > min(times.values()) and times[late] - min(times.values()) > APART * 10**9:
        told = (os.path.basename(late), os.path.basename(index))
        raise IncompleteError("%s is newer than %s, others are older (being rewritten?)" % told)


def distributed(folder: str, cap: int = METADATA_CAP) -> None:
    """Raise IncompleteError unless every piece that `.metadata` of torch.distributed.checkpoint names is there.

    One longer than `cap` is taken as it is: it was written last, and renamed when it was whole.
    """
    from checkpoint import pickle_reader  # here: a probe needs it only where such a folder is

    metadata = os.path.join(folder, ".metadata")
    if os.path.getsize(metadata) > cap:
        return
    try:
        tree = pickle_reader.Reader(read_part(metadata, 0, METADATA_CAP)).load()
        stored = tree.state.get("storage_data").pairs
        pieces = [_piece(info) for _, info in stored]
    except (pickle_reader.PickleError, *GARBLED):
        raise IncompleteError(".metadata is not what torch.distributed.checkpoint writes") from None
    of: dict[str, list[tuple[int, int, bool]]] = {}
    for name, at, size, plain in pieces:
        of.setdefault(name, []).append((at, size, plain))
    for name, extents in of.items():
        if not inside(name):
            raise IncompleteError(".metadata names a file outside the folder: %r" % name[:200])
        _extents(folder, name, extents)


def _piece(info: Any) -> tuple[str, int, int, bool]:
    fields = {str(key): value for key, value in info.state.pairs}
    name, offset, length = fields["relative_path"], fields["offset"], fields["length"]
    if not isinstance(name, str) or type(offset) is not int or type(length) is not int:
        raise TypeError
    if offset < 0 or length < 0:
        raise TypeError
    return name, offset, length, not fields.get("transform_descriptors")


def _extents(folder: str, name: str, pieces: list[tuple[int, int, bool]]) -> None:
    path = os.path.join(folder, name)
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        raise IncompleteError("%s, which .metadata names, is missing" % name[:200]) from None
    descriptor = open_regular(path)
    try:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        for at, length, plain in pieces:
            if at + length > size:
                told = (name[:200], at + length, size)
                raise IncompleteError("%s: truncated: .metadata promises %d bytes, it has %d" % told)
            # each piece is a small torch file of its own, with its end record at its end
            whole = not plain or length < 22 or os.pread(descriptor, 4, at) != b"PK\3\4"
            if not whole and os.pread(descriptor, 4, at + length - 22) != b"PK\5\6":
                raise IncompleteError(
                    "%s: damaged: the piece at byte %d has no end record" % (name[:200], at)
                )
            if whole and plain and length and not os.pread(descriptor, min(length, 512), at).strip(b"\0"):
                raise IncompleteError("%s: damaged: the piece at byte %d is zeros" % (name[:200], at))
    finally:
        os.close(descriptor)


def temporary(name: str, part: str) -> bool:
    """Whether a star would take a name that its writer has not finished with."""
    if name.startswith(".") and not part.startswith("."):
        return True
    return TEMPORARY.search(name) is not None and TEMPORARY.search(part) is None
