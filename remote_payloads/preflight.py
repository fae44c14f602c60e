#!/usr/bin/env python3
"""Say what an evaluation needs and what of it is missing, before anything is loaded or started.

    python preflight.py --checkpoint PATH --target DIR --work DIR [flags of eval_drafter.py]
    python preflight.py --drafter-config - --target DIR --work DIR [flags of eval_drafter.py] <config.json

Prints one JSON document, hostkit.preflight/1. Standard library only, Python 3.8: it must run where nothing
else does. Exit status 0 when nothing is missing, 1 otherwise.
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any, Dict, List, Optional

from dflash import events, harness
from dflash.data import prompts
from dflash.data.api_client import Api
from dflash.data.cache_keys import feature_file, feature_key, reference_file, reference_key
from dflash.drafter.config import DraftConfig
from dflash.drafter.locate import config_without_torch, parse_config
from dflash.errors import Refused
from dflash.evaluation import arguments
from dflash.evaluation import memory as evaluation_memory
from dflash.evaluation.compatibility import misfits
from dflash.target.identity import identify, vocabulary_files

PACKAGES = {"torch": "2.6", "transformers": "5", "safetensors": "0.4.5", "numpy": "2", "tokenizers": "0.20"}
PYTHON = (3, 10)


class Preflight:
    """Collects facts and all faults; nothing stops at the first one."""

    def __init__(self, args: Any) -> None:
        self.args = args
        self.missing = []  # type: List[Dict[str, str]]
        self.identity = None  # type: Optional[Dict[str, Any]]
        self.config = None  # type: Optional[DraftConfig]
        self.prompts = []  # type: List[prompts.Prompt]

    def document(self) -> Dict[str, Any]:
        """Everything that is known, and the one list of what is missing."""
        packages = self._packages()
        self._prompts()
        self._target()
        self._checkpoint()
        references = self._references()
        memory, disk = self._sizes(references)
        return {
            "schema": "hostkit.preflight/1",
            "python": platform.python_version(),
            "executable": sys.executable,
            "packages": packages,
            "missing": self.missing,
            "memory": memory,
            "disk": disk,
            "references": {k: references[k] for k in ("cached", "of", "source")},
            "features": {"cached": references["features"], "of": references["of"]},
            "drafter": self.config.document() if self.config else None,
            "target": self.identity,
            "files": harness.hashes(),
        }

    def _miss(self, what: str, why: str, hint: str) -> None:
        self.missing.append({"what": what, "why": why, "try": hint})

    def _packages(self) -> Dict[str, Optional[str]]:
        if sys.version_info < PYTHON:
            wanted = ".".join(map(str, PYTHON))
            self._miss(
                "Python " + wanted,
                "this is " + platform.python_version(),
                "a newer interpreter in the inventory",
            )
        found = {}  # type: Dict[str, Optional[str]]
        for name, least in PACKAGES.items():
            version = _version(name)
            found[name] = version
            hint = "{} -m pip install '{}>={}'".format(sys.executable, name, least)
            if version is None:
                self._miss("package " + name, "not installed for this interpreter", hint)
            elif _numbers(version) < _numbers(least):
                self._miss("package {} {}".format(name, least), "{} is installed".format(version), hint)
        return found

    def _prompts(self) -> None:
        try:
            self.prompts = prompts.choose(prompts.read(self.args.prompts), self.args.max_prompts)
        except Refused as refused:
            self._miss("prompts", refused.what, refused.hint or "a JSONL file")

    def _target(self) -> None:
        folder = self.args.target
        try:
            self.identity = identify(folder)
        except Refused as refused:
            self._miss("target", refused.what, refused.hint or "the folder of the model")
            return
        if not vocabulary_files(folder):
            self._miss("tokenizer", "{}: no tokenizer.json".format(folder), "copy the whole model folder")
        if self.identity["template_sha256"] is None and any(p.messages for p in self.prompts):
            self._miss("chat template", "{}: the tokenizer has none".format(folder), "prompts as plain text")
        for fault in _weight_faults(folder):
            self._miss("target weights", fault, "copy the whole model folder")

    def _checkpoint(self) -> None:
        path = self.args.checkpoint
        try:
            if self.args.drafter_config is not None:
                self.config = parse_config(_given(self.args.drafter_config))
            elif path is None:
                raise Refused("neither --checkpoint nor --drafter-config is given")
            else:
                self.config = config_without_torch(path)
        except Refused as refused:
            self._miss("checkpoint", refused.what, refused.hint or "a drafter that this harness loads")
            return
        if self.identity is not None:
            for wrong in misfits(self.config, self._target_config()):
                self._miss("matching target", wrong, "the target that the drafter was trained on")

    def _target_config(self) -> Dict[str, Any]:
        return dict(json.loads((self.args.target / "config.json").read_text(encoding="utf-8")))

    def _references(self) -> Dict[str, Any]:
        source = "api" if self.args.api else "target"
        out = {"cached": 0, "of": len(self.prompts), "source": source, "features": 0, "longest": 0}  # type: Dict[str, Any]
        if self.identity is None:
            return out
        dtype = self._dtype()
        taps = list(self.config.target_layer_ids) if self.config else []
        for prompt in self.prompts:
            key = reference_key(
                prompt,
                self.identity,
                source=source,
                max_new_tokens=self.args.max_new_tokens,
                thinking=self.args.thinking,
                dtype=dtype,
            )
            try:
                kept = json.loads(reference_file(self.args.work, prompt, key).read_text(encoding="utf-8"))
                length = len(kept["prompt_ids"]) + len(kept["response_ids"])
                named = feature_key(kept["prompt_ids"], kept["response_ids"], self.identity, taps, dtype)
            except (OSError, ValueError, KeyError):
                # Three bytes a token is on the safe side of real tokenizers; a byte tokenizer has one.
                length = len(json.dumps(prompt.content()).encode()) + self.args.max_new_tokens
                out["longest"] = max(out["longest"], length)
                continue
            out["cached"] += 1
            out["longest"] = max(out["longest"], length)
            out["features"] += feature_file(self.args.work, prompt.id, named).is_file()
        if source == "api" and out["cached"] < out["of"]:
            try:
                Api(self.args.api, timeout=self.args.api_timeout, model=self.args.api_model).model  # noqa: B018 - asked for its refusal
            except Refused as refused:
                self._miss("reference server", refused.what, refused.hint or "start it, or leave --api out")
        return out

    def _sizes(self, references: Dict[str, Any]) -> Any:
        if self.identity is None or self.config is None:
            return {"peak_bytes": None, "parts": {}, "available_bytes": _available()}, {"needed_bytes": None}
        size = evaluation_memory.SIZES[self._dtype()]
        todo = references["of"] - references["features"]
        shape = evaluation_memory.shape_of(self._target_config())
        per_prompt = references["longest"] * self.config.feature_size * size
        parts = evaluation_memory.memory_parts(
            shape,
            target_elements=_elements(self.args.target),
            drafter_bytes=_drafter_elements(self.config) * size,
            size=size,
            feature_width=self.config.feature_size,
            longest=references["longest"],
            target_needed=todo > 0,
            budgets=self.args.budgets,
            blocks=self.args.blocks_per_prompt,
            largest_shard=max((f.stat().st_size for f in self.args.target.glob("*.safetensors")), default=0),
            block_size=self.args.block_size or self.config.block_size,
        )
        peak, available = evaluation_memory.peak(parts), _available()
        needed, free = todo * per_prompt + (4 << 20), _free(self.args.work)
        if available is not None and peak > available:
            self._miss(
                "memory",
                "needs {:.1f} GiB, {:.1f} GiB are available".format(peak / 2**30, available / 2**30),
                "another host, or features cached beforehand",
            )
        if free is not None and needed > free:
            self._miss("disk", "{} bytes are needed, {} are free".format(needed, free), "another --work")
        memory = {"peak_bytes": peak, "parts": parts, "available_bytes": available}
        return memory, {"needed_bytes": needed, "free_bytes": free}

    def _dtype(self) -> str:
        if self.args.dtype != "auto":
            return str(self.args.dtype)
        return "float32" if (self.identity or {}).get("dtype") == "float32" else "bfloat16"


def _given(name: str) -> Dict[str, Any]:
    """Read a drafter's config from a file, or from standard input."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        found = json.loads(text)
    except (OSError, ValueError) as error:
        raise Refused("--drafter-config {}: {}".format(name, error)) from None
    if not isinstance(found, dict):
        raise Refused("--drafter-config {}: not a JSON object".format(name))
    return found


def _version(package: str) -> Optional[str]:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> List[int]:
    out = []
    for part in version.split("+", 1)[0].split(".")[:3]:
        digits = "".join(c for c in part if c.isdigit())
        out.append(int(digits or 0))
    return out


def _weight_faults(folder: Path) -> List[str]:
    index = folder / "model.safetensors.index.json"
    files = sorted(folder.glob("*.safetensors"))
    faults = []
    if index.is_file():
        names = set(json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}).values())
        faults += [
            "{}: shard {} is missing".format(folder, n) for n in sorted(names) if not (folder / n).is_file()
        ]
    elif not files:
        faults.append("{}: no safetensors file".format(folder))
    for file in files:
        try:
            evaluation_memory.header(file)
        except (ValueError, KeyError, TypeError, OSError) as error:
            faults.append(str(error))
    return faults


def _elements(folder: Path) -> int:
    try:
        return evaluation_memory.elements(folder)
    except (ValueError, KeyError, TypeError, OSError):
        return 0


def _drafter_elements(config: DraftConfig) -> int:
    wide, narrow = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    layer = 2 * config.hidden_size * (wide + narrow) + 3 * config.hidden_size * config.intermediate_size
    return config.num_hidden_layers * layer + config.hidden_size * config.feature_size


def _available() -> Optional[int]:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return found[0] if found else None


def _free(folder: Path) -> Optional[int]:
    at = folder
    while not at.exists() and at != at.parent:
        at = at.parent
    try:
        return shutil.disk_usage(str(at)).free
    except OSError:
        return None


def main(argv: Optional[List[str]] = None) -> int:
    """Print the document."""
    try:
        document = Preflight(arguments.parse(__doc__ or "", argv, preflight=True)).document()
    except Refused as refused:
        document = _broken("command line", refused.what, refused.hint or "")
    except Exception as error:  # noqa: BLE001 - whoever asked reads one document, whatever stands in the files
        traceback.print_exc()
        document = _broken("preflight", "{}: {}".format(type(error).__name__, error), "its traceback: stderr")
    events.say(json.dumps(document, ensure_ascii=False))
    return 1 if document["missing"] else 0


def _broken(what: str, why: str, hint: str) -> Dict[str, Any]:
    return {"schema": "hostkit.preflight/1", "missing": [{"what": what, "why": why, "try": hint}]}


if __name__ == "__main__":
    raise SystemExit(main())
