"""A training run from start to end: steps, logs, saves, and ends for a stated reason."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import math
import subprocess
import time
from pathlib import Path
from typing import Any

import torch

from dflash import harness
from dflash.data.seeds import generator
from dflash.drafter.model import Drafter
from dflash.errors import Refused
from dflash.events import HINTS, emit, os_words
from dflash.features.queue import ProducerDied
from dflash.features.source import FeatureSource
from dflash.training import files, telemetry
from dflash.training.blocks import default_gamma, loss_weights, make_blocks
from dflash.training.distributed import Ranks
from dflash.training.log import TrainLog
from dflash.training.setup import Setup
from dflash.training.stop_requests import Stopping
from dflash.training.trainer import DraftLoss, Recipe, StepResult, Trainer

# Flags that decide what is trained: another value after a resume is no longer the run that was begun.
DECISIVE = (
    "steps", "seed", "batch", "accumulate", "ranks", "anchors", "max_length", "lr", "warmup", "clip",
    "weight_decay", "gamma", "autocast", "data", "features", "pool", "temperature", "thinking", "dtype",
)  # fmt: skip
ELSEWHERE = "of another rank"


@dataclasses.dataclass(frozen=True)
class Taken:
    """A step as all ranks agree on it; `anchors` drawn of those `possible`, counted where it is logged."""

    result: StepResult
    tokens: float
    asked: bool
    triggered: bool
    anchors: int
    possible: int


class Run:
    """One rank's run; `go` returns the exit status: 0 finished or stopped on request, 1 ended by a fault."""

    def __init__(self, args: argparse.Namespace) -> None:
        from transformers.utils import logging

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        if args.threads:
            torch.set_num_threads(args.threads)
        self.args = args
        self.stopping = Stopping(args.save_trigger)
        self.stopping.listen()
        self._stopped, self._saved = False, True
        self.ranks = Ranks(args.device)
        self.log = TrainLog(args.log, silent=not self.ranks.first)
        args.out.mkdir(parents=True, exist_ok=True)
        self.setup = Setup(args, self.ranks, self.log)
        self.config = self.setup.config
        recipe = Recipe(
            steps=args.steps,
            lr=args.lr,
            warmup=args.warmup,
            clip=args.clip,
            weight_decay=args.weight_decay,
            gamma=args.gamma or default_gamma(self.config.block_size),
            autocast=args.autocast,
            loss_rows=args.loss_rows,
        )
        drafter = Drafter(self.config).reset_parameters(generator(args.seed, "weights")).to(self.setup.device)
        model = DraftLoss(drafter, loss_weights(self.config.block_size, recipe.gamma), args.loss_rows)
        self.trainer = Trainer(model, recipe, self.setup.vocabulary, self.ranks.wrap)
        self.done = self._resume()
        name = hashlib.sha256(str(args.out.resolve()).encode()).hexdigest()[:8]
        self.wandb = telemetry.Wandb(args.wandb if self.ranks.first else None, plain(args), name)
        self.nvml = telemetry.Nvml() if self.ranks.first else None

    def _resume(self) -> int:
        state = files.newest_state(self.args.out, self.config)
        if state is None:
            return 0
        theirs = state.get("target")
        if theirs is not None and theirs != self.setup.identity["fingerprint"]:
            raise Refused(
                f"{self.args.out}: step_{state['step']} was trained on another target ({str(theirs)[:12]})",
                "another --out, or the target that it was trained on",
            )
        self.trainer.load(state)
        then, now = state.get("training") or {}, self._training()
        changed = {k: [then[k], now[k]] for k in DECISIVE if k in then and then[k] != now[k]}
        self.log.event("resumed", step=state["step"], **({"changed": changed} if changed else {}))
        return int(state["step"])

    def _training(self) -> dict[str, Any]:
        return {**plain(self.args), "ranks": self.ranks.world}

    def go(self) -> int:
        """Train to the last step, or until asked to stop."""
        args = self.args
        size = sum(p.numel() for p in self.trainer.model.parameters())
        self.log.event("started", step=self.done, of=args.steps, parameters=size, ranks=self.ranks.world)
        source = self.setup.source(self.done * args.accumulate)
        try:
            for step in range(self.done + 1, args.steps + 1):
                if not self._advance(source, step):
                    return 0 if self._stopped and self._saved else 1
            self.log.event("finished", step=self.done, **({} if self._saved else {"saved": False}))
            self.ranks.wait()  # for who saves: a group that one rank has left may end the others with a signal
            return 0 if self._saved else 1
        except ProducerDied as death:
            if self.done:
                self._save(self.done)
            self._say_died(death)
            return 1
        finally:
            source.close()
            self.wandb.close()
            self.log.close()
            self.ranks.leave()

    def _say_died(self, death: ProducerDied) -> None:
        """The first rank speaks for all; the rank whose worker it was says why, as only it knows."""
        self.log.event("producer_died", step=self.done, worker=death.worker, what=str(death))
        if not self.ranks.first and death.worker != ELSEWHERE:
            emit("producer_died", rank=self.ranks.rank, step=self.done, worker=death.worker, what=str(death))

    def _advance(self, source: FeatureSource, step: int) -> bool:
        """One step and what is due after it; False when the run is to end."""
        args = self.args
        began = time.monotonic()
        taken = self._step(source, step)
        if not taken.result.finite:
            self._diverged(step, taken.result)
            return False
        self.done = step
        if self._logs(step):
            line = self._line(step, taken, taken.tokens / (time.monotonic() - began)) | source.measures()
            self.log.step(line)
            self.wandb.log(line)
        if step % args.save_every == 0 or step == args.steps or taken.asked or taken.triggered:
            self._saved = self._save(step)
        if taken.asked:
            self._stopped = True
            self.log.event("stopped", step=step, reason=self.stopping.reason or "another rank was asked to")
            return False
        self.stopping.pause(args.pace)
        return True

    def _logs(self, step: int) -> bool:
        return step % self.args.log_every == 0 or step in (1, self.args.steps)

    def _step(self, source: FeatureSource, step: int) -> Taken:
        """All ranks take the step together and agree on its loss, on stopping and on saving."""
        args, ranks, logs = self.args, self.ranks, self._logs(step)
        batches, tokens, weight, drawn, possible = [], 0, 0.0, 0, 0
        death: ProducerDied | None = None
        try:
            for micro in range((step - 1) * args.accumulate, step * args.accumulate):
                batch = source.get(micro)
                self.setup.origin.require(batch.origin)
                numbers = generator(args.seed, "anchors", micro * ranks.world + ranks.rank)
                blocks = make_blocks(batch.samples, args.anchors, self.config.block_size, numbers)
                batches.append((blocks.to(self.setup.device), batch.features.to(self.setup.device)))
                tokens += batch.tokens
                weight += self.trainer.model.weight_of(blocks)
                if logs:
                    drawn += int(blocks.valid.sum())
                    possible += sum(len(sample.candidates()) for sample in batch.samples)
        except ProducerDied as died:
            death = died  # the others wait in the sum below: they must hear of it there
        trigger = ranks.first and self.stopping.save_now()
        weight, asked, triggered, all_tokens, dead, *anchors = ranks.total(
            weight, self.stopping.asked, trigger, tokens, death is not None, drawn, possible
        )
        if dead:
            raise death or ProducerDied(ELSEWHERE, RuntimeError("that rank says why"))
        result = self.trainer.step(step, batches, weight, world=ranks.world, count=logs)
        depth = len(result.hits)
        loss, streaks, count, *slots = ranks.total(
            result.loss, result.streaks, result.blocks, *result.hits, *result.scored
        )
        hits, scored = [int(n) for n in slots[:depth]], [int(n) for n in slots[depth:]]
        agreed = dataclasses.replace(
            result, loss=loss, streaks=int(streaks), blocks=int(count), hits=hits, scored=scored
        )
        return Taken(agreed, all_tokens, bool(asked), bool(triggered), int(anchors[0]), int(anchors[1]))

    def _line(self, step: int, taken: Taken, rate: float) -> dict[str, Any]:
        result = taken.result
        per_slot = [round(h / s, 4) if s else None for h, s in zip(result.hits, result.scored, strict=True)]
        return {
            "step": step,
            "loss": round(result.loss, 5) if math.isfinite(result.loss) else result.loss,
            "grad_norm": round(result.grad_norm, 5),
            "lr": result.lr,
            "tokens_per_s": round(rate, 1),
            "accuracy": round(sum(result.hits) / max(1, sum(result.scored)), 4),
            "accept_len": round(result.streaks / result.blocks, 4) if result.blocks else None,
            "per_position": per_slot,
            "anchors": taken.anchors,
            "anchor_share": round(taken.anchors / taken.possible, 4) if taken.possible else None,
            "memory": telemetry.memory(self.ranks.device),
            **(self.nvml.read() if self.nvml else {}),
        }

    def _save(self, step: int) -> bool:
        """Whether it was saved. A full disk ends no training: said, and tried again when the next save is due."""
        if not self.ranks.first:
            return True
        began = time.monotonic()
        try:
            path = files.save(
                self.args.out,
                step,
                config=self.config,
                weights=dict(self.trainer.model.drafter.named_parameters()),
                about=self._about(),
                state=self._state(),
            )
        except OSError as error:
            files.discard(self.args.out, step)
            self.log.event("save_failed", step=step, what=os_words(error), hint=HINTS.get(error.errno or 0))
            return False
        extra: dict[str, Any] = {}
        try:
            removed = files.retain(self.args.out, self.args.keep, self.args.keep_every)
            extra = {"removed": removed} if removed else {}
        except OSError as error:
            extra = {"not_removed": os_words(error)}
        seconds = round(time.monotonic() - began, 3)
        self.log.event("saved", step=step, path=str(path), seconds=seconds, **extra)
        return True

    def _state(self) -> dict[str, Any]:
        about = {"target": self.setup.identity["fingerprint"], "training": self._training()}
        return {**self.trainer.state(), **about}

    def _diverged(self, step: int, result: StepResult) -> None:
        if not self.ranks.first:
            return
        try:
            path = str(files.save_diverged(self.args.out, step, self._state()))
        except OSError as error:
            path = f"not saved: {os_words(error)}"
        self.log.step({"step": step, "loss": result.loss, "grad_norm": result.grad_norm, "lr": result.lr})
        self.log.event("diverged", step=step, loss=result.loss, grad_norm=result.grad_norm, state=path)

    def _about(self) -> dict[str, Any]:
        return {
            "target": self.setup.identity,
            "thinking": self.args.thinking,
            "training": self._training(),
            "gamma": self.trainer.recipe.gamma,
            "git_commit": git_commit(),
            "harness": harness.hashes(without=()),
        }


def plain(args: argparse.Namespace) -> dict[str, Any]:
    """Flags as plain data."""
    return {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items()}


def git_commit() -> str | None:
    """The commit of this folder, where it is a checkout and git is there."""
    try:
        found = subprocess.run(
            ["git", "-C", str(harness.HERE), "rev-parse", "HEAD"],
            check=False,
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None
