"""Offers the payload's own functions to check_parity.py, in its terms; nothing is computed here."""

import sys
from pathlib import Path

import torch

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "remote_payloads")]

from dflash.drafter.loading import load_drafter as load  # noqa: E402
from dflash.evaluation.ddtree import build_tree  # noqa: E402
from dflash.target.model import Target  # noqa: E402
from tests.payloads.decode import draft_block, speculate, speculate_tree  # noqa: E402


def load_drafter(folder):
    return load(Path(folder)).drafter


def features(target, ids, drafter):
    return Target(target).features(ids, drafter.config.target_layer_ids)[0]


def draft_logits(drafter, target, ids, features, anchor):
    context = drafter.read_context(torch.as_tensor(features)[None, :anchor])
    return draft_block(drafter, Target(target), context, token=ids[anchor], anchor=anchor)


def rounds(drafter, target, prompt_ids, max_new_tokens, stop_token_ids=None):
    return speculate(Target(target), drafter, prompt_ids, max_new_tokens, stop=stop_token_ids or ())


def tree(logits, budget):
    return build_tree(logits, budget)


def tree_rounds(drafter, target, prompt_ids, max_new_tokens, budget):
    return speculate_tree(Target(target), drafter, prompt_ids, max_new_tokens, budget)
