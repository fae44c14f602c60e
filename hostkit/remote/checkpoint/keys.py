"""Find what an inventory names inside a checkpoint of any layout: keys, names with dots, through wrappers' prefixes.

Travels to hosts: standard library only, Python 3.8 or newer. Pure: reads no file.

`state.model.drafter` is met in nested dictionaries, in one flat dictionary (`model` with `module.drafter.fc.weight`),
and in any mixture of them, since a name with dots and the names that lead to it are the same text.
"""

from __future__ import annotations

from typing import Any

from checkpoint.contents import MAX_TENSORS, Tree, pairs_of, tensor, text_of
from checkpoint.pickle_reader import Dict, PickleError

WRAPPERS = ("module.", "_orig_mod.")  # of DistributedDataParallel and torch.compile: always looked through
MAX_WAY = 12  # dictionaries on the way to what is named
HARNESS = (
    "draft_state_dict",
    "drafter",
    "model_state_dict",
    "state_dict",
    "model",
)  # where the bundled one looks
BARE = ("module.", "_orig_mod.", "draft_model.", "model.")  # what it takes off names itself


class MissingError(Exception):
    """Nothing is there under a name; `there`: what is, on the last dictionary of the way."""

    def __init__(self, what: str, there: list[str]) -> None:
        super().__init__(what)
        self.there = there


def meet(name: str, wanted: str, strip: tuple[str, ...]) -> tuple[str, str] | None:
    """Return what is left of a name and of what is wanted once they have been walked together; None: they part.

    Nothing left of `wanted`: the name is it, or below it. Nothing left of the name: it is on the way there.
    """
    if not wanted or not name:
        return name, wanted
    head, _, tail = wanted.partition(".")
    if name == head:
        return "", tail
    if name.startswith(head + "."):
        found = meet(name[len(head) + 1 :], tail, strip)
        if found is not None:
            return found
    for prefix in strip:
        if (name + ".").startswith(prefix):
            found = meet(name[len(prefix) :], wanted, strip)
            if found is not None:
                return found
    return None


def bare(name: str, strip: tuple[str, ...]) -> str:
    """Take off what wrappers put before a name, as often as they did."""
    while True:
        prefix = next((one for one in strip if name.startswith(one)), None)
        if prefix is None:
            return name
        name = name[len(prefix) :]


def value_at(tree: Tree, wanted: str, strip: tuple[str, ...] = ()) -> Any:
    """Return the value under a name, None where there is none."""
    for through in ((), (*WRAPPERS, *strip)):
        found = _value_at(tree.root, wanted, through, 0)
        if found is not None:
            return found
    return None


def _value_at(inside: Any, wanted: str, strip: tuple[str, ...], depth: int) -> Any:
    for key, value in (pairs_of(inside) or []) if depth < MAX_WAY else []:
        met = meet(text_of(key), wanted, strip)
        if met == ("", ""):
            return value
        if met is not None and not met[0]:
            found = _value_at(value, met[1], strip, depth + 1)
            if found is not None:
                return found
    return None


def bytes_below(tensors: list[dict[str, Any]], wanted: str, strip: tuple[str, ...] = ()) -> int | None:
    """Return the bytes of all storages of the tensors under a name; None where there are none."""
    for through in ((), (*WRAPPERS, *strip)):
        storages: dict[str, int] = {
            one["storage"]: one["storage_bytes"]
            for one in tensors
            if (met := meet(".".join(one["path"]), wanted, through)) is not None and not met[1]
        }
        if storages:
            return sum(storages.values())
    return None


class _Want:
    """One name that is looked for, and what is left of it where the walk is."""

    __slots__ = ("key", "left", "strip")

    def __init__(self, key: str, left: str, strip: tuple[str, ...]) -> None:
        self.key = key
        self.left = left
        self.strip = strip


class Picked:
    """What was taken out of a tree: `out`, the same dictionaries with only that in them, and what to say of it.

    On the way to what is named, what holds no tensors comes as plain data, unless `exactly` says otherwise.
    """

    def __init__(self, tree: Tree, keys: list[str] | None, strip: tuple[str, ...], exactly: bool) -> None:
        self.tree = tree
        self.exactly = exactly
        self.kept: list[str] = []
        self.dropped: list[str] = []
        self.met: dict[str, list[tuple[str, Any]]] = {key: [] for key in keys or []}
        self._there: dict[str, tuple[str, list[str]]] = {}
        # a name as it stands wins over one that is only met through a wrapper
        through = (*WRAPPERS, *strip)
        wants = [
            _Want(key, key, () if _value_at(tree.root, key, (), 0) is not None else through)
            for key in keys or []
        ]
        self.out, found = self._inside(pairs_of(tree.root) or [], "", wants, 0, keys is None)
        for key in keys or []:
            if key not in found:
                name, there = self._there.get(key, ("", []))
                words = (key, "in %s " % name if name else "", ", ".join(there[:40]))
                raise MissingError("no key %s; %sthere are: %s" % words, there)

    def _inside(
        self, pairs: list[tuple[Any, Any]], before: str, wants: list[_Want], depth: int, all_of_it: bool
    ) -> tuple[Dict, set[str]]:
        """Return what is taken of a dictionary's entries, and which of the wanted names were met."""
        out, lost = Dict(), 0
        found: set[str] = set()
        for want in wants:
            self._there[want.key] = (before[:-1], [text_of(key) for key, _ in pairs])
        for key, value in pairs:
            name = before + text_of(key)
            met = [(want, meet(text_of(key), want.left, want.strip)) for want in wants]
            here = [(want, rest[0]) for want, rest in met if rest is not None and not rest[1]]
            if here or (all_of_it and self.tree.tensors(value)):
                found.update(want.key for want, _ in here)
                out.pairs.append((key, self._named(name, value)))
                for want, rest in here:
                    self.met[want.key].append((rest, value))
                self._say(self.kept, *([want.key for want, _ in here] or [name]))
                continue
            on = [
                _Want(want.key, rest[1], want.strip) for want, rest in met if rest is not None and not rest[0]
            ]
            inner = pairs_of(value) if on and depth < MAX_WAY else None
            if inner is not None:
                taken, more = self._inside(inner, name + ".", on, depth + 1, False)
                if more:
                    out.pairs.append((key, taken))
                    found |= more
                    continue
            if self.exactly or self.tree.tensors(value):
                if depth and pairs_of(value) is None:
                    lost += 1  # of a flat dictionary there may be thousands
                else:
                    self._say(self.dropped, name)
                continue
            try:  # plain data, so that no allow-list is needed to load it
                out.pairs.append((key, self.tree.whole(value)))
                self._say(self.kept, name)
            except PickleError:
                self._say(self.dropped, name)
        if lost and found:
            self._say(self.dropped, "%s (%d others)" % (before[:-1], lost))
        return out, found

    def _named(self, name: str, value: Any) -> Any:
        if self.tree.tensors(value):
            return value
        try:
            return self.tree.whole(value)
        except PickleError as why:
            raise PickleError("key %s: %s" % (name, why)) from None

    def _say(self, names: list[str], *more: str) -> None:
        names.extend(name for name in more if name not in names)


class _Leaves:
    """The tensors below values, by the names that lead to them."""

    def __init__(self, met: list[tuple[str, Any]]) -> None:
        self.found: list[tuple[str, Any]] = []
        self.barren: set[int] = set()  # a dictionary that is referred to many times is walked once
        for name, value in met:
            self._walk(name, value, 0)

    def _walk(self, name: str, value: Any, depth: int) -> None:
        if tensor(value) is not None:
            self.found.append((name, value))
            if len(self.found) > MAX_TENSORS:
                raise PickleError("its pickle has too many parts to be walked")
            return
        pairs, before = pairs_of(value), len(self.found)
        if pairs is None or id(value) in self.barren or depth == MAX_WAY:
            return
        for key, below in pairs:
            self._walk("%s.%s" % (name, text_of(key)) if name else text_of(key), below, depth + 1)
        if before == len(self.found):
            self.barren.add(id(value))


def for_harness(
    picked: Picked, keys: list[str], step: str | None, strip: tuple[str, ...], step_inside: int | None = None
) -> None:
    """Add the weights where the bundled harness looks for them, under bare names, and the step; no bytes more.

    Only where they are not there already: `drafter` at the top, with names that the harness strips itself.
    """
    top = [text_of(key) for key, _ in picked.out.pairs]
    leaves = {one: _Leaves(picked.met[one]).found for one in keys}
    key = next((one for one in keys if leaves[one]), None)
    if key is not None and (key not in top or key not in HARNESS or strip) and HARNESS[0] not in top:
        weights, names = Dict(), set()
        for name, value in leaves[key]:
            plain = bare(name, (*BARE, *strip))
            if plain in names:
                raise PickleError("two tensors below %s are %s without their prefixes" % (key, plain))
            names.add(plain)
            weights.pairs.append((plain, value))
        picked.out.pairs.append((HARNESS[0], weights))
    if step is not None and step != "step" and "step" not in top:
        value = value_at(Tree(picked.out, []), step, strip)
        if tensor(value) is not None:
            value = step_inside  # the harness reads numbers alone
        if isinstance(value, (int, str)):
            picked.out.pairs.append(("step", value))
