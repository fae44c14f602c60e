"""The parts of a training run, from its flags: targets, samples or stored features, config, feature source."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from dflash.data.samples import Sample, open_tokenizer
from dflash.drafter.config import DraftConfig
from dflash.features import stored as features_stored
from dflash.features.source import FeatureSource, Inline, Origin, Plan
from dflash.features.workers import TargetWorkers
from dflash.target.dtype import target_dtype
from dflash.target.embeddings import Vocabulary
from dflash.target.identity import identify
from dflash.target.model import Target
from dflash.training.data import load_samples
from dflash.training.distributed import Ranks
from dflash.training.log import TrainLog
from dflash.training.new_drafter import new_config


class Setup:
    """What one rank works with. Online, it loads its share of the targets; offline, none at all."""

    def __init__(self, args: argparse.Namespace, ranks: Ranks, log: TrainLog) -> None:
        from transformers import AutoConfig

        self.args, self.ranks = args, ranks
        self.identity = identify(args.target)
        dtype = target_dtype(args.target, args.dtype)
        tokenizer = open_tokenizer(args.target)
        target_config = AutoConfig.from_pretrained(str(args.target), local_files_only=True)
        self.samples: Sequence[Sample] = []
        self.targets: list[Target] = []
        self.files: list[Path] = []
        if args.features:
            self.files = features_stored.stored_files(args.features)
            stored = features_stored.read(self.files[0])[2]
            args.target_layer_ids = args.target_layer_ids or list(stored.taps)
            self.vocabulary = Vocabulary.read(args.target, None, dtype).to(ranks.device)
            log.event("data", features=str(args.features), samples=len(self.files))
        else:
            self.targets = [Target.load(args.target, dtype, device) for device in self._devices()]
            self.vocabulary = self.targets[0].vocabulary.to(ranks.device)
            self.samples = self._samples(tokenizer, log)
        self.config: DraftConfig = new_config(args, target_config, tokenizer)
        name = str(dtype).removeprefix("torch.")
        self.origin = Origin(str(self.identity["fingerprint"]), self.config.target_layer_ids, name)

    def _devices(self) -> list[str]:
        """This rank's share of the target devices; each rank has one at least."""
        asked = [d for d in self.args.target_devices.split(",") if d]
        if not asked:
            return [self.ranks.device]
        return asked[self.ranks.rank :: self.ranks.world] or [asked[self.ranks.rank % len(asked)]]

    def _samples(self, tokenizer: Any, log: TrainLog) -> list[Sample]:
        """The first rank may have to generate them; the others then read what it wrote."""
        if not self.ranks.first:
            self.ranks.wait()
        found = load_samples(self.args, self.targets[0], tokenizer, log)
        if self.ranks.first:
            self.ranks.wait()
        return found

    def source(self, first: int) -> FeatureSource:
        """Where features come from, from micro-batch `first` on."""
        count = len(self.files) or len(self.samples)
        plan = Plan(count, self.args.batch, self.args.seed, rank=self.ranks.rank, world=self.ranks.world)
        if self.files:
            return features_stored.Stored(self.files, plan, self.origin)
        if not self.args.target_devices:
            return Inline(self.samples, plan, self.targets[0], self.origin)
        return TargetWorkers(
            self.samples, plan, self.targets, self.origin, limit=self.args.queue_bytes, first=first
        )

    @property
    def device(self) -> torch.device:
        """Where the drafter is."""
        return torch.device(self.ranks.device)
