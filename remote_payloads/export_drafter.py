#!/usr/bin/env python3
"""Write a drafter in the published layout (config.json, model.safetensors), as serving engines load it.

    python export_drafter.py --checkpoint PATH --out DIR

Reads whatever eval_drafter.py reads; tensors keep their dtype and every bit.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dflash import events
from dflash.errors import Refused


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="new folder")
    args = parser.parse_args(argv)
    return events.guarded(lambda: convert(args.checkpoint, args.out))


def convert(checkpoint: Path, out: Path) -> int:
    """Load, check as for an evaluation, write."""
    from dflash.drafter.loading import check_tensors, expected_shapes, export, read_drafter

    if out.exists() and any(out.iterdir()):
        raise Refused(f"{out} is not empty", "a new folder")
    config, tensors, _ = read_drafter(checkpoint)
    check_tensors(tensors, expected_shapes(config), str(checkpoint))
    export(config, tensors, out)
    events.emit("done", result=str(out), tensors=len(tensors))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
