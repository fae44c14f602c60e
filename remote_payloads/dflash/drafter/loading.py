"""Loading a drafter from whatever it was saved as, exactly or not at all; writing the published layout.

Known: the published folder (config.json + safetensors), our `checkpoint.pt`, a bare `.pt` or `.safetensors`
beside a config.json, and (untested) those of foreign_formats.py. The key set and every shape must match;
nothing is loaded "non-strict".
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dflash.drafter import checkpoint
from dflash.drafter.config import DraftConfig
from dflash.drafter.foreign_formats import drafters_own, is_speculators, step_of
from dflash.drafter.locate import config_beside, parse_config, weights_file
from dflash.drafter.model import Drafter
from dflash.errors import Refused
from dflash.files import write_durably

PREFIXES = ("module.", "_orig_mod.", "draft_model.", "model.")
NESTED = ("draft_state_dict", "drafter", "model_state_dict", "state_dict", "model")
FOREIGN_KEYS = {
    "qkv_proj": "fused qkv_proj weights",
    "aux_hidden_norms.": "a Laguna drafter (aux_hidden_norms)",
}


@dataclass
class LoadedDrafter:
    """A drafter and what its file says about itself."""

    drafter: Drafter
    format: str
    step: int | None = None
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> DraftConfig:
        return self.drafter.config


def load_drafter(path: Path, dtype: torch.dtype = torch.float32) -> LoadedDrafter:
    """Load from a folder or file, on the CPU, in `dtype`; `Refused` names what does not fit."""
    if dtype == torch.float16:
        raise Refused("float16 overflows in a drafter", "bfloat16 or float32")
    config, tensors, loaded = read_drafter(path)
    with torch.device("meta"):
        drafter = Drafter(config)
    check_tensors(tensors, expected_shapes(config), str(path))
    drafter.load_state_dict({name: t.to(dtype) for name, t in tensors.items()}, strict=True, assign=True)
    loaded.drafter = drafter.eval().requires_grad_(False)
    return loaded


def read_drafter(path: Path) -> tuple[DraftConfig, dict[str, Tensor], LoadedDrafter]:
    """Config, tensors under their bare names, and the file's own account, without building a module."""
    file = weights_file(path)
    if file.suffix == ".safetensors":
        tensors, document, loaded = _safetensors(file), None, _empty("published")
    else:
        saved = checkpoint.read(file)
        tensors, document = _find_tensors(saved, file), saved.get("config")
        about = {k: v for k, v in saved.items() if not _is_tensors(v)}
        known = saved.get("format") == checkpoint.FORMAT
        loaded = _empty(checkpoint.FORMAT if known else "torch", step_of(saved), about)
    if not isinstance(document, dict):
        document = config_beside(file)
    tensors = _bare_names(tensors, file)
    if is_speculators(document):
        tensors = drafters_own(tensors)
        loaded.format = "speculators (untested)"
    return parse_config(document), tensors, loaded


def expected_shapes(config: DraftConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a drafter of this config: 3 tensors and 11 per layer."""
    with torch.device("meta"):
        return {name: tuple(p.shape) for name, p in Drafter(config).named_parameters()}


def check_tensors(tensors: dict[str, Tensor], expected: dict[str, tuple[int, ...]], where: str) -> None:
    """Exactly these names, these shapes, finite values of a sound dtype; all faults in one message."""
    for key in tensors:
        for part, what in FOREIGN_KEYS.items():
            if part in key:
                raise Refused(f"{where}: {what}, not DFlash ({key})")
    faults = []
    missing, extra = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing:
        faults.append(f"{len(missing)} missing: {', '.join(missing[:4])}{' …' if len(missing) > 4 else ''}")
    if extra:
        faults.append(
            f"{len(extra)} not of a drafter: {', '.join(extra[:4])}{' …' if len(extra) > 4 else ''}"
        )
    for name in sorted(expected.keys() & tensors.keys()):
        tensor = tensors[name]
        if tuple(tensor.shape) != expected[name]:
            faults.append(f"{name} is {list(tensor.shape)}, the config says {list(expected[name])}")
        elif tensor.dtype not in (torch.bfloat16, torch.float32):
            faults.append(f"{name} is {str(tensor.dtype).removeprefix('torch.')} (bfloat16 or float32 only)")
        elif not torch.isfinite(tensor).all():
            faults.append(f"{name} has values that are not finite")
    if faults:
        raise Refused(f"{where}: tensors do not fit: " + "; ".join(faults[:8]))


def export(config: DraftConfig, tensors: dict[str, Tensor], folder: Path) -> None:
    """Write the published layout; tensors keep their dtype, so that a round trip is bit-equal."""
    from safetensors.torch import save

    dtypes = {t.dtype for t in tensors.values()}
    name = str(next(iter(dtypes))).removeprefix("torch.") if len(dtypes) == 1 else "float32"
    folder.mkdir(parents=True, exist_ok=True)
    body = save({k: t.contiguous() for k, t in sorted(tensors.items())}, metadata={"format": "pt"})
    write_durably(folder / "model.safetensors", body)
    document = json.dumps(config.document(dtype=name), indent=2) + "\n"
    write_durably(folder / "config.json", document.encode())


def _empty(kind: str, step: int | None = None, about: dict[str, Any] | None = None) -> LoadedDrafter:
    return LoadedDrafter(None, kind, step, about or {})  # type: ignore[arg-type]


def _safetensors(file: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(str(file))
    except SafetensorError as error:
        raise Refused(f"{file}: not a whole safetensors file: {error}") from None


def _is_tensors(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(t, Tensor) for t in value.values())


def _find_tensors(saved: dict[str, Any], file: Path) -> dict[str, Tensor]:
    if _is_tensors(saved):
        return saved
    for name in NESTED:
        if _is_tensors(saved.get(name)):
            found: dict[str, Tensor] = saved[name]
            return found
    raise Refused(
        f"{file}: no drafter weights among its keys {sorted(map(str, saved))[:12]}",
        f"known: {', '.join(NESTED)}",
    )


def _bare_names(tensors: dict[str, Tensor], file: Path) -> dict[str, Tensor]:
    """Tensors without their wrappers' prefixes; two of one name would leave it to chance which is loaded."""
    bare: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if _bare(str(name)) in bare:
            raise Refused(f"{file}: two tensors are called {_bare(str(name))} (one of them {name})")
        bare[_bare(str(name))] = tensor
    return bare


def _bare(name: str) -> str:
    while True:
        prefix = next((p for p in PREFIXES if name.startswith(p)), None)
        if prefix is None:
            return name
        name = name[len(prefix) :]
