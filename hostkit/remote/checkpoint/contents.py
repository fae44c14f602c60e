"""What a checkpoint holds, from the symbols of its pickle: tensors by name, and small things as plain data.

Travels to hosts: standard library only, Python 3.8 or newer. Pure: reads no file.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator

from checkpoint import pickle_reader
from checkpoint.pickle_reader import Call, Dict, Global, Persistent, PickleError, Set

MAX_NODES = 3_000_000  # a tree that refers to its parts many times over would be walked for ever,
MAX_TENSORS = 150_000  # and tell its tensors until the memory is full
MAX_DEPTH = 100  # names from the top to a tensor
MAX_PLAIN = 4_000  # values of small metadata that are told
MAX_TEXT = 4_000  # characters of one text that are told
MAX_SIZES = 64  # dimensions of a tensor; torch allows as many
MOST = 1 << 62  # no size or offset is larger: a number without bounds takes long to write down

ITEM = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1,
    "complex32": 4, "complex64": 8, "complex128": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "qint8": 1, "quint8": 1, "qint32": 4, "quint4x2": 1, "quint2x4": 1, "bits8": 1, "bits16": 2, "untyped": 1,
}  # fmt: skip
STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16", "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16",
    "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128", "QInt8Storage": "qint8", "QUInt8Storage": "quint8",
    "QInt32Storage": "qint32", "QUInt4x2Storage": "quint4x2", "QUInt2x4Storage": "quint2x4",
    "UntypedStorage": "untyped",
}  # fmt: skip
# what torch's safe loader lets a file name, besides storages and element types
PLAIN_GLOBALS = {
    "torch._utils._rebuild_device_tensor_from_cpu_tensor",
    "torch._utils._rebuild_device_tensor_from_numpy",
    "torch._utils._rebuild_meta_tensor_no_storage",
    "torch._utils._rebuild_nested_tensor",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch._utils._rebuild_qtensor",
    "torch._utils._rebuild_sparse_tensor",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_wrapper_subclass",
    "torch._tensor._rebuild_from_type_v2",
    "torch.serialization._get_layout",
    "torch.nn.parameter.Parameter",
    "torch.per_tensor_affine",
    "torch.per_tensor_symmetric",
    "torch.per_channel_affine",
    "torch.per_channel_symmetric",
    "torch.per_channel_affine_float_qparams",
    "collections.OrderedDict",
    "collections.Counter",
    "torch.device",
    "torch.Size",
    "torch.Tensor",
    "builtins.set",
    "__builtin__.set",
    "builtins.complex",
    "builtins.bytearray",
    "_codecs.encode",
}


LEAVES = (str, int, float, bytes, type(None), Global, Persistent)


class Storage:
    """One storage that the pickle refers to: its key, element type, and size in bytes."""

    def __init__(self, reference: Any) -> None:
        fits = isinstance(reference, tuple) and len(reference) >= 5 and reference[0] == "storage"
        if not fits or not isinstance(reference[1], Global) or type(reference[4]) is not int:
            raise PickleError("it refers to something that is no storage of torch")
        name = STORAGES.get(reference[1].name)
        if name is None or not 0 <= reference[4] < MOST or not isinstance(reference[2], str):
            raise PickleError("storage type %s is not known" % reference[1])
        self.key = reference[2]
        self.dtype = name
        self.bytes: int = reference[4] * ITEM[name]


class Tree:
    """One loaded pickle, walked."""

    def __init__(self, root: Any, globals_: list[Global]) -> None:
        self.root = root
        self.foreign = foreign(globals_)

    def top(self) -> list[tuple[str, Any]]:
        """Return the top-level entries; a pickle that is one object has a single nameless one."""
        pairs = pairs_of(self.root)
        if pairs is None:
            return [("", self.root)]
        return list(
            {text_of(key): value for key, value in pairs}.items()
        )  # of one key twice, the later counts

    def tensors(self, value: Any, path: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        """Return every tensor below a value, in the order of the pickle."""
        return _Walk().tensors(value, path)

    def plain(self, value: Any) -> Any:
        """Return a value as plain data: objects as their fields with their class's name, tensors as their shape."""
        return _Plain().tell(value, 0)

    def whole(self, value: Any) -> Any:
        """Return a value as plain data that loses nothing but classes; raises PickleError where it would."""
        plain = _Plain(keep=True)
        found = plain.tell(value, 0)
        if plain.lost:
            raise PickleError("it is too large, or of a kind that plain data cannot hold")
        return found


def load(data: bytes, at: int = 0) -> tuple[Tree, pickle_reader.Reader]:
    """Read one pickle; the reader tells where it ended and what it referred to."""
    reader = pickle_reader.Reader(data, at)
    root = reader.load()
    return Tree(root, reader.globals), reader


def tensor(value: Any) -> dict[str, Any] | None:
    """Return dtype, shape, stride and storage of a value that is a tensor; None when it is none."""
    if (
        not isinstance(value, Call)
        or not isinstance(value.function, Global)
        or not isinstance(value.args, tuple)
    ):
        return None
    name, args = str(value.function), value.args
    if name in ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"):
        return tensor(args[0]) if args else None
    if name == "torch._tensor._rebuild_from_type_v2" and len(args) >= 3:
        return tensor(Call(args[0], args[2]))
    makers = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_qtensor")
    if value.function.module != "torch._utils" or value.function.name not in makers or len(args) < 4:
        return None
    if not isinstance(args[0], Persistent):
        return None
    storage = Storage(args[0].reference)
    shape, stride = _numbers(args[2]), _numbers(args[3])
    if shape is None or stride is None or type(args[1]) is not int or not 0 <= args[1] < MOST:
        raise PickleError("a tensor's shape or place is not made of numbers")
    dtype = storage.dtype
    if name.endswith("_v3") and len(args) > 6 and isinstance(args[6], Global):
        dtype = args[6].name
    if dtype not in ITEM:
        raise PickleError("element type %s is not known" % dtype)
    count = 1
    for size in shape:
        count *= size
    return {
        "shape": shape,
        "stride": stride,
        "dtype": dtype,
        "offset": args[1],
        "bytes": count * ITEM[dtype],
        "storage": storage.key,
        "storage_bytes": storage.bytes,
    }


def foreign(globals_: list[Global]) -> list[str]:
    """Return the names that torch's safe loader would refuse."""
    return sorted({str(one) for one in globals_ if not _own(one)})


def _own(one: Global) -> bool:
    name = str(one)
    typed = one.module in ("torch", "torch.storage") and (one.name in STORAGES or one.name in ITEM)
    return typed or name in PLAIN_GLOBALS


def _numbers(value: Any) -> list[int] | None:
    if isinstance(value, Call) and str(value.function) == "torch.Size" and value.args:
        value = value.args[0]
    if not isinstance(value, (tuple, list)) or len(value) > MAX_SIZES:
        return None
    return list(value) if all(type(one) is int and 0 <= one < MOST for one in value) else None


def pairs_of(value: Any) -> list[tuple[Any, Any]] | None:
    """Return the entries of a dictionary, or of what behaves as one; None for all else."""
    if isinstance(value, Dict):
        return value.pairs
    if isinstance(value, Call) and str(value.function) in (
        "collections.OrderedDict",
        "collections.defaultdict",
    ):
        return value.pairs
    return None


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value holds, one after the other: a list may hold a million times the same."""
    pairs = pairs_of(value)
    if pairs is not None:
        yield from ((text_of(key), below) for key, below in pairs)
    elif isinstance(value, (list, tuple)):
        yield from ((str(number), below) for number, below in enumerate(value))
    elif isinstance(value, Set):
        yield from ((str(number), below) for number, below in enumerate(value.items))
    elif isinstance(value, Call):
        if isinstance(value.args, tuple):
            yield from _children(value.args)
        if isinstance(value.state, (Dict, tuple)):
            yield from _children(value.state)
        yield from _children(value.items)
        yield from ((text_of(key), below) for key, below in value.pairs)


def text_of(key: Any) -> str:
    """Return a dictionary's key as text."""
    if isinstance(key, str):
        return key
    if isinstance(key, float) or (isinstance(key, int) and key.bit_length() <= 64):
        return repr(key)
    return "(%s)" % type(key).__name__


class _Walk:
    """One walk in the order of the pickle, which keeps no more than the way to where it is."""

    def __init__(self) -> None:
        self.nodes = 0
        self.out: list[dict[str, Any]] = []
        self.barren: set[int] = set()  # containers without a tensor below them, not walked again
        self.way: list[tuple[Any, tuple[str, ...], int, Iterator[tuple[str, Any]]]] = []

    def tensors(self, value: Any, path: tuple[str, ...]) -> list[dict[str, Any]]:
        self.enter(value, path)
        while self.way:
            value, path, before, children = self.way[-1]
            for name, below in children:
                self.nodes += 1
                if self.nodes > MAX_NODES or len(self.out) > MAX_TENSORS:
                    raise PickleError("its pickle has too many parts to be walked")
                if not isinstance(below, LEAVES) and id(below) not in self.barren:
                    self.enter(below, (*path, name))
                    break
            else:
                self.way.pop()
                if before == len(self.out):
                    self.barren.add(id(value))
        return self.out

    def enter(self, value: Any, path: tuple[str, ...]) -> None:
        if len(path) > MAX_DEPTH:
            raise PickleError("its pickle is nested too deep")
        found = tensor(value)
        if found is not None:
            self.out.append(dict(found, path=list(path)))
        elif any(above is value for above, _, _, _ in self.way):
            raise PickleError("its pickle holds something that is a part of itself")
        else:
            self.way.append((value, path, len(self.out), _children(value)))


class _Plain:
    """One telling, with a limit on how much is told."""

    def __init__(self, keep: bool = False) -> None:
        self.left = MAX_PLAIN
        self.keep = keep  # for a file, not for JSON: no number is turned into text
        self.lost = False

    def cut(self, instead: Any) -> Any:
        """Tell something else than the value."""
        self.lost = True
        return instead

    def key(self, key: Any) -> Any:
        """Tell a dictionary's key."""
        return key if self.keep and isinstance(key, (int, float, bool)) else text_of(key)

    def tell(self, value: Any, depth: int) -> Any:
        self.left -= 1
        if self.left < 0 or depth > 12:
            return self.cut("...")
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return (
                value if value.bit_length() <= 64 else self.cut("an integer of %d bits" % value.bit_length())
            )
        if isinstance(value, float):
            return value if self.keep or value - value == 0 else str(value)  # JSON has no NaN and no infinity
        if isinstance(value, str):
            return value if len(value) <= MAX_TEXT else self.cut(value[:MAX_TEXT] + "...")
        if isinstance(value, bytes):
            return self.cut("%d bytes" % len(value))
        found = tensor(value)
        if found is not None:
            return self.cut({"tensor": found["shape"], "dtype": found["dtype"]})
        pairs = pairs_of(value)
        if pairs is not None:
            return {self.key(key): self.tell(below, depth + 1) for key, below in pairs[: self.left + 1]}
        if isinstance(value, (list, tuple, Set)):
            items = value.items if isinstance(value, Set) else value
            return [self.tell(below, depth + 1) for below in items[: self.left + 1]]
        return self.object(value, depth)

    def object(self, value: Any, depth: int) -> Any:
        if isinstance(value, Global):
            return str(value)
        if not isinstance(value, Call):
            return self.cut("(%s)" % type(value).__name__)
        name = str(value.function)
        args = value.args if isinstance(value.args, tuple) else ()
        if (
            name in ("builtins.set", "__builtin__.set", "builtins.frozenset", "__builtin__.frozenset")
            and args
        ):
            return self.tell(args[0], depth)
        teller = _TELLERS.get(name)
        if teller is not None:
            return teller(args)
        if isinstance(value.state, Dict):
            fields = {
                text_of(key): self.tell(below, depth + 1) for key, below in value.state.pairs[: self.left + 1]
            }
            return fields if name == "argparse.Namespace" else {"object": name, "fields": fields}
        return self.cut({"object": name})


def _path(args: tuple[Any, ...]) -> str:
    parts = [text_of(part) for part in args]
    return "/" + "/".join(parts[1:]) if parts[:1] == ["/"] else "/".join(parts)


def _device(args: tuple[Any, ...]) -> str:
    return ":".join(text_of(part) for part in args)


def _size(args: tuple[Any, ...]) -> Any:
    return _numbers(args[0]) if args else None


_TELLERS: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "pathlib.PosixPath": _path,
    "pathlib.PurePosixPath": _path,
    "pathlib._local.PosixPath": _path,
    "pathlib._local.PurePosixPath": _path,
    "torch.device": _device,
    "torch.Size": _size,
}
