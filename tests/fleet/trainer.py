"""A stand-in for a training: it steps, logs and saves as one does, with the standard library alone (runs in ct200)."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=Path, default=Path("/workspace/train.log"))
    parser.add_argument("--checkpoints", type=Path, default=Path("/workspace/checkpoints"))
    parser.add_argument("--sample", type=Path, help="file that each save is a copy of")
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--first-step", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds a step takes")
    parser.add_argument("--pidfile", type=Path)
    asked, _rest = parser.parse_known_args()
    if asked.pidfile:
        asked.pidfile.write_text(f"{os.getpid()}\n")
    asked.checkpoints.mkdir(parents=True, exist_ok=True)
    step = asked.first_step
    with asked.log.open("a") as log:
        while True:
            log.write(json.dumps({"step": step, "loss": 2 + 1 / step, "time": time.time()}) + "\n")
            log.flush()
            if asked.sample and step % asked.save_every == 0:
                save(asked.sample, asked.checkpoints / f"step_{step}")
            step += 1
            time.sleep(asked.pause)


def save(sample: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    shutil.copyfile(sample, folder / "checkpoint.tmp")
    (folder / "checkpoint.tmp").rename(folder / "checkpoint.pt")


if __name__ == "__main__":
    main()
