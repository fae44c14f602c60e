"""The inventory that describes a fleet: the story's shape, with this fleet's addresses and keys."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fleet.fleet import Fleet

TRAINER = "train_dflash_pipeline.py"

_TEXT = """\
hostkit: 1
archive: {archive}
hosts:
  ct129:
    address: {ct129}
    user: root
    identity: {identity}
    known_hosts: {known_hosts}
    timeouts: {timeouts}
  pve: {{address: {pve}, via: ct129, login: there, user: root, timeouts: {timeouts}}}
  ct200: {{pct: 200, via: pve, machine: pve}}
  ct201: {{pct: 201, via: pve, machine: pve}}
  # the same two, by a tunnel and the laptop's own key
  pve-forward:
    address: {pve}
    via: ct129
    user: root
    identity: {identity}
    known_hosts: {known_hosts}
    machine: pve
    timeouts: {timeouts}
  ct200-forward: {{pct: 200, via: pve-forward, machine: pve}}
runs:
  drafter:
    host: ct200
    process: {{script: {trainer}}}
    log: {{path: /workspace/train.log}}
    checkpoints: {{root: /workspace/checkpoints, every: 20}}
    total_steps: 1000000
    timeouts: {{startup: 60s, stall: 60s, save: 60s}}
evals:
  drafter:
    run: drafter
    host: ct129
    workspace: /root/eval
    python: {python}
    target: {{model: /models/tiny}}
    max_prompts: 2
    max_new_tokens: 24
    blocks_per_prompt: 4
    quick_blocks_per_prompt: 2
    limits: {{memory: 4GiB, cpus: 1, wall: 10m}}
"""


def inventory_text(fleet: Fleet) -> str:
    """Return the YAML for a fleet. The limits on silence are short, so that tests need not wait."""
    return _TEXT.format(
        archive=fleet.archive,
        ct129=fleet.slot.outer(129),
        pve=fleet.slot.inner(6),
        identity=fleet.identity,
        known_hosts=fleet.home / "known_hosts",
        timeouts="{connect: 3s, auth: 5s, idle: 6s}",
        trainer=TRAINER,
        python=sys.executable,
    )
