#!/usr/bin/env python3
"""Make the references and features that evaluations of a drafter need, ahead of them; the drafter is not run.

    python extract_features.py --checkpoint PATH --target DIR --work DIR --out FILE [flags of eval_drafter.py]

Takes the flags of eval_drafter.py, so that what is cached is what that run will look for; --out is not
written. Interrupted, it goes on with the prompts that are still missing.
"""

from __future__ import annotations

from dflash.evaluation import isolation

isolation.hide_gpus()

from dflash import events  # noqa: E402
from dflash.evaluation import arguments  # noqa: E402 - the GPUs are hidden before anything that could look for them


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    return events.guarded(lambda: extract(argv))


def extract(argv: list[str] | None) -> int:
    """Gather all inputs, after saying what memory that takes at most."""
    args = arguments.parse(__doc__ or "", argv)
    from preflight import Preflight

    memory = Preflight(args).document()["memory"]
    events.emit("memory", peak_bytes=memory["peak_bytes"], available_bytes=memory["available_bytes"])
    from dflash.evaluation.run import Evaluation

    evaluation = Evaluation(args)
    inputs = evaluation.inputs()
    found = inputs.gather(evaluation.block_size - 1)
    evaluation.agreement(inputs, found)
    events.emit("done", result=str(args.work), prompts=len(found), missing=inputs.missing)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
