"""To which attempt a checkpoint belongs: told by evidence, and unknown where there is none."""

from __future__ import annotations

import pytest

from hostkit.checkpoints import Candidate
from hostkit.liveness.attempts import Resumed, attempt_of, resumed_from

ROOT = "/ckpt"


def one(step: int, mtime_ns: int | None = 0) -> Candidate:
    return Candidate(step=step, path=f"{ROOT}/step_{step}/c.pt", complete=True, mtime_ns=mtime_ns)


FOUND = [one(1000), one(2000), one(3000)]
BY_HAND = Resumed(step=2000, path=f"{ROOT}/step_2000/c.pt", evidence="its argv says so")


@pytest.mark.parametrize(
    ("step", "mtime", "started", "live", "resumed", "word", "said"),
    [
        (3000, 200, 100, 3500, None, "live", "since the live process began"),
        (3000, 100, 100, None, None, "live", "since the live process began"),
        (2000, 50, 100, 3500, BY_HAND, "resumed-from", "its argv says so"),
        (1000, 50, 100, 3500, BY_HAND, "earlier", "before the live process began"),
        (2000, 50, 100, 3500, None, "earlier", "whether that resumed from it is not known"),
        (9000, 50, 100, 3500, None, "earlier", "above its step 3500"),
        (9000, 200, 100, 3500, None, "unknown", "yet above its step 3500"),
        (2000, 50, None, 3500, None, "unknown", "no live process is known for certain"),
        (2000, None, 100, 3500, None, "unknown", "not known when it was written"),
    ],
)
def test_an_attempt_is_told_by_its_evidence(
    step: int,
    mtime: int | None,
    started: int | None,
    live: int | None,
    resumed: Resumed | None,
    word: str,
    said: str,
) -> None:
    found = attempt_of(one(step, mtime), started_ns=started, live_step=live, resumed=resumed)
    assert (found.word, said in found.evidence) == (word, True), found


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "train.py", "--resume", "/ckpt/step_2000/c.pt"],
        ["python", "train.py", "--resume-from=step_2000"],
        ["python", "train.py", "--load_checkpoint", "step_2000/", "--out", "/ckpt"],
    ],
)
def test_an_argv_that_names_a_checkpoint_after_a_flag_of_resuming_says_so(argv: list[str]) -> None:
    found = resumed_from(FOUND, root=ROOT, argv=argv, cwd="/ckpt")
    assert found is not None
    assert (found.step, found.path) == (2000, "/ckpt/step_2000/c.pt")
    assert found.evidence.startswith("its argv says --")


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "train.py", "--out", "/ckpt/step_2000"],
        ["python", "train.py", "--resume", "/ckpt"],
        ["python", "train.py", "--resume", "auto"],
        ["python", "train.py", "--resume", "--out", "/ckpt/step_2000/c.pt"],
        ["python", "train.py", "/ckpt/step_2000/c.pt"],
        ["python", "train.py", "--resume", "/ckpt/step_20"],
    ],
)
def test_an_argv_that_only_mentions_one_says_nothing(argv: list[str]) -> None:
    assert resumed_from(FOUND, root=ROOT, argv=argv, cwd="/") is None


def test_a_root_that_holds_the_files_themselves_is_no_checkpoint() -> None:
    flat = [Candidate(step=7, path="/ckpt/step_7.pt", complete=True)]
    assert resumed_from(flat, root="/ckpt", argv=["t.py", "--resume", "/ckpt"]) is None


@pytest.mark.parametrize(
    ("lines", "step"),
    [
        (['{"event": "resumed", "step": 2000}', '{"step": 2005, "loss": 1}'], 2000),
        (["Resuming from step 2000", "step 2001 loss 2", "step 2001 loss 2"], 2000),
        (["loading /ckpt/step_2000/c.pt", "step 2001 loss 2"], 2000),
        (["restored checkpoint: iteration=2500", "step 2501 loss 2"], 2500),
        (["step 1 loss 9", "continuing at global_step 2000"], 2000),
        (["resumed at step 2000", "step 2001 loss 2", "step 1 loss 9"], None),
        (["resumed at step 2000", "step 1500 loss 2"], None),
        (["resumed at step 1000", "step 1001 loss 2", "resumed at step 3000", "step 3001 loss 2"], 3000),
        (["loading shard step 2000", "step 2001 loss 2"], None),
        (["step 2001 loss 2"], None),
        ([], None),
    ],
)
def test_a_log_says_it_where_the_steps_after_that_line_go_on_from_it(
    lines: list[str], step: int | None
) -> None:
    found = resumed_from(FOUND, root=ROOT, lines=lines, live_step=2001)
    assert (found.step if found else None) == step


def test_a_log_whose_last_step_is_an_earlier_attempts_says_nothing() -> None:
    lines = ["resumed at step 2000", "step 2001 loss 2"]
    assert resumed_from(FOUND, root=ROOT, lines=lines, live_step=None) is None


def test_a_step_in_the_log_means_every_file_of_that_step_and_a_path_only_its_own() -> None:
    twin = one(2000).model_copy(update={"path": "/ckpt/other/step_2000/c.pt"})
    by_step = Resumed(step=2000, evidence="log")
    assert by_step.means(one(2000))
    assert by_step.means(twin)
    assert not BY_HAND.means(twin)
