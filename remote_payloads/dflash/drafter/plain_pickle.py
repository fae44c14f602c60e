"""The plain values of a `checkpoint.pt` without torch: nothing named in its pickle is imported or run.

Standard library only, Python 3.8: the preflight reads a drafter's config on hosts where torch may be missing.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any, Dict

from dflash.errors import Refused

LIMIT = 64 << 20


class _Inert:
    """Stands for every class, function and tensor; accepts what a pickle does to it."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def __call__(self, *_args: Any, **_kwargs: Any) -> "_Inert":
        return self

    def __setstate__(self, _state: Any) -> None:
        pass

    def __setitem__(self, _key: Any, _value: Any) -> None:
        pass

    def append(self, _item: Any) -> None:
        """Items of unknown lists go nowhere."""

    def extend(self, _items: Any) -> None:
        """Items of unknown lists go nowhere."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        return _Inert

    def persistent_load(self, _pid: Any) -> Any:
        return _Inert()


def plain_values(file: Path) -> Dict[str, Any]:
    """The checkpoint's top-level dict, tensors and unknown objects replaced by inert stand-ins."""
    try:
        with zipfile.ZipFile(str(file)) as archive:
            name = next((n for n in archive.namelist() if n.endswith("/data.pkl")), None)
            if name is None or archive.getinfo(name).file_size > LIMIT:
                raise Refused("{}: not a torch checkpoint".format(file))
            saved = _Reader(io.BytesIO(archive.read(name))).load()
    except (zipfile.BadZipFile, OSError) as error:
        raise Refused("{}: not a whole checkpoint: {}".format(file, error)) from None
    except Exception as error:  # noqa: BLE001 - whatever a foreign pickle provokes means "not readable"
        raise Refused("{}: its contents cannot be read: {!r}".format(file, error)) from None
    if not isinstance(saved, dict):
        raise Refused("{}: holds no dict".format(file))
    return saved
