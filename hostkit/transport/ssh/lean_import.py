"""Import fabric without what none of its users here needs: it costs a status 60 ms of CPU before the first packet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def lean_import() -> Iterator[None]:
    """Within it, invoke (which fabric and paramiko import) gets no asyncio and no second YAML parser.

    invoke.context imports unittest.mock, and so asyncio, for its test helper MockContext alone; its own copy of
    PyYAML is the one that the inventory has loaded already.
    """
    import yaml

    mock = ModuleType("unittest.mock")
    mock.Mock = object  # type: ignore[attr-defined]
    stand_ins = {"unittest.mock": mock, "invoke.vendor.yaml": yaml}
    placed = [name for name in stand_ins if name not in sys.modules and "invoke" not in sys.modules]
    for name in placed:
        sys.modules[name] = stand_ins[name]
    try:
        yield
    finally:
        for name in placed:
            sys.modules.pop(name, None)
