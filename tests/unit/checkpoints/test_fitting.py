"""Would the harness load it? Keys, shapes and config of a drafter, and every way of not being one."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from checkpoint import keys
from hostkit.checkpoints import Contents, Layout, fits
from hostkit.checkpoints.fitting import NESTED, PREFIXES, WRAPPERS, bare, below, expected, foreign
from hostkit.checkpoints.models import Entry, TensorFacts

CONFIG: dict[str, Any] = {
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "block_size": 8,
    "dflash_config": {"target_layer_ids": [1, 2, 3], "mask_token_id": 257},
}
FLAT = CONFIG | CONFIG["dflash_config"]


def contents(
    key: str = "draft_state_dict",
    *,
    prefix: str = "",
    config: Any = CONFIG,
    step: int | None = 4000,
    change: dict[str, tuple[int, ...] | None] | None = None,
    dtype: str = "bfloat16",
    **more: Any,
) -> Contents:
    table: dict[str, tuple[int, ...] | None] = {**expected(FLAT), **(change or {})}
    tensors = [
        TensorFacts(
            path=(*([key] if key else []), prefix + name), shape=shape, dtype=dtype, bytes=10, storage=name
        )
        for name, shape in table.items()
        if shape is not None
    ]
    top = [Entry(key=key, tensors=len(tensors))] if key else [Entry(key="fc.weight", tensors=1)]
    return Contents(
        path="/c/step_4000/checkpoint.pt",
        complete=True,
        top=(*top, *more.pop("top", ())),
        tensors=tuple(tensors),
        metadata={"config": config} if config is not None else {},
        step=step,
        **more,
    )


def test_the_table_of_the_published_drafters_has_58_tensors_for_5_layers() -> None:
    assert len(expected(FLAT | {"num_hidden_layers": 5})) == 58


@pytest.mark.report("c15")
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
def test_prefixes_of_wrappers_are_stripped_as_often_as_they_stand(prefix: str) -> None:
    fit = fits(contents(prefix=prefix), step=4000)
    assert fit.ok, fit.problems
    assert (fit.weights, fit.step, fit.block_size) == ("draft_state_dict", 4000, 8)


@pytest.mark.report("c15")
def test_a_layer_called_module_list_keeps_its_name() -> None:
    assert bare("module.module_list.0.weight") == "module_list.0.weight"
    assert bare("_orig_mod.module._orig_mod.fc.weight") == "fc.weight"


@pytest.mark.parametrize("key", ["draft_state_dict", "drafter", "model_state_dict", "state_dict", "model"])
def test_weights_are_found_where_the_harness_finds_them(key: str) -> None:
    assert fits(contents(key)).weights == key


def test_a_key_that_the_inventory_names_comes_first_and_must_be_there() -> None:
    assert fits(contents("my_drafter"), layout=Layout(weights=("my_drafter",))).ok
    fit = fits(contents(), layout=Layout(weights=("ema",)))
    assert "no key 'ema'; there are: draft_state_dict" in fit.problems


@pytest.mark.report("c15")
@pytest.mark.parametrize(
    ("key", "prefix", "weights"),
    [
        ("model", "module._orig_mod.drafter.", "model.drafter"),
        ("state", "model.drafter.module.", "state.model.drafter"),
        ("", "_orig_mod.drafter.", "drafter"),
        ("model", "drafter._orig_mod.", "model.drafter"),
    ],
)
def test_weights_are_found_below_names_with_dots_and_through_wrappers(
    key: str, prefix: str, weights: str
) -> None:
    fit = fits(contents(key, prefix=prefix), step=4000, layout=Layout(weights=(weights,)))
    assert fit.ok, fit.problems
    assert (fit.weights, fit.weights_bytes) == (weights, 250)


def test_of_a_whole_model_only_the_named_part_counts() -> None:
    other = {"target." + name: shape for name, shape in expected(FLAT).items()}
    whole = contents("model", prefix="drafter.", change={"target.x": (3,)} | other)
    tensors = [
        one.model_copy(update={"path": ("model", one.path[1].replace("drafter.target", "target"))})
        for one in whole.tensors
    ]
    whole = whole.model_copy(update={"tensors": tuple(tensors)})
    assert not fits(whole).ok
    assert fits(whole, layout=Layout(weights=("model.drafter",))).ok


def test_a_declared_prefix_is_stripped_of_a_torch_file_alone_since_others_come_as_they_are() -> None:
    layout = Layout(weights=("model",), strip=("net.",))
    assert not fits(contents("model", prefix="net.")).ok
    assert fits(contents("model", prefix="module.net.", format="torch-zip"), layout=layout).ok
    assert not fits(contents("model", prefix="net.", format="safetensors"), layout=layout).ok


def test_the_harness_finds_its_own_keys_by_itself_and_others_where_staging_brings_them() -> None:
    assert not foreign("drafter", Layout(weights=("drafter",)))
    assert foreign("state.model", Layout())
    assert foreign("drafter", Layout(strip=("net.",)))


@pytest.mark.parametrize("key", ["a", "a.b", "model.module.drafter", "module._orig_mod.x"])
@pytest.mark.parametrize("wanted", ["a", "a.b", "drafter", "model.drafter", "x", "module"])
def test_names_are_walked_as_the_program_on_the_host_walks_them(key: str, wanted: str) -> None:
    tensor = TensorFacts(path=(key, "w"), shape=(1,), dtype="float32")
    there = None
    for strip in ((), keys.WRAPPERS):
        met = keys.meet(f"{key}.w", wanted, strip)
        there = met[0] if there is None and met is not None and not met[1] else there
    assert [rest for rest, _ in below((tensor,), wanted)] == ([] if there is None else [there])


def test_the_tables_are_those_of_the_harness_and_of_the_program_on_the_host() -> None:
    harness = Path(__file__).parents[3] / "remote_payloads" / "dflash" / "drafter" / "loading.py"
    told = {
        target.id: ast.literal_eval(node.value)
        for node in ast.parse(harness.read_text()).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in ("NESTED", "PREFIXES")
    }
    assert told == {"NESTED": NESTED, "PREFIXES": PREFIXES}
    assert (keys.HARNESS, keys.BARE) == (NESTED, PREFIXES)
    assert keys.WRAPPERS == WRAPPERS


def test_a_missing_an_extra_and_a_misshapen_tensor_are_named() -> None:
    fit = fits(contents(change={"norm.weight": None, "lm_head.weight": (260, 96), "fc.weight": (96, 96)}))
    assert [problem.split(":")[0] for problem in fit.problems] == [
        "1 of 25 tensors missing",
        "1 tensors that a drafter does not have",
        "1 tensors of another shape",
    ]
    assert "fc.weight is [96, 96], its config says [96, 288]" in fit.problems[2]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"block_size": None}, "its config has no block_size"),
        ({"dflash_config": {"mask_token_id": 257}}, "its config has no target_layer_ids"),
        ({"dflash_config": {"target_layer_ids": [1, 2, 3]}}, "its config has no mask_token_id"),
        ({"dflash_config": {"target_layer_ids": "1,2", "mask_token_id": 1}}, "not a list of layer numbers"),
        ({"hidden_size": "96"}, "its config's hidden_size is '96', not an integer"),
        ({"projector_type": "domino"}, "projector_type is set"),
        ({"speculators_model_type": "dflash"}, "a speculators checkpoint"),
    ],
)
def test_a_config_that_the_harness_cannot_use_is_refused_with_the_reason(
    change: dict[str, Any], said: str
) -> None:
    assert any(said in problem for problem in fits(contents(config=CONFIG | change)).problems)


def test_without_a_config_it_is_refused() -> None:
    assert "no config" in fits(contents(config=None)).problems[0]


def test_a_nested_block_size_wins_over_the_one_at_the_top() -> None:
    nested = CONFIG["dflash_config"] | {"block_size": 16}
    assert fits(contents(config=CONFIG | {"dflash_config": nested})).block_size == 16


def test_a_step_inside_that_differs_from_the_name_is_a_problem_and_none_is_a_note() -> None:
    assert "it holds step 3000, its name says 4000" in fits(contents(step=3000), step=4000).problems
    fit = fits(contents(step=None), step=4000)
    assert fit.ok
    assert "does not say its step;" in fit.notes[0]
    named = fits(contents(step=None), step=4000, layout=Layout(step="trainer.n"))
    assert "does not say its step at trainer.n" in named.notes[0]


def test_half_precision_is_refused() -> None:
    assert "tensors of type float16" in fits(contents(dtype="float16")).problems[0]


@pytest.mark.report("c13")
def test_objects_that_a_safe_load_refuses_are_named_before_anything_is_copied() -> None:
    fit = fits(contents(globals=("argparse.Namespace",)))
    assert fit.ok
    assert "objects of argparse.Namespace" in fit.notes[0]
    assert not fits(contents(globals=("torch.distributed.tensor.DTensor",))).ok


@pytest.mark.parametrize(
    "name", ["posix.system", "nt.system", "subprocess.Popen", "builtins.exec", "builtins.eval", "os.popen"]
)
def test_a_pickle_that_would_run_code_is_refused_in_plain_words(name: str) -> None:
    fit = fits(contents(globals=("argparse.Namespace", name)))
    assert f"would run code ({name})" in fit.problems[0]
    assert not any(name in note for note in fit.notes)


def test_what_could_not_be_read_does_not_fit() -> None:
    unread = Contents(path="/c", complete=False, code="layout", reason="nested too deep")
    assert fits(unread).problems == ("not readable: nested too deep",)


def test_weights_under_no_known_key_are_refused_naming_the_keys() -> None:
    fit = fits(contents("something_else"))
    assert fit.problems == ("no drafter weights among its keys: something_else",)
