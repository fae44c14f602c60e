"""The bundled harness: remote_payloads/eval_drafter.py and all that it imports."""

from __future__ import annotations

import ast
import json
from functools import cached_property
from pathlib import Path
from typing import Any

from hostkit.bundled import bundled
from hostkit.checkpoints import Contents, Fit, Layout, fits
from hostkit.errors import ConfigError, DataError
from hostkit.evals import results
from hostkit.evals.harness import Preflight
from hostkit.evals.harness_files import HarnessFiles
from hostkit.evals.prompts import Prompts
from hostkit.evals.request import Sample, WorkspacePaths
from hostkit.evals.results import EvalResult
from hostkit.formatting import size
from hostkit.inventory.models import Eval
from hostkit.transport.base import Transport

EVALUATE, PREFLIGHT = "eval_drafter.py", "preflight.py"
BUNDLED_PROMPTS = "dflash/data/prompts.jsonl"
DDTREE_BUDGETS = (16, 64)
PREFLIGHT_BUDGET = 120.0  # seconds; it reads config files and headers, and asks the API once
_SETTINGS = {"block_size", "seed", "max_prompts", "max_new_tokens", "thinking", "python"}


class DFlash:
    """See `Harness`."""

    @cached_property
    def files(self) -> HarnessFiles:
        folder = bundled("remote_payloads")
        return HarnessFiles(folder, (*imported(folder, EVALUATE, PREFLIGHT), BUNDLED_PROMPTS))

    def prompts(self, evaluation: Eval) -> Prompts:
        paths = WorkspacePaths(evaluation.workspace)
        if evaluation.prompts == "bundled":
            sha256 = self.files.hashes[BUNDLED_PROMPTS]
            return Prompts(f"{paths.harness}/{BUNDLED_PROMPTS}", sha256, paths.harness)
        return Prompts.read(evaluation.prompts, f"{paths.workspace}/prompts")

    def settings(self, evaluation: Eval) -> dict[str, Any]:
        return {
            "target": evaluation.target.model_dump() if evaluation.target else None,
            "settings": evaluation.model_dump(include=_SETTINGS),
        }

    def verify(self, contents: Contents, *, step: int, layout: Layout) -> Fit:
        return fits(contents, step=step, layout=layout)

    def preflight(
        self, transport: Transport, evaluation: Eval, sample: Sample, prompts: Prompts, contents: Contents
    ) -> Preflight:
        script = f"{WorkspacePaths(evaluation.workspace).harness}/{PREFLIGHT}"
        # -B: a dry run leaves no bytecode behind
        argv = [
            evaluation.python,
            "-B",
            script,
            "--drafter-config",
            "-",
            *_flags(evaluation, sample, prompts),
        ]
        config = json.dumps(dict(contents.metadata["config"])).encode()
        done = transport.run(argv, stdin=config, timeout=PREFLIGHT_BUDGET)
        where = f"{transport.host}:{evaluation.python}"
        if done.exit in (126, 127):
            raise _missing(
                [f"{evaluation.python}: not found or not executable; set `python:` of the evaluation"], where
            )
        try:
            document = json.loads(done.stdout)
            missing = [f"{item['what']}: {item['why']}; {item['try']}" for item in document["missing"]]
            peak = disk = 0
            if not missing:
                peak, disk = int(document["memory"]["peak_bytes"]), int(document["disk"]["needed_bytes"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            stderr = done.stderr.decode("utf-8", "replace").strip()[-300:]
            raise DataError(
                f"preflight gave no answer (exit {done.exit}): {stderr}",
                where=where,
                hint=f"run it there by hand: {evaluation.python} {script} --help",
            ) from error
        limit = evaluation.limits.memory
        if limit is not None and limit < peak:
            missing.append(
                f"memory: limits.memory is {size(limit)}, the evaluation takes up to {size(peak)}; "
                "raise the limit in the inventory, or remove it"
            )
        if missing:
            raise _missing(missing, where)
        references = document.get("references") or {}
        return Preflight(
            peak,
            disk,
            f"nothing missing; peak memory {size(peak)}, "
            f"references and features cached: {references.get('cached')} of {references.get('of')}",
        )

    def argv(
        self,
        evaluation: Eval,
        sample: Sample,
        prompts: Prompts,
        *,
        checkpoint: str,
        out: str,
        evaluation_id: str,
        one_block: bool,
    ) -> list[str]:
        script = f"{WorkspacePaths(evaluation.workspace).harness}/{EVALUATE}"
        argv = [evaluation.python, "-u", script, "--checkpoint", checkpoint]
        argv += [*_flags(evaluation, sample, prompts), "--out", out, "--id", evaluation_id]
        argv += ["--ddtree", ",".join(map(str, DDTREE_BUDGETS))]
        if evaluation.limits.cpus is not None:
            argv += ["--threads", str(evaluation.limits.cpus)]
        return [*argv, "--smoke"] if one_block else argv

    def progress(self, event: dict[str, Any]) -> str:
        kind = event.get("event")
        if kind == "smoke":
            return "one block works end to end" if event.get("ok") else "one block failed"
        if kind != "progress":
            return ""
        text = f"{event.get('phase')} {event.get('done')}/{event.get('of')}"
        rate, missing = event.get("tokens_per_s"), event.get("missing")
        if isinstance(rate, int | float):
            text += f", {rate:.1f} tokens/s"
        return text + (f", {missing} is missing" if missing else "")

    def parse(self, data: bytes, *, where: str) -> EvalResult:
        return results.parse(data, where=where)


def _flags(evaluation: Eval, sample: Sample, prompts: Prompts) -> list[str]:
    """Return the flags that the preflight and the evaluation share."""
    paths = WorkspacePaths(evaluation.workspace)
    flags = ["--prompts", prompts.path, "--work", paths.cache, "--seed", str(evaluation.seed)]
    flags += ["--blocks-per-prompt", str(sample.blocks_per_prompt)]
    flags += ["--max-new-tokens", str(evaluation.max_new_tokens)]
    if evaluation.target is not None:
        flags += ["--target", evaluation.target.model]
        if evaluation.target.api is not None:
            flags += ["--api", evaluation.target.api]
    if evaluation.max_prompts is not None:
        flags += ["--max-prompts", str(evaluation.max_prompts)]
    if evaluation.block_size is not None:
        flags += ["--block-size", str(evaluation.block_size)]
    if evaluation.thinking:
        flags += ["--thinking"]
    return flags


def _missing(missing: list[str], where: str) -> ConfigError:
    count = f"{len(missing)} {'thing is' if len(missing) == 1 else 'things are'}"
    return ConfigError(f"preflight: {count} missing", faults=tuple(missing), where=where)


def imported(folder: Path, *scripts: str) -> tuple[str, ...]:
    """Return these scripts and every file below `folder` that they import, directly or not, by relative name."""
    names: set[str] = set()
    pending = list(scripts)
    while pending:
        name = pending.pop()
        if name in names or not (folder / name).is_file():
            continue
        names.add(name)
        for node in ast.walk(ast.parse((folder / name).read_bytes())):
            modules: list[str] = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for module in modules:
                parts = module.split(".")
                pending += ["/".join([*parts[:end], "__init__.py"]) for end in range(1, len(parts) + 1)]
                pending.append("/".join(parts) + ".py")
    return tuple(sorted(names))
