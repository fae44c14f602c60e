#!/usr/bin/env python3
"""Measure how many tokens a DFlash drafter gets accepted, on the CPU, against the target's greedy answers.

    python eval_drafter.py --checkpoint PATH --target DIR --work DIR --out RESULT.json [--prompts FILE.jsonl]

References come from --api, or from the target itself; its features are computed once per prompt and kept in
--work, so that the next checkpoint costs only its drafter. A finished prompt's blocks are kept there too: a killed
run goes on with the next prompt, and says so. Progress: JSON lines.
"""

from __future__ import annotations

from dflash.evaluation import isolation

isolation.hide_gpus()

from dflash import events  # noqa: E402
from dflash.evaluation import arguments  # noqa: E402 - the GPUs are hidden before anything that could look for them


def main(argv: list[str] | None = None) -> int:
    """Entry point: 0 measured (a partial result says so in its status), 1 refused or failed."""
    return events.guarded(lambda: run(argv))


def run(argv: list[str] | None) -> int:
    """Parse, then import what is heavy."""
    args = arguments.parse(__doc__ or "", argv)
    from dflash.evaluation.run import Evaluation

    return Evaluation(args).go()


if __name__ == "__main__":
    raise SystemExit(main())
