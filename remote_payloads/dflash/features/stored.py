"""Features on disk for training without the target: one safetensors file per sample, whole or absent.

A file holds input_ids, loss_mask, features [S, taps * H], and in its metadata the sample's id and origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dflash.data.samples import Sample
from dflash.errors import Refused
from dflash.features.source import MicroBatch, Origin, Plan
from dflash.files import write_durably


def file_of(folder: Path, number: int) -> Path:
    """Where sample `number` lies."""
    return folder / f"sample_{number:08d}.safetensors"


def write(file: Path, sample: Sample, features: Tensor, origin: Origin) -> None:
    """Store one sample durably."""
    from safetensors.torch import save

    tensors = {
        "input_ids": torch.tensor(sample.input_ids),
        "loss_mask": torch.tensor(sample.supervised, dtype=torch.uint8),
        "features": features.contiguous(),
    }
    about = {
        "id": sample.id,
        "target": origin.target,
        "taps": ",".join(map(str, origin.taps)),
        "dtype": origin.dtype,
    }
    write_durably(file, save(tensors, metadata=about))


def read(file: Path) -> tuple[Sample, Tensor, Origin]:
    """Load one sample; refuses lengths that do not fit and files that are not whole."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), framework="pt") as stored:
            about = stored.metadata() or {}
            ids, mask = stored.get_tensor("input_ids"), stored.get_tensor("loss_mask")
            features = stored.get_tensor("features")
    except FileNotFoundError:
        raise Refused(f"{file}: no such file") from None
    except SafetensorError as error:
        raise Refused(f"{file}: not stored features: {error}") from None
    if not len(ids) == len(mask) == len(features):
        raise Refused(f"{file}: {len(ids)} tokens, {len(mask)} mask entries, {len(features)} feature rows")
    taps = tuple(int(t) for t in about.get("taps", "").split(",") if t)
    sample = Sample(about.get("id", file.stem), ids.tolist(), mask.bool().tolist())
    return sample, features, Origin(about.get("target", ""), taps, about.get("dtype", ""))


class Stored:
    """A feature source that reads files, one micro-batch ahead."""

    def __init__(self, files: Sequence[Path], plan: Plan, origin: Origin) -> None:
        self.files, self.plan, self.origin = files, plan, origin
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="features")
        self._ahead: dict[int, Any] = {}

    def get(self, number: int) -> MicroBatch:
        """A micro-batch, read while the one before it was trained on."""
        now = self._ahead.pop(number, None) or self._reader.submit(self._load, number)
        self._ahead[number + 1] = self._reader.submit(self._load, number + 1)
        batch: MicroBatch = now.result()
        return batch

    def _load(self, number: int) -> MicroBatch:
        loaded = [read(self.files[i]) for i in self.plan.numbers_at(number)]
        for _, _, origin in loaded:
            self.origin.require(origin)
        longest = max(len(features) for _, features, _ in loaded)
        width = loaded[0][1].shape[1]
        padded = loaded[0][1].new_zeros(len(loaded), longest, width)
        for row, (_, features, _) in enumerate(loaded):
            padded[row, : len(features)] = features
        return MicroBatch([sample for sample, _, _ in loaded], padded, self.origin)

    def measures(self) -> dict[str, Any]:
        """Nothing to say: the disk either keeps up or shows in tokens per second."""
        return {}

    def close(self) -> None:
        """Stop reading ahead."""
        self._reader.shutdown(wait=True, cancel_futures=True)


def stored_files(folder: Path) -> list[Path]:
    """All samples of a folder, in order."""
    files = sorted(folder.glob("sample_*.safetensors"))
    if not files:
        raise Refused(f"{folder}: no sample_*.safetensors here", "store_features.py makes them")
    return files
