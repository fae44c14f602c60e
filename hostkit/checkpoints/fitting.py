"""Would the bundled DFlash harness load this checkpoint? Keys, shapes and config, held against its table (pure).

The table is that of the published drafters (z-lab's module tree): three tensors, and eleven a layer. The
harness loads exactly those or refuses; the same is said here in seconds, before a byte is copied.
"""

from __future__ import annotations

from typing import Any

from hostkit.checkpoints.models import Contents, Layout, TensorFacts, Value

WRAPPERS = ("module.", "_orig_mod.")
PREFIXES = (*WRAPPERS, "draft_model.", "model.")
NESTED = ("draft_state_dict", "drafter", "model_state_dict", "state_dict", "model")
DTYPES = ("bfloat16", "float32")
NUMBERS = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
)
NEEDED = ("block_size", "mask_token_id", "target_layer_ids")


# what no saved state refers to unless loading it is to run something
_CODE_MODULES = {"posix", "nt", "os", "subprocess", "pty", "sys", "runpy", "code", "shutil", "importlib", "socket"} | {
    "ctypes", "commands", "webbrowser", "pdb", "timeit", "marshal", "pickle"
}  # fmt: skip
_CODE_NAMES = {"types.CodeType", "types.FunctionType"} | {
    f"{module}.{name}"
    for module in ("builtins", "__builtin__")
    for name in ("eval", "exec", "execfile", "compile", "open", "getattr", "setattr", "__import__", "globals")
}


class Fit(Value):
    """What speaks against loading it (`problems`), and what to know about it (`notes`)."""

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    weights: str | None = None  # the top-level key of the weights; "" for a bare dictionary
    weights_bytes: int = 0
    step: int | None = None
    block_size: int | None = None

    @property
    def ok(self) -> bool:
        return not self.problems


def _runs_code(name: str) -> bool:
    """Say whether a global that a pickle refers to is there to run something."""
    return name in _CODE_NAMES or name.partition(".")[0] in _CODE_MODULES


def bare(name: str, strip: tuple[str, ...] = ()) -> str:
    """Strip what wrappers put before a name, as often as they did; `module_list.` is no wrapper's."""
    prefixes = (*PREFIXES, *strip)
    while (prefix := next((one for one in prefixes if name.startswith(one)), None)) is not None:
        name = name[len(prefix) :]
    return name


def expected(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every tensor that a drafter of this config has."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head = config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    table: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, len(config["target_layer_ids"]) * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    layer = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (q, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
        "self_attn.q_norm": (head,),
        "self_attn.k_norm": (head,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    for number in range(config["num_hidden_layers"]):
        table.update({f"layers.{number}.{name}.weight": shape for name, shape in layer.items()})
    return table


def fits(contents: Contents, *, step: int | None = None, layout: Layout | None = None) -> Fit:
    """Hold a checkpoint against what the bundled harness loads. `step`: the one in its name."""
    layout = layout or Layout()
    problems: list[str] = []
    notes: list[str] = []
    if contents.code is not None:
        return Fit(problems=(f"not readable: {contents.reason}",))
    keys = contents.keys()
    problems += [
        f"no key {key!r}; there are: {_few(keys)}"
        for key in layout.weights
        if key not in keys and not below(contents.tensors, key, layout.strip)
    ]
    if step is not None and contents.step is not None and contents.step != step:
        problems.append(f"it holds step {contents.step}, its name says {step}")
    elif contents.step is None:
        where = f" at {layout.step}" if layout.step else ""
        notes.append(f"it does not say its step{where}; the one in its name is used")
    running = [name for name in contents.globals if _runs_code(name)]
    if running:
        problems.append(f"loading it would run code ({_few(running)}): do not load this file anywhere")
    sharded = [name for name in contents.globals if name.startswith("torch.distributed")]
    others = [name for name in contents.globals if name not in running and name not in sharded]
    if others:
        notes.append(
            f"beside tensors it holds objects of {_few(others)}, which torch.load refuses by default"
        )
    if sharded:
        problems.append("it holds sharded (distributed) tensors, which the harness does not load")
    key, tensors = weights_of(contents, layout)
    if key is None:
        problems.append(f"no drafter weights among its keys: {_few(keys)}")
        return Fit(problems=tuple(problems), notes=tuple(notes), step=contents.step)
    config, faults = _config(contents.metadata.get("config"))
    problems += faults
    # of a torch file the declared prefixes are taken off when it is staged; any other comes as it is
    strip = layout.strip if contents.format in (None, "torch-zip") else ()
    named = {bare(name, strip): one for name, one in tensors}
    if config is not None:
        problems += _compare(expected(config), named)
    return Fit(
        problems=tuple(problems),
        notes=tuple(notes),
        weights=key,
        weights_bytes=sum({one.storage: one.bytes for _, one in tensors}.values()),
        step=contents.step,
        block_size=config["block_size"] if config else None,
    )


def weights_of(
    contents: Contents, layout: Layout | None = None
) -> tuple[str | None, list[tuple[str, TensorFacts]]]:
    """Return the key under which the harness finds the tensors, and the tensors by their names below it."""
    layout = layout or Layout()
    for key in layout.weights:
        found = below(contents.tensors, key, layout.strip)
        if found:
            return key, found
    flat = [(one.path[0], one) for one in contents.tensors if len(one.path) == 1]
    if flat and all(entry.tensors for entry in contents.top):
        return "", flat
    for key in NESTED:
        inner = [
            (".".join(one.path[1:]), one) for one in contents.tensors if one.path[0] == key and one.path[1:]
        ]
        if inner:
            return key, inner
    return None, []


def foreign(key: str, layout: Layout) -> bool:
    """Whether the bundled harness finds weights under this key only where a staged file brings them to it."""
    return key not in NESTED or bool(layout.strip)


def below(
    tensors: tuple[TensorFacts, ...], wanted: str, strip: tuple[str, ...] = ()
) -> list[tuple[str, TensorFacts]]:
    """Return the tensors under a key, or under names with dots that lead to it, by what follows.

    As `remote/checkpoint/keys.py` finds them on the host: as names stand, else through wrappers' prefixes.
    """
    for through in ((), (*WRAPPERS, *strip)):
        met = [(_rest(".".join(one.path), wanted, through), one) for one in tensors]
        found = [(rest, one) for rest, one in met if rest is not None]
        if found:
            return found
    return []


def _rest(name: str, wanted: str, strip: tuple[str, ...]) -> str | None:
    """Return what follows `wanted` in a name with dots; None where it leads elsewhere."""
    if not wanted:
        return name
    head, _, tail = wanted.partition(".")
    if name == head:
        return None if tail else ""
    if name.startswith(head + ".") and (found := _rest(name[len(head) + 1 :], tail, strip)) is not None:
        return found
    for prefix in strip:
        if name.startswith(prefix) and (found := _rest(name[len(prefix) :], wanted, strip)) is not None:
            return found
    return None


def _config(document: Any) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the numbers of a draft config (nested values win), and what is wrong with it."""
    if not isinstance(document, dict):
        return None, ["it holds no config, and there is no config.json beside it"]
    inner = document.get("dflash_config")
    nested: dict[str, Any] = inner if isinstance(inner, dict) else {}
    problems = [
        f"{name} is set: not a DFlash drafter of the kind that the harness loads"
        for name in (
            "conv_kernel_size",
            "selector_rank",
            "projector_type",
            "attention_sink_bias",
            "sample_from_anchor",
        )
        if nested.get(name) or document.get(name)
    ]
    if document.get("speculators_model_type"):
        problems.append("a speculators checkpoint: its taps are numbered one higher; convert it first")
    config: dict[str, Any] = {}
    for name in (*NUMBERS, *NEEDED):
        value = nested.get(name) if nested.get(name) is not None and name in NEEDED else document.get(name)
        if value is None:
            problems.append(f"its config has no {name}")
        elif name == "target_layer_ids":
            if isinstance(value, list) and value and all(type(one) is int for one in value):
                config[name] = value
            else:
                problems.append(f"its config's {name} is not a list of layer numbers")
        elif type(value) is int and value >= 0:
            config[name] = value
        else:
            problems.append(f"its config's {name} is {value!r}, not an integer")
    return (config if len(config) == len(NUMBERS) + len(NEEDED) else None), problems


def _compare(wanted: dict[str, tuple[int, ...]], named: dict[str, TensorFacts]) -> list[str]:
    problems = []
    missing, extra = sorted(wanted.keys() - named.keys()), sorted(named.keys() - wanted.keys())
    if missing:
        problems.append(f"{len(missing)} of {len(wanted)} tensors missing: {_few(missing)}")
    if extra:
        problems.append(f"{len(extra)} tensors that a drafter does not have: {_few(extra)}")
    shapes = [
        f"{name} is {list(named[name].shape)}, its config says {list(wanted[name])}"
        for name in sorted(wanted.keys() & named.keys())
        if named[name].shape != wanted[name]
    ]
    dtypes = sorted({one.dtype for one in named.values()} - set(DTYPES))
    if shapes:
        problems.append(f"{len(shapes)} tensors of another shape: {_few(shapes)}")
    if dtypes:
        problems.append(f"tensors of type {', '.join(dtypes)}; the harness loads {' and '.join(DTYPES)}")
    return problems


def _few(names: Any) -> str:
    names = list(names)
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more if names else "none"
