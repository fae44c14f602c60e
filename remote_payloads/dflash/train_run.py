"""A training run from start to end: sets the parts up, steps, logs, saves, and ends for a stated reason."""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import torch

import train_files
from blocks import default_gamma, loss_weights, make_blocks
from drafter import Drafter
from feature_source import FeatureSource, Inline, Plan
from new_drafter import new_config
from seeds import generator
from stopping import Stopping
from target import Target
from target_dtype import target_dtype
from target_identity import identify
from train_data import load_samples
from train_log import TrainLog
from trainer import DraftLoss, Recipe, StepResult, Trainer


class Run:
    """One rank's run; `go` returns the exit status: 0 finished or stopped on request, 1 diverged."""

    def __init__(self, args: argparse.Namespace) -> None:
        from transformers import AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        if args.threads:
            torch.set_num_threads(args.threads)
        self.args = args
        self.stopping = Stopping(args.save_trigger)
        self.stopping.listen()
        self.log = TrainLog(args.log)
        self.target = Target.load(args.target, target_dtype(args.target, args.dtype), args.device)
        tokenizer = AutoTokenizer.from_pretrained(str(args.target), local_files_only=True)
        self.config = new_config(args, self.target.model.config, tokenizer)
        args.out.mkdir(parents=True, exist_ok=True)
        self.samples = load_samples(args, self.target, tokenizer, self.log)
        gamma = args.gamma or default_gamma(self.config.block_size)
        recipe = Recipe(
            steps=args.steps,
            lr=args.lr,
            warmup=args.warmup,
            clip=args.clip,
            weight_decay=args.weight_decay,
            gamma=gamma,
            autocast=args.autocast,
            loss_rows=args.loss_rows,
        )
        drafter = Drafter(self.config).reset_parameters(generator(args.seed, "weights")).to(args.device)
        model = DraftLoss(drafter, loss_weights(self.config.block_size, gamma), args.loss_rows)
        self.trainer = Trainer(model, recipe, self.target.vocabulary)
        self.source: FeatureSource = Inline(
            Plan(self.samples, args.batch, args.seed), self.target, self.config.target_layer_ids
        )
        self.done = self._resume()

    def _resume(self) -> int:
        state = train_files.newest_state(self.args.out, self.config)
        if state is None:
            return 0
        self.trainer.load(state)
        self.log.event("resumed", step=state["step"])
        return int(state["step"])

    def go(self) -> int:
        """Train to the last step, or until asked to stop."""
        args = self.args
        self.log.event("started", step=self.done, of=args.steps, parameters=self._size())
        try:
            for step in range(self.done + 1, args.steps + 1):
                began = time.monotonic()
                result, tokens = self._step(step)
                if not result.finite:
                    return self._diverged(step, result)
                self.done = step
                if step % args.log_every == 0 or step in (1, args.steps):
                    self.log.step(self._line(step, result, tokens / (time.monotonic() - began)))
                asked = self.stopping.asked
                if step % args.save_every == 0 or step == args.steps or asked or self.stopping.save_now():
                    self._save(step)
                if asked:
                    self.log.event("stopped", step=step, reason=self.stopping.reason)
                    return 0
                self.stopping.pause(args.pace)
            self.log.event("finished", step=self.done)
            return 0
        finally:
            self.source.close()
            self.log.close()

    def _step(self, step: int) -> tuple[StepResult, int]:
        args = self.args
        batches, tokens, weight = [], 0, 0.0
        for micro in range((step - 1) * args.accumulate, step * args.accumulate):
            batch = self.source.get(micro)
            drawn = generator(args.seed, "anchors", micro)
            blocks = make_blocks(batch.samples, args.anchors, self.config.block_size, drawn).to(
                self.target.device
            )
            batches.append((blocks, batch.features))
            tokens += batch.tokens
            weight += self.trainer.model.weight_of(blocks)
        return self.trainer.step(step, batches, weight), tokens

    def _line(self, step: int, result: StepResult, rate: float) -> dict[str, Any]:
        per_slot = [round(h / s, 4) if s else None for h, s in zip(result.hits, result.scored, strict=True)]
        line: dict[str, Any] = {
            "step": step,
            "loss": round(result.loss, 5),
            "grad_norm": round(result.grad_norm, 5),
            "lr": result.lr,
            "tokens_per_s": round(rate, 1),
            "accuracy": round(sum(result.hits) / max(1, sum(result.scored)), 4),
            "accept_len": round(result.streaks / result.blocks, 4) if result.blocks else None,
            "per_position": per_slot,
            **self.source.measures(),
        }
        return line

    def _save(self, step: int) -> None:
        began = time.monotonic()
        path = train_files.save(
            self.args.out,
            step,
            config=self.config,
            weights=dict(self.trainer.model.drafter.named_parameters()),
            about=self._about(),
            state=self.trainer.state(),
        )
        removed = train_files.retain(self.args.out, self.args.keep, self.args.keep_every)
        extra = {"removed": removed} if removed else {}
        self.log.event(
            "saved", step=step, path=str(path), seconds=round(time.monotonic() - began, 3), **extra
        )

    def _diverged(self, step: int, result: StepResult) -> int:
        path = train_files.save_diverged(self.args.out, step, self.trainer.state())
        self.log.step({"step": step, "loss": result.loss, "grad_norm": result.grad_norm, "lr": result.lr})
        self.log.event("diverged", step=step, loss=result.loss, grad_norm=result.grad_norm, state=str(path))
        return 1

    def _about(self) -> dict[str, Any]:
        plain = {k: str(v) if isinstance(v, Path) else v for k, v in vars(self.args).items()}
        return {
            "target": identify(self.args.target),
            "thinking": self.args.thinking,
            "training": plain,
            "data_sha256": hashlib.sha256(
                json.dumps([[s.id, s.input_ids] for s in self.samples[:1000]]).encode()
            ).hexdigest(),
        }

    def _size(self) -> int:
        return sum(p.numel() for p in self.trainer.model.parameters())
