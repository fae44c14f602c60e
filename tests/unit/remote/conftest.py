"""torch at its strictest, for what the reader of checkpoints writes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have torch compute the places of storages, and hold them against the archive's."""
    from torch.utils.serialization import config

    monkeypatch.setenv("TORCH_SERIALIZATION_DEBUG", "1")
    config.load.calculate_storage_offsets = True
    yield
    config.load.calculate_storage_offsets = False
