"""Read a pickle as plain symbols: no global of it is imported, no callable of it is called, under any input.

Travels to hosts: standard library only, Python 3.8 or newer. The stock Unpickler is not used at all, since its
memo is an array that one opcode can make gigabytes large and its dictionaries hash what they are given.
"""

from __future__ import annotations

import gc
import resource
import struct
from typing import Any, Callable, Iterable, Iterator

MAX_BYTES = 64 << 20  # the largest pickle that is read; torch's holds some hundred bytes a tensor
MAX_OPCODES = 10_000_000  # about 40 are one tensor's
MAX_GROWTH = 1 << 20  # KiB of memory that reading one may take
LOOK = 1 << 16  # opcodes between two looks at the memory


class PickleError(Exception):
    """The pickle is damaged, too large, or uses what a checkpoint's pickle has no use for."""


class Global:
    """A name that the pickle wants imported. It is only a name here."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def __str__(self) -> str:
        return self.module + "." + self.name


_NONE: list[Any] = []


class Call:
    """An object that the pickle wants made by calling `function`, with what it then puts into it."""

    __slots__ = ("args", "function", "items", "new", "pairs", "state")

    def __init__(self, function: Any, args: Any, new: bool = False) -> None:
        self.function = function
        self.args = args
        self.new = new  # by the class's __new__ alone, instead of a call
        self.state: Any = None
        self.items: list[Any] = _NONE  # until there is one: a checkpoint has a hundred thousand of these
        self.pairs: list[tuple[Any, Any]] = _NONE


class Persistent:
    """A reference to something outside the pickle: torch's storages."""

    __slots__ = ("reference",)

    def __init__(self, reference: Any) -> None:
        self.reference = reference


class Dict:
    """A dictionary, as pairs: its keys are never hashed."""

    __slots__ = ("pairs",)

    def __init__(self) -> None:
        self.pairs: list[tuple[Any, Any]] = []

    def get(self, key: str) -> Any:
        """Return the last value under a text key, or None."""
        return next(
            (value for name, value in reversed(self.pairs) if isinstance(name, str) and name == key), None
        )


class Set:
    """A set or a frozenset, as a list."""

    __slots__ = ("items",)

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self.items = list(items)


class _Mark:
    pass


_MARK = _Mark()
_INT = struct.Struct("<i")
_LENGTH = struct.Struct("<I")
_WIDE = struct.Struct("<Q")
_FLOAT = struct.Struct(">d")


class Reader:
    """One pass over the opcodes of one pickle, with an explicit stack (so that nesting has no limit)."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        if len(data) > MAX_BYTES:
            raise PickleError(
                "its pickle has %d bytes, more than the %d that are read" % (len(data), MAX_BYTES)
            )
        self.data = data
        self.at = at
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.globals: list[Global] = []
        self.references: list[Persistent] = []

    def load(self) -> Any:
        """Return the tree; `at` then stands behind the pickle."""
        collecting = gc.isenabled()
        gc.disable()  # it would walk the growing tree time and again, and find nothing
        try:
            return self._load()
        except (IndexError, struct.error):
            raise PickleError("its pickle is cut short or damaged near byte %d" % self.at) from None
        except (UnicodeDecodeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise PickleError("its pickle is damaged near byte %d (%s)" % (self.at, error)) from None
        finally:
            if collecting:
                gc.enable()

    def _load(self) -> Any:
        table, data, until = _OPCODES, self.data, LOOK
        before, looks = _peak(), MAX_OPCODES // LOOK
        while True:
            until -= 1
            if not until:
                until, looks = LOOK, looks - 1
                if not looks or _peak() - before > MAX_GROWTH:
                    raise PickleError("its pickle has too many parts to be read")
            code = data[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                return self.pop()
            action = table.get(code)
            if action is None:
                told = (code, self.at - 1)
                raise PickleError("opcode 0x%02x at byte %d is none that torch writes" % told)
            action(self)

    def take(self, length: int) -> bytes:
        """Return the next bytes."""
        piece = self.data[self.at : self.at + length]
        if len(piece) != length:
            raise IndexError
        self.at += length
        return piece

    def line(self) -> str:
        """Return the next text up to a newline."""
        end = self.data.index(b"\n", self.at)
        text = self.data[self.at : end].decode("utf-8")
        self.at = end + 1
        return text

    def number(self, form: struct.Struct) -> int:
        """Return the next binary number."""
        value: int = form.unpack(self.take(form.size))[0]
        return value

    def pop(self) -> Any:
        """Take the top of the stack, which must not be a mark."""
        value = self.stack.pop()
        if value is _MARK:
            raise PickleError("its pickle is damaged near byte %d (a mark where a value should be)" % self.at)
        return value

    def since_mark(self) -> list[Any]:
        """Take everything above the newest mark, and the mark."""
        stack = self.stack
        for place in range(len(stack) - 1, -1, -1):
            if stack[place] is _MARK:
                taken = stack[place + 1 :]
                del stack[place:]
                return taken
        raise PickleError("its pickle is damaged near byte %d (no mark)" % self.at)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _push(make: Callable[[Reader], Any]) -> Callable[[Reader], None]:
    def act(reader: Reader) -> None:
        reader.stack.append(make(reader))

    return act


def _push_constant(value: Any) -> Callable[[Reader], None]:
    return lambda reader: reader.stack.append(value)


def _push_fresh(make: Callable[[], Any]) -> Callable[[Reader], None]:
    return lambda reader: reader.stack.append(make())


def _put(index: Callable[[Reader], int]) -> Callable[[Reader], None]:
    def act(reader: Reader) -> None:
        number = index(reader)
        reader.memo[number] = reader.stack[-1]

    return act


def _tuple(size: int) -> Callable[[Reader], Any]:
    def make(reader: Reader) -> Any:
        if size > len(reader.stack):
            raise IndexError
        items = [reader.pop() for _ in range(size)]
        return tuple(reversed(items))

    return make


def _dict(reader: Reader) -> Dict:
    made = Dict()
    made.pairs.extend(_pairs(reader.since_mark()))
    return made


def _pairs(flat: list[Any]) -> Iterator[tuple[Any, Any]]:
    if len(flat) % 2:
        raise PickleError("its pickle is damaged (a key without a value)")
    return zip(flat[::2], flat[1::2])  # noqa: B905 (3.8 has no strict=)


def _call(reader: Reader) -> Call:
    args = reader.pop()
    return Call(reader.pop(), args)


def _new(reader: Reader) -> Call:
    args = reader.pop()
    return Call(reader.pop(), args, new=True)


def _call_with_names(reader: Reader) -> Call:
    named, args = reader.pop(), reader.pop()
    return Call(reader.pop(), (args, named), new=True)


def _old_instance(reader: Reader) -> Call:
    module, name = reader.line(), reader.line()
    return Call(_named(reader, module, name), tuple(reader.since_mark()))


def _old_object(reader: Reader) -> Call:
    taken = reader.since_mark()
    return Call(taken[0], tuple(taken[1:]))


def _stack_global(reader: Reader) -> Global:
    name, module = reader.pop(), reader.pop()
    if not isinstance(module, str) or not isinstance(name, str):
        raise PickleError("its pickle is damaged (a global without a name)")
    return _named(reader, module, name)


def _named(reader: Reader, module: str, name: str) -> Global:
    if not (module.isprintable() and name.isprintable()):
        raise PickleError("its pickle is damaged near byte %d (a global of no name)" % reader.at)
    made = Global(module, name)
    reader.globals.append(made)
    return made


def _persistent(reader: Reader) -> Persistent:
    made = Persistent(reader.pop())
    reader.references.append(made)
    return made


def _extend(reader: Reader, items: list[Any]) -> None:
    target = reader.stack[-1]
    if isinstance(target, Call) and target.items is _NONE:
        target.items = []
    (target if isinstance(target, list) else target.items).extend(items)


def _put_pairs(reader: Reader, pairs: list[tuple[Any, Any]]) -> None:
    target = reader.stack[-1]
    if isinstance(target, Call) and target.pairs is _NONE:
        target.pairs = []
    target.pairs.extend(pairs)


def _append(reader: Reader) -> None:
    item = reader.pop()
    _extend(reader, [item])


def _set_items(reader: Reader) -> None:
    _put_pairs(reader, list(_pairs(reader.since_mark())))


def _set_item(reader: Reader) -> None:
    value, key = reader.pop(), reader.pop()
    _put_pairs(reader, [(key, value)])


def _build(reader: Reader) -> None:
    state = reader.pop()
    if not isinstance(reader.stack[-1], Call):
        raise PickleError("its pickle is damaged near byte %d (state for what is no object)" % reader.at)
    reader.stack[-1].state = state


def _frame(reader: Reader) -> None:
    reader.take(8)


def _pop(reader: Reader) -> None:
    reader.stack.pop()


def _pop_mark(reader: Reader) -> None:
    reader.since_mark()


def _text(form: struct.Struct) -> Callable[[Reader], Any]:
    return lambda reader: reader.take(reader.number(form)).decode("utf-8", "surrogatepass")


def _raw(form: struct.Struct) -> Callable[[Reader], Any]:
    return lambda reader: reader.take(reader.number(form))


def _long(form: struct.Struct) -> Callable[[Reader], Any]:
    return lambda reader: int.from_bytes(reader.take(reader.number(form)), "little", signed=True)


def _byte(reader: Reader) -> int:
    return reader.take(1)[0]


_SHORT = struct.Struct("<H")
_ONE = struct.Struct("<B")
_CONSTANTS = {b"N": None, b"\x88": True, b"\x89": False, b"(": _MARK, b")": ()}
_FRESH: dict[bytes, Callable[[], Any]] = {b"]": list, b"}": Dict, b"\x8f": Set}
_PUSHES: dict[bytes, Callable[[Reader], Any]] = {
    b"J": lambda reader: reader.number(_INT),
    b"K": _byte,
    b"M": lambda reader: reader.number(_SHORT),
    b"\x8a": _long(_ONE),
    b"\x8b": _long(_LENGTH),
    b"G": lambda reader: _FLOAT.unpack(reader.take(8))[0],
    b"X": _text(_LENGTH),
    b"\x8c": _text(_ONE),
    b"\x8d": _text(_WIDE),
    b"B": _raw(_LENGTH),
    b"C": _raw(_ONE),
    b"\x8e": _raw(_WIDE),
    b"\x96": _raw(_WIDE),
    b"T": _raw(_LENGTH),
    b"U": _raw(_ONE),
    b"l": lambda reader: reader.since_mark(),
    b"t": lambda reader: tuple(reader.since_mark()),
    b"d": _dict,
    b"\x91": lambda reader: Set(reader.since_mark()),
    b"\x85": _tuple(1),
    b"\x86": _tuple(2),
    b"\x87": _tuple(3),
    b"c": lambda reader: _named(reader, reader.line(), reader.line()),
    b"\x93": _stack_global,
    b"i": _old_instance,
    b"o": _old_object,
    b"R": _call,
    b"\x81": _new,
    b"\x92": _call_with_names,
    b"Q": _persistent,
    b"h": lambda reader: reader.memo[_byte(reader)],
    b"j": lambda reader: reader.memo[reader.number(_LENGTH)],
    b"2": lambda reader: reader.stack[-1],
}
_ACTS: dict[bytes, Callable[[Reader], None]] = {
    b"\x80": lambda reader: None if reader.take(1)[0] <= 5 else _newer(),
    b"\x95": _frame,
    b"0": _pop,
    b"1": _pop_mark,
    b"q": _put(_byte),
    b"r": _put(lambda reader: reader.number(_LENGTH)),
    b"\x94": _put(lambda reader: len(reader.memo)),
    b"a": _append,
    b"e": lambda reader: _extend(reader, reader.since_mark()),
    b"\x90": lambda reader: _extend(reader, reader.since_mark()),
    b"s": _set_item,
    b"u": _set_items,
    b"b": _build,
}


def _newer() -> None:
    raise PickleError("its pickle is of a protocol newer than 5")


_OPCODES: dict[int, Callable[[Reader], None]] = {code[0]: _push(make) for code, make in _PUSHES.items()}
_OPCODES.update({code[0]: _push_constant(value) for code, value in _CONSTANTS.items()})
_OPCODES.update({code[0]: _push_fresh(make) for code, make in _FRESH.items()})
_OPCODES.update({code[0]: act for code, act in _ACTS.items()})
