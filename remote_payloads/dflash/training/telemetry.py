"""What a step line says of the machine: memory, GPUs where NVML is there, and W&B when asked for."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import torch

from dflash.errors import Refused


def memory(device: str) -> dict[str, Any]:
    """Bytes allocated, reserved and at most so far, and allocator retries; on the CPU resident memory."""
    if device.startswith("cuda"):
        stats = torch.cuda.memory_stats(device)
        return {
            "allocated": stats.get("allocated_bytes.all.current", 0),
            "reserved": stats.get("reserved_bytes.all.current", 0),
            "peak": stats.get("allocated_bytes.all.peak", 0),
            "retries": stats.get("num_alloc_retries", 0),
        }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        now: int | None = pages * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        now = None
    return {"allocated": now, "reserved": None, "peak": peak, "retries": None}


class Nvml:
    """GPU use and memory through NVML, where the `nvidia-ml-py` package and a driver are; else nothing."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        try:
            import pynvml  # type: ignore[import-not-found]

            pynvml.nvmlInit()
        except Exception:  # noqa: BLE001 - no package, no driver, no permission: there are no figures
            return
        self._nvml = pynvml
        self._handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]

    def read(self) -> dict[str, Any]:
        """Per GPU: use in per cent, memory in bytes, temperature."""
        gpus: list[dict[str, Any]] = []
        for handle in self._handles:
            try:
                use = self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu
                used = self._nvml.nvmlDeviceGetMemoryInfo(handle).used
                heat = self._nvml.nvmlDeviceGetTemperature(handle, 0)
            except self._nvml.NVMLError as error:
                gpus.append({"error": str(error)})
            else:
                gpus.append({"use": int(use), "memory": int(used), "temperature": int(heat)})
        return {"gpus": gpus} if gpus else {}


class Wandb:
    """A Weights & Biases run, when asked for; its failures later on never end a training."""

    def __init__(self, project: str | None, config: dict[str, Any], run_id: str) -> None:
        self._run: Any = None
        if project is None:
            return
        try:
            import wandb  # type: ignore[import-not-found]
        except ModuleNotFoundError:
            raise Refused(
                "--wandb: Python package wandb is missing", "install it, or leave the flag out"
            ) from None
        self._run = wandb.init(project=project, config=config, id=run_id, resume="allow")

    def log(self, fields: dict[str, Any]) -> None:
        """Send the numbers of a step line."""
        if self._run is None:
            return
        numbers = {k: v for k, v in fields.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
        self._run.log(numbers, step=fields["step"])

    def close(self) -> None:
        """Finish the run."""
        if self._run is not None:
            self._run.finish()
