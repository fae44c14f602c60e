"""The drafter and its decoding loops as they are written down: plain loops in double precision, no shared code.

Nothing of the payload is imported. Slow on purpose: every sum stands where the definition has it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Vector = np.ndarray


def norm(x: Vector, weight: Vector, eps: float) -> Vector:
    return x / math.sqrt(float((x * x).mean()) + eps) * weight


def turn(x: Vector, position: int, theta: float) -> Vector:
    """RoPE: the pair (i, i + half) is turned by position * theta ** (-2i / head_dim)."""
    out, half = x.copy(), len(x) // 2
    for i in range(half):
        angle = position * theta ** (-2 * i / len(x))
        cos, sin = math.cos(angle), math.sin(angle)
        out[i] = x[i] * cos - x[i + half] * sin
        out[i + half] = x[i + half] * cos + x[i] * sin
    return out


class PlainDrafter:
    """`shape` has the published names of config.json; tensors are the published ones, as numpy arrays."""

    def __init__(self, shape: dict[str, Any], tensors: dict[str, Vector], embedding: Vector, head: Vector):
        self.s, self.t = shape, {name: x.astype(np.float64) for name, x in tensors.items()}
        self.embedding, self.head = embedding.astype(np.float64), head.astype(np.float64)

    def logits(self, features: Vector, token: int, anchor: int, block_size: int) -> Vector:
        """Slots 1.. of the block at `anchor`; `features` has the rows of positions 0..anchor-1."""
        s, t, eps = self.s, self.t, self.s["rms_norm_eps"]
        context = [
            norm(t["fc.weight"] @ features[c].astype(np.float64), t["hidden_norm.weight"], eps)
            for c in range(anchor)
        ]
        ids = [token] + [s["mask_token_id"]] * (block_size - 1)
        rows = [self.embedding[i].copy() for i in ids]
        for number in range(s["num_hidden_layers"]):
            rows = self._layer(f"layers.{number}.", s["layer_types"][number], context, rows, anchor)
        return np.array([self.head @ norm(row, t["norm.weight"], eps) for row in rows[1:]])

    def _layer(self, at: str, kind: str, context: list[Vector], rows: list[Vector], anchor: int) -> Any:
        s, t, eps = self.s, self.t, self.s["rms_norm_eps"]
        size, heads, groups = s["head_dim"], s["num_attention_heads"], s["num_key_value_heads"]

        def part(name: str, x: Vector, head: int) -> Vector:
            return (t[f"{at}self_attn.{name}_proj.weight"] @ x)[head * size : (head + 1) * size]

        normed = [norm(x, t[f"{at}input_layernorm.weight"], eps) for x in rows]
        # Keys and values of the context come from its features alone, those of the block from the normed rows.
        sources = [(c, x) for c, x in enumerate(context)] + [(anchor + j, x) for j, x in enumerate(normed)]
        key_norm = t[f"{at}self_attn.k_norm.weight"]
        keys = [
            [turn(norm(part("k", x, g), key_norm, eps), p, s["rope_theta"]) for p, x in sources]
            for g in range(groups)
        ]
        values = [[part("v", x, g) for _, x in sources] for g in range(groups)]
        out = []
        for j, x in enumerate(normed):
            joined = []
            for head in range(heads):
                query = norm(part("q", x, head), t[f"{at}self_attn.q_norm.weight"], eps)
                query = turn(query, anchor + j, s["rope_theta"])
                group = head // (heads // groups)
                seen = [n for n, (p, _) in enumerate(sources) if self._sees(kind, anchor, anchor + j, p)]
                scores = np.array([query @ keys[group][n] / math.sqrt(size) for n in seen])
                shares = np.exp(scores - scores.max())
                shares /= shares.sum()
                joined.append(sum(w * values[group][n] for w, n in zip(shares, seen, strict=True)))
            y = rows[j] + t[f"{at}self_attn.o_proj.weight"] @ np.concatenate(joined)
            z = norm(y, t[f"{at}post_attention_layernorm.weight"], eps)
            gate = t[f"{at}mlp.gate_proj.weight"] @ z
            wide = gate / (1 + np.exp(-gate)) * (t[f"{at}mlp.up_proj.weight"] @ z)
            out.append(y + t[f"{at}mlp.down_proj.weight"] @ wide)
        return out

    def _sees(self, kind: str, anchor: int, query: int, key: int) -> bool:
        if kind == "full_attention":
            return True
        window = self.s["sliding_window"]
        return key <= query and key >= query - (window - 1)


Forward = Callable[[Sequence[int]], tuple[Vector, list[int]]]  # ids -> features, greedy token after each


def chain(
    drafter: PlainDrafter,
    read: Forward,
    prompt: list[int],
    limit: int,
    block_size: int,
    stop: Sequence[int] = (),
) -> tuple[list[int], list[int]]:
    """Acceptance lengths (bonus counted, last round whole) and output of the chain loop; no cache anywhere."""

    def draft(ids: list[int], features: Vector) -> list[list[int]]:
        logits = drafter.logits(features, ids[-1], len(ids) - 1, block_size)
        path = [int(np.argmax(row)) for row in logits]
        return [path[: n + 1] for n in range(len(path))]

    return _loop(draft, read, prompt, limit, stop)


def tree(
    drafter: PlainDrafter, read: Forward, prompt: list[int], limit: int, block_size: int, budget: int
) -> tuple[list[int], list[int]]:
    """The same with the `budget` most probable prefixes, found by sorting all of them."""

    def draft(ids: list[int], features: Vector) -> list[list[int]]:
        return best(drafter.logits(features, ids[-1], len(ids) - 1, block_size), budget)

    return _loop(draft, read, prompt, limit, ())


def best(logits: Vector, budget: int) -> list[list[int]]:
    """The `budget` most probable prefixes, by listing every one."""
    shares = [row - row.max() - math.log(np.exp(row - row.max()).sum()) for row in logits.astype(np.float64)]
    level: list[tuple[float, list[int]]] = [(0.0, [])]
    every: list[tuple[float, list[int]]] = []
    for share in shares:
        level = [(mass + float(share[v]), [*path, v]) for mass, path in level for v in range(len(share))]
        # More than `budget` of one depth can never be kept, as a prefix's parent is more probable than it.
        level = heapq.nlargest(budget, level, key=lambda e: e[0])
        every += level
    return [path for _, path in sorted(every, key=lambda e: (-e[0], len(e[1])))[:budget]]


def _loop(draft: Any, read: Forward, prompt: list[int], limit: int, stop: Sequence[int]) -> Any:
    ids = [*prompt, read(prompt)[1][-1]]
    lengths = []
    while len(ids) - 1 < len(prompt) + limit:
        features, _ = read(ids[:-1])
        kept = {tuple(path) for path in draft(ids, features)}
        accepted: list[int] = []
        while True:
            following = read([*ids, *accepted])[1][-1]
            if (*accepted, following) not in kept:
                break
            accepted.append(following)
        ids += [*accepted, following]
        lengths.append(len(accepted) + 1)
        if any(token in stop for token in ids[len(prompt) :]):
            break
    out = ids[len(prompt) :][:limit]
    first = next((i for i, token in enumerate(out) if token in stop), len(out))
    return lengths, out[: first + 1]
