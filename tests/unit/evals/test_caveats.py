"""A number is never shown without what it rests on."""

from __future__ import annotations

from hostkit.evals.caveats import caveats, doubts
from hostkit.evals.results import dump, parse

from .samples import document, result

MANY = {f"p{i}": [3, 4] for i in range(8)}


def words(found):
    return "\n".join(found)


def test_a_full_sample_of_several_domains_at_the_trained_block_needs_no_caveat():
    domains = {"code": {"asked": 4, "done": 4, "blocks": 8}, "prose": {"asked": 4, "done": 4, "blocks": 8}}
    assert caveats(result(MANY, coverage__by_domain=domains)) == []


def test_three_prompts_of_ten_are_partial_and_too_few_and_name_why():
    missing = [{"prompt": f"p{i}", "reason": "no features"} for i in range(7)]
    found = words(
        caveats(
            result({f"p{i}": [3] for i in range(3)}, coverage__prompts_asked=10, coverage__missing=missing)
        )
    )
    assert "PARTIAL: 3 of 10" in found
    assert "no features" in found and "4 more" in found
    assert "3 prompts are too few" in found


def test_one_domain_says_nothing_about_others():
    assert "all prompts are of one domain (code)" in words(caveats(result(MANY)))


def test_both_block_sizes_are_given_when_they_differ():
    assert "evaluated at block 16, trained at block 32" in words(
        caveats(result(MANY, settings__trained_block_size=32))
    )


def test_the_lag_is_given_in_steps_per_cent_and_time():
    found = words(caveats(result(MANY), lag={"steps": 1296, "percent": 24.47, "minutes": 61.2}))
    assert "step 4000 is 1296 steps (24.5 %, 1 h 1 min) behind the live weights" in found


def test_a_lag_of_seconds_is_not_called_no_time():
    found = words(caveats(result(MANY), lag={"steps": 40, "percent": 28.6, "minutes": 0.25}))
    assert "(28.6 %, 15 s)" in found


def test_a_target_that_disagrees_with_its_references_is_said_with_the_likely_causes():
    agreement = {"agree": 40, "of": 100, "rate": 0.4, "passed": False}
    found = words(caveats(result(MANY, target_agreement=agreement)))
    assert "40.0%" in found and "template" in found


def test_a_headline_figure_that_is_no_number_is_bad_and_said():
    result = parse(dump(document({"p": [1, 2]}, metrics={"accept_len": {"mean": "nan", "n": 2}})), where="x")
    assert any("accept_len is not a number" in caveat for caveat in caveats(result))


def test_a_mean_that_contradicts_its_own_blocks_is_said():
    result = parse(dump(document({"p": [1, 2]}, metrics={"accept_len": {"mean": 7.0, "n": 2}})), where="x")
    assert doubts(result) == ["accept_len 7.00 contradicts its own 2 blocks (mean 1.50)"]
    assert doubts(parse(dump(document({"p": [1, 2]})), where="x")) == []
