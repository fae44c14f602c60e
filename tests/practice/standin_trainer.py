"""Stands in for the trainer in tests: steps, a JSON log on stdout, checkpoints in torch's zip layout; no torch."""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import time
import zipfile
from pathlib import Path


def save(path: Path, step: int) -> None:
    """Write a checkpoint whole: stored zip members, end record last, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".tmp")
    with zipfile.ZipFile(fresh, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"step": step}, protocol=2))
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/data/0", b"\0" * 65536)
        archive.writestr("archive/version", "3\n")
    fresh.rename(path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--pace", type=float, default=20.0, help="steps a second")
    args = parser.parse_args()
    step = 0
    while True:
        step += 1
        line = {"step": step, "loss": 1.0 + 1.0 / step, "lr": 1e-3, "time": time.time()}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        if step % args.save_every == 0:
            save(args.out / f"step_{step}" / "checkpoint.pt", step)
        time.sleep(1 / args.pace)


if __name__ == "__main__":
    main()
