"""Only like is compared with like, and nothing is called better when chance would do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostkit.evals.compare import compare

from .samples import result

LOW = {f"p{i}": [1, 2, 1, 2] for i in range(6)}
HIGH = {f"p{i}": [4 + i % 2, 5, 4, 5] for i in range(6)}


def test_a_clear_difference_over_enough_prompts_is_better_and_the_other_way_round_worse():
    there = compare(result(LOW, evaluation_id="a" * 16), result(HIGH, step=5000))
    assert there.verdict == "comparable"
    assert there.differences["accept_len"].words == "better"
    assert there.differences["accept_len"].pairs == 24
    back = compare(result(HIGH, step=5000), result(LOW))
    assert back.differences["accept_len"].words == "worse"


def test_one_prompt_is_too_few_to_say():
    found = compare(result({"p": [1, 1]}), result({"p": [5, 5]}, step=5000))
    assert found.differences["accept_len"].words == "too few prompts to say"


def test_quick_and_full_of_one_checkpoint_are_nested_samples_and_no_difference():
    full = {f"p{i}": [3, 4, 3, 5, 1, 0] for i in range(3)}
    quick = {name: values[:3] for name, values in full.items()}
    found = compare(result(quick), result(full))
    assert found.verdict == "comparable with caveats"
    assert any("nested samples" in caveat for caveat in found.caveats)
    assert any("same checkpoint" in caveat for caveat in found.caveats)
    assert found.differences["accept_len"].difference == 0
    assert found.conflict is None


@pytest.mark.report("i9")
def test_a_setting_of_another_harness_that_differs_forbids_a_comparison():
    one = {"settings__fewshot": 0, "settings__limit": 100, "settings__batch": 1}
    two = {"settings__fewshot": 5, "settings__limit": None, "settings__batch": 16}
    found = compare(result(LOW, **one), result(HIGH, step=5000, **two))
    assert found.verdict == "not comparable"
    assert [reason.split()[1] for reason in found.reasons] == ["fewshot", "limit"]
    assert found.differences == {}
    found = compare(
        result(LOW, settings__batch=1), result(HIGH, step=5000, settings__batch=16, settings__new=1)
    )
    assert found.verdict == "comparable with caveats"
    assert "setting batch differs (1 and 16)" in found.caveats
    assert "setting new is recorded in one of the two only" in found.caveats


@pytest.mark.report("i9")
@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"target__config_sha256": "other"}, "target"),
        ({"target__vocab_sha256": "other"}, "tokenizer"),
        ({"target__template_sha256": "other"}, "chat template"),
        ({"settings__thinking": True}, "thinking flag"),
        ({"settings__metric_definition": "unverified"}, "metric definition"),
        ({"target__vocab_sha256": None}, "tokenizer: not recorded"),
    ],
)
def test_unlike_settings_are_named_and_no_difference_is_shown(changes, word):
    found = compare(result(LOW), result(HIGH, step=5000, **changes))
    assert found.verdict == "not comparable"
    assert any(word in reason for reason in found.reasons)
    assert found.differences == {}


def test_no_prompt_in_common_is_not_comparable():
    found = compare(result({"a": [1]}), result({"b": [1]}))
    assert "no prompt in common" in found.reasons


def test_other_references_are_not_compared_anchor_by_anchor():
    other = result(HIGH)
    other = other.model_copy(
        update={"per_prompt": [p.model_copy(update={"reference_sha256": "other"}) for p in other.per_prompt]}
    )
    assert "no reference and anchor in common" in compare(result(LOW), other).reasons


@pytest.mark.report("i5")
def test_a_partial_result_is_called_partial():
    found = compare(result(LOW), result(HIGH, step=5000, coverage__prompts_asked=9))
    assert found.verdict == "comparable with caveats"
    assert "the other is partial: 6 of 9 prompts" in found.caveats


def test_block_size_is_a_caveat_that_gives_both():
    found = compare(result(LOW), result(HIGH, step=5000, settings__block_size=32))
    assert "block size differs (16 and 32)" in found.caveats


def test_a_difference_whose_interval_holds_zero_is_not_called_none():
    lengths = {f"p{i}": [i % 3] * 4 for i in range(12)}
    others = {
        name: [(one[0] + (1 if i % 2 else -1)) % 4] * 4 for i, (name, one) in enumerate(lengths.items())
    }
    item = compare(result(lengths), result(others, step=5000)).differences["accept_len"]
    assert item.interval is not None and item.interval[0] < 0 < item.interval[1]
    assert item.words == "no significant difference"


def test_one_checkpoint_that_disagrees_with_itself_is_a_conflict():
    found = compare(result(LOW), result(HIGH))
    assert found.conflict is not None
    assert "one checkpoint" in found.conflict


lengths = st.dictionaries(
    st.sampled_from("abcdef"), st.lists(st.integers(0, 15), min_size=1, max_size=6), min_size=1
)


@given(lengths, lengths)
def test_turning_a_comparison_round_turns_its_differences_round(one, two):
    there = compare(result(one), result(two, step=5000))
    back = compare(result(two, step=5000), result(one))
    assert there.verdict == back.verdict
    turned = {"better": "worse", "worse": "better"}
    for name, item in there.differences.items():
        assert back.differences[name].difference == pytest.approx(-item.difference)
        assert back.differences[name].words == turned.get(item.words, item.words)
