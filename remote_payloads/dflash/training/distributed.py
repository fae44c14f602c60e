"""Drafter ranks under torchrun: who this process is, and what all ranks agree on. Alone, all of it is trivial."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn


class Ranks:
    """This process's place; gloo on the CPU, nccl on GPUs."""

    def __init__(self, device: str) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.local = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = f"cuda:{self.local}" if device == "cuda" and self.world > 1 else device
        self._joined = self.world > 1
        if self._joined:
            if self.device.startswith("cuda"):
                torch.cuda.set_device(self.device)
            torch.distributed.init_process_group("nccl" if self.device.startswith("cuda") else "gloo")

    @property
    def first(self) -> bool:
        """Whether this rank logs and saves."""
        return self.rank == 0

    def wrap(self, model: nn.Module) -> Any:
        """Average gradients over ranks."""
        if not self._joined:
            return model
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(model)

    def total(self, *values: float) -> list[float]:
        """Each value summed over all ranks, in double precision."""
        if not self._joined:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(tensor)
        sums: list[float] = tensor.tolist()
        return sums

    def wait(self) -> None:
        """Until all ranks are here."""
        if self._joined:
            torch.distributed.barrier()

    def leave(self) -> None:
        """End the group."""
        if self._joined:
            torch.distributed.destroy_process_group()
            self._joined = False
