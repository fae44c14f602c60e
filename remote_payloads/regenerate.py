#!/usr/bin/env python3
"""Have the target answer training prompts through its server: a drafter learns from the target's own text.

    python regenerate.py --api URL --target DIR --prompts FILE.jsonl --out FILE.jsonl [--temperature 0.7]

One line per prompt: id, input_ids, loss_mask (the response). Lines are appended as answers come, several at
a time; interrupted, it goes on with the prompts that have no line yet, and it stops by itself when the
server no longer answers. The server should give token ids; text is encoded again and counted.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TextIO

from dflash import events
from dflash.data import prompts
from dflash.data.api_client import Api
from dflash.data.prompts import Prompt
from dflash.data.samples import open_tokenizer
from dflash.errors import Refused
from dflash.files import claim

# Failures in a row after which the server is taken for lost: asking it for the rest only hides why.
LOST = 20


def main(argv: list[str] | None = None) -> int:
    """Entry point: 0 when every prompt has an answer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--api", required=True, metavar="URL")
    add("--api-model")
    add("--api-timeout", type=float, default=600.0, metavar="SECONDS", help="longest wait for one answer")
    add("--target", type=Path, required=True, help="its folder, for tokenizer and template")
    add("--prompts", type=Path, required=True)
    add("--out", type=Path, required=True)
    add("--max-new-tokens", type=int, default=2048)
    add("--temperature", type=float, default=0.0, help="0: greedy")
    add("--seed", type=int, help="sent when given: not every server takes one (vLLM on a CPU dies of it)")
    add("--thinking", action="store_true")
    add("--concurrency", type=int, default=8)
    args = parser.parse_args(argv)
    return events.guarded(lambda: regenerate(args))


def regenerate(args: argparse.Namespace) -> int:
    """Ask for what has no line yet."""
    tokenizer = open_tokenizer(args.target)
    asked = prompts.read(args.prompts)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("a", encoding="utf-8") as out:
        if claim(out.fileno()) is False:
            raise Refused(f"{args.out}: another regenerate.py is writing it", "wait for it, or end it")
        return ask_all(args, asked, tokenizer, out)


def ask_all(args: argparse.Namespace, asked: Sequence[Prompt], tokenizer: Any, out: TextIO) -> int:
    """Answers as they come, appended to `out`; ends early where the server is lost."""
    done = finished_ids(args.out)
    todo = [p for p in asked if p.id not in done]
    api = Api(args.api, timeout=args.api_timeout, model=args.api_model)
    if todo:
        events.emit("progress", phase="model", model=api.model)
    failed: list[dict[str, str]] = []
    reencoded = tokens = in_a_row = 0
    began = time.monotonic()
    lock = threading.Lock()
    pool = ThreadPoolExecutor(args.concurrency)
    try:
        jobs = {pool.submit(answer, api, tokenizer, lock, prompt, args): prompt for prompt in todo}
        for number, job in enumerate(as_completed(jobs), 1):
            try:
                line = job.result()
            except Refused as refused:
                failed.append({"prompt": jobs[job].id, "reason": refused.what})
                in_a_row += 1
                if in_a_row == LOST and number < len(todo):
                    raise Refused(
                        f"{LOST} answers in a row failed: {refused.what}",
                        "is the server still up? Run again: it goes on with what has no line",
                    ) from None
            else:
                in_a_row = 0
                reencoded += line.pop("reencoded")
                tokens += sum(line["loss_mask"])
                append(out, line)
            events.emit(
                "progress",
                phase="answers",
                done=len(done) + number - len(failed),
                of=len(asked),
                failed=len(failed),
                tokens_per_s=round(tokens / (time.monotonic() - began), 1),
            )
    finally:
        pool.shutdown(wait=True, cancel_futures=True)  # an interrupt does not ask for all the rest first
    if todo and len(failed) == len(todo):
        raise Refused(f"no prompt was answered: {failed[0]['reason']}")
    events.emit(
        "done", result=str(args.out), answered=len(asked) - len(failed), failed=failed, reencoded=reencoded
    )
    return 1 if failed else 0


def answer(api: Api, tokenizer: Any, lock: Any, prompt: Prompt, args: argparse.Namespace) -> dict[str, Any]:
    """One line. Tokenizers are not safe to share between threads: they take turns."""
    from dflash.data.references import ask_server

    reference = ask_server(
        api,
        prompt,
        tokenizer,
        args.max_new_tokens,
        args.thinking,
        sampling={"temperature": args.temperature} | ({} if args.seed is None else {"seed": args.seed}),
        lock=lock,
    )
    prompt_length, length = len(reference.prompt_ids), len(reference.response_ids)
    return {
        "id": prompt.id,
        "domain": prompt.domain,
        "input_ids": reference.ids,
        "loss_mask": [0] * prompt_length + [1] * length,
        "finished": reference.finished,
        "model": reference.model,
        "reencoded": reference.ids_from == "reencoded",
    }


def finished_ids(file: Path) -> set[str]:
    """Ids that have a whole line; a last line that was cut by a kill is taken away."""
    if not file.exists():
        return set()
    content = file.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        with file.open("r+b") as stream:
            stream.truncate(len(whole))
    found = set()
    for number, line in enumerate(whole.decode("utf-8", "replace").split("\n")[:-1], 1):
        try:
            found.add(str(json.loads(line)["id"]))
        except (ValueError, KeyError, TypeError):
            raise Refused(f"{file}:{number}: not a line of this program", "another --out") from None
    return found


def append(out: TextIO, line: dict[str, Any]) -> None:
    """One whole line, on disk before the next prompt counts as done."""
    out.write(json.dumps(line, ensure_ascii=False) + "\n")
    out.flush()
    os.fsync(out.fileno())


if __name__ == "__main__":
    raise SystemExit(main())
