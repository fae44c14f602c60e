"""The live run: a real small DFlash training, made on the spot and started as an operator would."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostkit.bundled import bundled
from hostkit.errors import HostkitError
from hostkit.identity import Identity
from hostkit.practice import processes
from hostkit.practice.furnish import Settings
from hostkit.practice.lifecycle import until
from hostkit.practice.root import Root
from hostkit.practice.servers import shell_environment
from hostkit.transport.base import Transport

_HERE = Path(__file__).parent


def install(root: Root) -> None:
    """Give the training host its copy of the payload, beside which a user's own trainer would stand."""
    source = bundled("remote_payloads")
    shutil.copytree(
        source, root.trainer.parent, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )


def make_target(root: Root, settings: Settings, progress: Callable[[int, int], None]) -> None:
    """Train the tiny target model on ct200, and give ct129 a copy: each host has its own, as in a real fleet."""
    argv = [settings.python, str(root.trainer.with_name("make_tiny_target.py"))]
    argv += ["--out", str(root.training_target), "--steps", str(settings.target_steps), "--threads", "1"]
    last = ""
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=shell_environment(root, root.ct200),
        cwd=root.ct200.home,
        text=True,
        errors="replace",
    ) as child:
        processes.note(root, "the making of the target", child.pid)
        assert child.stdout is not None
        try:
            for line in child.stdout:
                last = line.strip() or last
                event = _json(line)
                if event.get("event") == "progress":
                    progress(int(event["done"]), int(event["of"]))
                elif event.get("event") == "error":
                    last = str(event.get("what"))
        except BaseException:
            child.kill()
            raise
    if child.returncode != 0:
        raise HostkitError(f"the target could not be made: {last}", where="practice, ct200")
    shutil.copytree(root.training_target, root.evaluation_target)


def start(root: Root, transport: Transport, argv: list[str]) -> Identity:
    """Start the training on ct200 through the whole chain of hosts, detached, and record its process."""
    detach = [sys.executable, "-I", "-S", str(_HERE / "detach.py"), str(root.train_log)]
    done = transport.run([*detach, *argv], timeout=30)
    if not done.ok or not done.stdout.strip().isdigit():
        words = done.stderr.decode("utf-8", "replace").strip() or f"exit {done.exit}"
        raise HostkitError(f"the training could not be started: {words}", where="ct200")
    who = processes.note(root, "the training", int(done.stdout))
    if who is None:
        raise _ended(root)
    return who


def command(root: Root, settings: Settings) -> list[str]:
    """Return the argv of the training."""
    return [
        settings.python,
        str(root.trainer),
        *("--target", str(root.training_target)),
        *("--out", str(root.checkpoints)),
        *("--steps", str(settings.total_steps)),
        *("--save-every", str(settings.save_every)),
        *("--block-size", str(settings.block_size)),
        *("--recipe", "tiny"),
        *("--warmup", f"{100 / settings.total_steps:g}"),
        *("--log-every", "5"),
        *("--keep", "20"),  # a kept fleet may run for hours
        *("--threads", "1"),
        *("--pace", str(settings.pace)),
    ]


def wait_for_checkpoint(
    root: Root, who: Identity, step: int, seconds: float, progress: Callable[[int], None]
) -> None:
    """Wait for the checkpoint of `step`. Raises HostkitError when the training ends before, or is too slow."""
    path = root.checkpoints / f"step_{step}" / "checkpoint.pt"

    def look() -> bool | None:
        progress(live_step(root))
        if not processes.alive(who):
            raise _ended(root)
        return True if path.exists() else None

    if until(look, seconds, every=0.5) is None:
        raise HostkitError(
            f"the training has not saved step {step} in {seconds:.0f} s; it is at step {live_step(root)}",
            where=str(root.train_log),
            hint="this machine is busy, or slow: try again when it is not",
        )


def live_step(root: Root) -> int:
    """Return the last step in the training's log, 0 before the first."""
    try:
        with root.train_log.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - 4096))
            lines = log.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return 0
    return max(
        (int(event["step"]) for line in lines if isinstance((event := _json(line)).get("step"), int)),
        default=0,
    )


def _ended(root: Root) -> HostkitError:
    lines = root.train_log.read_text(errors="replace").strip().splitlines() if root.train_log.exists() else []
    errors = [str(event["what"]) for line in lines if (event := _json(line)).get("event") == "error"]
    last = (errors or lines or ["it said nothing"])[-1]
    return HostkitError(f"the training ended by itself: {last}", where=str(root.train_log))


def _json(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
