"""The evaluator's command line, shared by eval_drafter.py and preflight.py. Standard library only, Python 3.8."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import List, Optional

from dflash.data.prompts import BUNDLED
from dflash.errors import Refused


def parser(description: str, preflight: bool = False) -> argparse.ArgumentParser:
    """All flags of an evaluation. `preflight`: nothing is made, and the checkpoint may not be here yet."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.set_defaults(drafter_config=None)
    add = made.add_argument
    add(
        "--checkpoint",
        type=Path,
        required=not preflight,
        help="drafter: checkpoint.pt, or a folder in the published layout",
    )
    if preflight:
        add(
            "--drafter-config",
            metavar="FILE",
            help="instead of --checkpoint, where that is still to be brought here: its config (-: standard input)",
        )
    add("--target", type=Path, required=True, help="folder of the target model")
    add("--prompts", type=Path, default=BUNDLED, help="JSONL of prompts (default: the bundled twenty)")
    add("--work", type=Path, required=True, help="folder of cached references and features")
    add("--out", type=Path, required=not preflight, help="result file, written by rename")
    add("--id", help="id that the result carries (default: a new one)")
    add("--blocks-per-prompt", type=int, default=30)
    add("--block-size", type=int, help="with the anchor (default: the trained one)")
    add("--seed", type=int, default=0)
    add("--max-prompts", type=int, help="a sample that takes turns over the domains, nested in larger ones")
    add("--max-new-tokens", type=int, default=512, help="length of references")
    add("--thinking", action="store_true", help="the template's thinking mode on (default: explicitly off)")
    add(
        "--api",
        metavar="URL",
        help="OpenAI-compatible server for references (default: the target, on this CPU)",
    )
    add("--api-model", help="its model, where it serves several")
    add("--api-timeout", type=float, default=600.0, metavar="SECONDS", help="longest wait for one answer")
    add("--threads", type=int, default=0, help="torch threads (0: torch's own choice)")
    add("--ddtree", default="16,64", metavar="B,B", help="node budgets, root not counted ('' for none)")
    add("--dtype", choices=["auto", "float32", "bfloat16"], default="auto", help="of target and drafter")
    add(
        "--min-agreement",
        type=float,
        default=0.95,
        help="gate: share of reference tokens that are the target's own",
    )
    add("--no-loop", action="store_true", help="leave the simulated decoding loop out")
    add("--compare-dtypes", action="store_true", help="count decisions that change between bf16 and fp32")
    add("--smoke", action="store_true", help="one block end to end, then stop; no result is written")
    return made


def parse(description: str, argv: Optional[List[str]] = None, preflight: bool = False) -> argparse.Namespace:
    """Parse and check ranges."""
    args = parser(description, preflight).parse_args(argv)
    try:
        args.budgets = sorted({int(b) for b in args.ddtree.split(",") if b.strip()})
    except ValueError:
        raise Refused("--ddtree {!r} is not a list of numbers".format(args.ddtree)) from None
    if any(b < 1 for b in args.budgets):
        raise Refused("--ddtree: a budget is at least 1")
    if args.threads < 0:
        raise Refused("--threads is at least 0")
    if not 0 <= args.min_agreement <= 1:
        raise Refused("--min-agreement is a share, 0 to 1")
    if not args.api_timeout > 0:
        raise Refused("--api-timeout is more than 0 seconds")
    for name in ("blocks_per_prompt", "max_new_tokens", "max_prompts"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise Refused("--{} must be at least 1".format(name.replace("_", "-")))
    if args.block_size is not None and args.block_size < 2:
        raise Refused("--block-size counts the anchor: at least 2")
    return args
