"""The DFlash drafter: a few Qwen3-style layers that read a target's features and fill a block of masks.

Published layout (58 tensors for five layers): `fc`, `hidden_norm`, `norm`, and per layer two norms, four
projections, two head norms and a SwiGLU MLP. It owns neither embedding nor head: both are the target's.
Shapes: B sequences, S context rows, N blocks of b slots, H hidden, D = b - 1 drafted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dflash.drafter.attention_mask import Group, drafted_rows, group
from dflash.drafter.config import DraftConfig


class RMSNorm(nn.Module):
    """x / rms(x) * weight, computed in fp32 and returned in x's dtype."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class Rotary:
    """Plain RoPE over the whole head, with the drafter's own theta; fp32 tables, kept and grown as needed."""

    def __init__(self, head_dim: int, theta: float) -> None:
        self.head_dim, self.theta = head_dim, theta
        self._kept: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def tables(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin [B, rows, 1, head_dim] for integer positions [B, rows]."""
        cos, sin = self._upto(int(positions.max()) + 1 if positions.numel() else 1, positions.device)
        return cos[positions].unsqueeze(2).to(dtype), sin[positions].unsqueeze(2).to(dtype)

    def _upto(self, rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
        kept = self._kept.get(device)
        if kept is None or len(kept[0]) < rows:
            even = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=device)
            positions = torch.arange(1 << (rows - 1).bit_length(), dtype=torch.float32, device=device)
            angles = positions[:, None] * (1.0 / self.theta ** (even / self.head_dim))
            angles = torch.cat((angles, angles), dim=-1)
            kept = self._kept[device] = (angles.cos(), angles.sin())
        return kept


def rotate(x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Apply RoPE by halves to [B, rows, heads, head_dim]."""
    cos, sin = tables
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def pick(x: Tensor, rows: Tensor | None) -> Tensor:
    """These rows of [B, rows, ..]; all of them without a choice."""
    return x if rows is None else x.index_select(1, rows)


class Attention(nn.Module):
    """Queries from the block alone; keys and values from context and block by the same projections."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        wide, narrow = (
            config.num_attention_heads * config.head_dim,
            config.num_key_value_heads * config.head_dim,
        )
        self.q_proj = nn.Linear(config.hidden_size, wide, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, narrow, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, narrow, bias=False)
        self.o_proj = nn.Linear(wide, config.hidden_size, bias=False)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)

    def _heads(self, x: Tensor) -> Tensor:
        # The number of heads is counted out: an empty context leaves nothing to infer it from.
        return x.view(*x.shape[:-1], x.shape[-1] // self.head_dim, self.head_dim)

    def keys_values(self, x: Tensor, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Keys (normed, rotated) and values [B, rows, kv heads, head_dim] of context rows."""
        return rotate(self.k_norm(self._heads(self.k_proj(x))), tables), self._heads(self.v_proj(x))

    def forward(
        self,
        x: Tensor,
        context: tuple[Tensor, Tensor],
        tables: tuple[Tensor, Tensor],
        groups: Sequence[Group],
        held: Tensor | None = None,
        asking: Tensor | None = None,
    ) -> Tensor:
        # Rows that are alike are projected once, and told apart by their positions alone.
        query = pick(self.q_norm(self._heads(self.q_proj(pick(x, asking)))), held)
        key = pick(self.k_norm(self._heads(self.k_proj(x))), held)
        value = pick(self._heads(self.v_proj(x)), held)
        query = rotate(query, (pick(tables[0], asking), pick(tables[1], asking)))
        key = rotate(key, tables)
        parts = [
            F.scaled_dot_product_attention(
                g.queries(query),
                g.keys(context[0], key),
                g.keys(context[1], value),
                attn_mask=g.mask,
                enable_gqa=True,
            )
            .transpose(1, 2)
            .reshape(len(x), -1, self.q_proj.out_features)
            for g in groups
        ]
        joined: Tensor = self.o_proj(parts[0] if len(parts) == 1 else torch.cat(parts, dim=1))
        return joined


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """Pre-norm decoder layer. The context gets no input norm: `hidden_norm` has seen to it once for all."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(
        self,
        x: Tensor,
        context: tuple[Tensor, Tensor],
        tables: tuple[Tensor, Tensor],
        groups: Sequence[Group],
        held: Tensor | None = None,
        asking: Tensor | None = None,
    ) -> Tensor:
        attended = self.self_attn(self.input_layernorm(x), context, tables, groups, held, asking)
        x = pick(pick(x, held), asking) + attended
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


@dataclass
class Context:
    """Keys and values of the context rows 0..rows-1, per layer. A block's own rows are never kept here."""

    layers: list[tuple[Tensor, Tensor]]

    @property
    def rows(self) -> int:
        return int(self.layers[0][0].shape[1])

    def extend(self, other: Context) -> Context:
        """This context followed by the rows of `other`."""
        return Context(
            [
                (torch.cat((k, k2), dim=1), torch.cat((v, v2), dim=1))
                for (k, v), (k2, v2) in zip(self.layers, other.layers, strict=True)
            ]
        )

    def crop(self, rows: int) -> Context:
        """The first `rows` rows."""
        return Context([(k[:, :rows], v[:, :rows]) for k, v in self.layers])


class Drafter(nn.Module):
    """Reads features of the context, embeds [anchor, mask, ...] with the target's table, predicts in place."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.config = config
        self.fc = nn.Linear(config.feature_size, config.hidden_size, bias=False)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary = Rotary(config.head_dim, config.rope_theta)

    def reset_parameters(self, generator: torch.Generator, std: float = 0.02) -> Drafter:
        """Fresh weights from one generator, so that a seed decides all of them."""
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=std, generator=generator)
            else:
                nn.init.ones_(parameter)
        return self

    def read_context(self, features: Tensor, start: int = 0) -> Context:
        """Project features [B, S, taps * H] of positions start.. once, and their keys and values per layer."""
        hidden = self.hidden_norm(self.fc(features))
        positions = torch.arange(start, start + features.shape[1], device=features.device)[None]
        tables = self.rotary.tables(positions, hidden.dtype)
        return Context([layer.self_attn.keys_values(hidden, tables) for layer in self.layers])

    def fill_blocks(
        self,
        context: Context,
        anchors: Tensor,
        embedded: Tensor,
        *,
        held: Tensor | None = None,
        valid: Tensor | None = None,
        blocks_at_once: int = 16,
    ) -> Tensor:
        """Final hidden states [B, N, D, H] of slots 1.. of blocks at `anchors` [B, N].

        `embedded` [B, N, b, H] are the target's embeddings of [anchor, mask, ...]; or [B, rows, H] are the different
        ones, of which the slots hold `held` [N * b]. All blocks share the context and go through the layers
        together; they attend in groups of `blocks_at_once`. In the last layer drafted slots alone ask.
        """
        batch, blocks = anchors.shape
        x = embedded.flatten(1, -2)
        size = (x.shape[1] if held is None else len(held)) // blocks
        positions = (anchors[..., None] + torch.arange(size, device=anchors.device)).flatten(1)
        tables = self.rotary.tables(positions, x.dtype)
        drafted = drafted_rows(blocks, size, anchors.device)
        groups: dict[int | None, list[Group]] = {}
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            window = self.config.window(index)
            if window not in groups:
                groups[window] = group(
                    anchors,
                    size,
                    context.rows,
                    dtype=x.dtype,
                    valid=valid,
                    window=window,
                    blocks_at_once=blocks_at_once,
                )
            kept = context.layers[index]
            if index == last:
                asking = [g.only(drafted, size) for g in groups[window]]
                x = layer(pick(x, held), kept, tables, asking, asking=drafted)
            else:
                x, held = layer(x, kept, tables, groups[window], held), None
        out: Tensor = self.norm(x).view(batch, blocks, size - 1, -1)
        return out if valid is None else out * valid[..., None, None]

    def block_ids(self, anchor_tokens: Tensor, block_size: int | None = None) -> Tensor:
        """Token ids [.., b] of blocks: the anchor in slot 0, the mask everywhere else."""
        size = block_size or self.config.block_size
        ids = anchor_tokens.new_full((*anchor_tokens.shape, size), self.config.mask_token_id)
        ids[..., 0] = anchor_tokens
        return ids
