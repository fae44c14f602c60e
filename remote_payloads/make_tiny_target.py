#!/usr/bin/env python3
"""Train a tiny byte-level Qwen3 target on Python's standard library: a real model to practise and test on.

    python make_tiny_target.py --out DIR [--steps 250] [--seed 0] [--threads 1]

About 0.6 M parameters; 250 steps take some 20 s on one core. Training rows are plain text, some of them
framed as a chat turn, so that its chat template is not foreign to it.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

from dflash import events
from dflash.errors import Refused


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the model (made, replaced by rename)"
    )
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=96)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--corpus", type=Path, help="folder of text files instead of the standard library")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Train and save; prints progress as JSON lines."""
    args = arguments(argv)
    return events.guarded(lambda: make(args))


def make(args: argparse.Namespace) -> int:
    """Train a target as `args` say and put it in place by rename."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from dflash.tiny import byte_tokenizer, stdlib_corpus

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    if args.hidden % 4:
        raise Refused("--hidden must be a multiple of 4 (four heads)")
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=byte_tokenizer.SIZE,
            hidden_size=args.hidden,
            intermediate_size=args.hidden * 8 // 3,
            num_hidden_layers=args.layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=args.hidden // 4,
            max_position_embeddings=4096,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=byte_tokenizer.EOS,
            pad_token_id=byte_tokenizer.EOS,
        )
    ).train()
    text = torch.tensor(list(b"\n".join(stdlib_corpus.split(args.corpus)[0])), dtype=torch.long)
    chat = torch.tensor([byte_tokenizer.TURN, *b"assistant\n"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    generator = torch.Generator().manual_seed(args.seed)
    began = time.monotonic()
    loss_value = math.nan
    for step in range(1, args.steps + 1):
        starts = torch.randint(0, len(text) - args.length, (args.batch,), generator=generator)
        rows = torch.stack([text[s : s + args.length] for s in starts.tolist()])
        if step % 2:
            rows[0, : len(chat)] = chat
        # No weight of the padding or attention mask is involved: all rows are full.
        loss = model(input_ids=rows, labels=rows).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        rate = 2e-3 * min(1.0, step / 20) * (0.55 + 0.45 * math.cos(math.pi * step / args.steps))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss_value = float(loss.detach())
        if step % 25 == 0 or step == args.steps:
            events.emit("progress", phase="target", done=step, of=args.steps, loss=round(loss_value, 4))
    save(model, args.out)
    events.emit(
        "done", result=str(args.out), loss=round(loss_value, 4), seconds=round(time.monotonic() - began, 1)
    )
    return 0


def save(model: object, out: Path) -> None:
    """Save model and tokenizer under a temporary name, then rename: the folder is whole or absent."""
    import shutil

    from dflash.tiny import byte_tokenizer

    temporary = out.with_name(f".{out.name}.making")
    shutil.rmtree(temporary, ignore_errors=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    model.eval().save_pretrained(str(temporary))  # type: ignore[attr-defined]
    byte_tokenizer.save(temporary)
    if out.exists():
        shutil.rmtree(out)
    temporary.rename(out)


if __name__ == "__main__":
    raise SystemExit(main())
