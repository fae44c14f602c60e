"""What is read from a log line, and what is not; no log whatever can stop the reading of it."""

import json
import math
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostkit.inventory.models import Log
from hostkit.liveness.logs import MAX_SHOWN, parse
from hostkit.liveness.times import moment_in

LOG = Log()


@pytest.mark.parametrize(
    ("line", "step", "total"),
    [
        ("step 4000/10000", 4000, 10000),
        ("step=4000", 4000, None),
        ("Step: 4,000 | loss 2.1", 4000, None),
        ("step:4000 of 10_000", 4000, 10000),
        ("[rank0] global_step = 4000, lr 3e-4", 4000, None),
        ("Epoch [1/10], Step [4000/10000], Loss: 2.1", 4000, 10000),
        ("train/step: 4000", 4000, None),
        ("Iteration 4000 loss 2", 4000, None),
        ("{'loss': 0.4, 'step': 4000}", 4000, None),
        ('{"step": 4000, "loss": 2.1, "total_steps": 10000}', 4000, 10000),
        ('INFO {"trainer": 1, "global_step": 4000}', 4000, None),
        (" 42%|████▏     | 4000/10000 [01:02<02:00, 64.5it/s]", 4000, 10000),
        ("Epoch 3:  42%|####      | 4.00k/10.0k [01:02<02:00, loss=2.1]", 4000, 10000),
        ("4000/10000 loss 2.1", 4000, 10000),
        ("eval at step 4000 loss 2.1", 4000, None),
        ('{"step": 1e999, "loss": 2.1}', None, None),
        ("resuming from step 2000", None, None),
        ("next checkpoint at step 6000", None, None),
        ("saved /workspace/checkpoints/step_4000/checkpoint.pt", None, None),
        ("step 0.35s", None, None),
        ("step 350 ms", None, None),
        ("step_time=3.5", None, None),
        ("max_steps=10000 warmup_steps: 100", None, None),
        ("Loading shards: 42%|####  | 40/100 [00:01<00:02]", None, None),
        ("Validation: 42%|####  | 40/100 [00:01<00:02]", None, None),
        ("10.1.2.3/24", None, None),
        ('{"step": NaN}', None, None),
        ('{"step": true}', None, None),
    ],
)
def test_a_step_is_read_where_a_step_was_made(line: str, step: int | None, total: int | None) -> None:
    reading = parse(line, LOG)
    assert (reading.step, reading.total) == (step, total)


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("step 1 loss 2.5", "2.5"),
        ("step 1 loss=2.5e-3", "0.0025"),
        ("step 1, Loss: nan", "nan"),
        ("step 1 train_loss -inf", "-inf"),
        ("step 1 loss: tensor(nan, device='cuda:0')", "nan"),
        ('{"step": 1, "loss": NaN}', "nan"),
        ('{"step": 1, "train/loss": "Infinity"}', "inf"),
        ("step 1 eval_loss nan", None),
        ("step 1 loss_scale 65536", None),
        ("step 1 loss info follows", None),
        ("step 1 val/loss nan", None),
        ('{"step": 1, "loss": null}', None),
    ],
)
def test_the_loss_is_the_training_s_own(line: str, loss: str | None) -> None:
    found = parse(line, LOG).loss
    assert (None if found is None else f"{found:g}") == loss


def test_the_inventory_s_own_expressions_go_before_the_presets() -> None:
    log = Log(step=r"update (\d+)", loss=r"nll=(\S+)", finished="all done")
    reading = parse("step 9 update 5 nll=2.5\nstep 10 update 6 nll=inf\nall done\n", log)
    assert (reading.step, reading.interval, reading.loss, reading.finished) == (6, 1, math.inf, "all done")
    assert parse('{"n": {"step": 7}, "l": 1.5}', Log(step="n.step", loss="l", format="json")).step == 7
    assert parse('{"step": 7}', Log(format="text")).step == 7


@pytest.mark.parametrize(
    ("lines", "rate"),
    [
        (["2026-11-30 10:00:00,500 step 10", "2026-11-30 10:00:10,500 step 30"], 2.0),
        (["2026-11-30T10:00:00Z step 10", "2026-11-30T11:00:10+01:00 step 30"], 2.0),
        (['{"step": 10, "time": 1796034900.5}', '{"step": 30, "time": 1796034910.5}'], 2.0),
        (['{"step": 10, "timestamp": 1796034900500}', '{"step": 30, "timestamp": 1796034910500}'], 2.0),
        (['{"step": 10, "elapsed": 5}', '{"step": 30, "elapsed": 15}'], 2.0),
        (["[23:59:55] step 10", "[00:00:05] step 30"], 2.0),
        ([" 1%|x| 10/100 [00:05<1:00, 1it/s]\r 3%|x| 30/100 [00:15<1:00, 1it/s]"], 2.0),
        (["2026-11-30 10:00:00 step 90", "2026-11-30 11:00:00 step 10", "2026-11-30 11:00:10 step 30"], 2.0),
        (['{"step": 10, "time": 0.35}', '{"step": 30, "time": 0.36}'], None),
        (["step 10", "step 30"], None),
        (["2026-11-30 10:00:00 step 10", "2026-11-30 09:00:00 step 30"], None),
    ],
)
def test_the_rate_is_steps_between_two_times_of_one_attempt(lines: list[str], rate: float | None) -> None:
    assert parse("\n".join(lines), LOG).rate == (rate if rate is None else pytest.approx(rate))


@pytest.mark.parametrize("digits", [16, 31, 310, 4000])
@pytest.mark.parametrize("key", ["step", "total_steps", "loss", "time", "elapsed"])
def test_a_number_beyond_all_measure_in_one_record_leaves_the_others_readable(key: str, digits: int) -> None:
    huge = {"step": 11, "loss": 1.5, "time": 1796034901} | {key: 10 ** (digits - 1)}
    reading = parse(f'{{"step": 10, "loss": 2.5, "time": 1796034900}}\n{json.dumps(huge)}\n', LOG)
    assert reading.step == (10 if key == "step" else 11)
    assert reading.rate is None or reading.rate == 1.0
    assert reading.stepped_at is None or reading.stepped_at < 1e11


def test_steps_after_the_end_mark_take_it_back() -> None:
    log = Log(finished="training complete")
    assert parse("step 9\ntraining complete\n", log).finished == "training complete"
    assert parse("step 9\ntraining complete\nstep 1\n", log).finished is None


@pytest.mark.report("b1")
def test_fifty_thousand_redraws_are_one_short_line() -> None:
    text = "header\n" + "\r".join(f" 9%|x| {n}/50000 [00:01<00:02]" for n in range(50_000))
    reading = parse(text[-16384:], LOG, begins=True)
    assert reading.step == 49_999
    assert len(reading.lines) == 1
    assert "\r" not in reading.lines[0]


@pytest.mark.report("b3")
def test_an_overlong_line_is_cut_with_a_mark() -> None:
    reading = parse("step 7\n" + '{"x": "' + "y" * 300_000, LOG)
    assert reading.step == 7
    assert len(reading.lines[1]) < MAX_SHOWN + 50
    assert "more characters]" in reading.lines[1]


@pytest.mark.report("b7")
def test_escape_sequences_are_gone_before_anything_is_read() -> None:
    text = "\x1b]0;step 9\x07\x1b[32mstep \x1b[1m4000\x1b[0m/\x1b[0m10000\x1b[2K\x1b[1A [bold red]x[/]"
    reading = parse(text, LOG)
    assert reading.step == 4000
    assert reading.lines == ("step 4000/10000 [bold red]x[/]",)


@pytest.mark.report("b1", "b5", "b7")
@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("step 3999\nstep 4000\x1b[0", 4000),  # cut amid a colour
        ("step 3999\nstep \x1b[1m4000\x1b[38;5", 4000),
        ("step 3999\nstep 4000\x9b0", 4000),
        ("step 3998 loss 2\nstep 3999 loss 2\nstep 40", 3999),  # cut amid a number
        ('{"step": 3999, "loss": 2.5}\n{"step": 40', 3999),
        ("step 3999 loss 2\rstep 4", 3999),
        ("step 3999 loss 2\nstep 4000", 4000),
        ("step 4000", 4000),
        ("step 9000\nstep 40\n", 40),  # whole: begun anew
        ("step 3999 loss 2\x1b[2K\x1b[1Gstep 4000 loss 2", 4000),
        ("step 3999\n\x1b[1A\x1b[2Kstep 4000\n", 4000),
        ("\b\b\b3999/9999 [=>..] - loss: 0.4\b\b\b\b4000/9999 [=>..] - loss: 0.39", 4000),
        ("step 3'999 loss 2\nstep 4'000 loss 2\n", 4000),
        ("step 4\u202f000 loss 2\n", 4000),
    ],
)
def test_the_last_redraw_is_read_however_it_was_drawn_and_wherever_it_was_cut(text: str, step: int) -> None:
    assert parse(text, LOG).step == step


@given(st.text() | st.text(alphabet=string.printable + "\x1b\r\x9b\u202e█"), st.booleans())
def test_no_text_whatever_stops_the_reading(text: str, begins: bool) -> None:
    reading = parse(text, LOG, begins=begins)
    shown = "".join(reading.lines)
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in shown)


@given(st.text())
def test_no_line_whatever_stops_the_search_for_a_time(line: str) -> None:
    moment = moment_in(line)
    assert moment is None or math.isfinite(moment.seconds)


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_steps_are_numbers_of_any_size(step: int, loss: int) -> None:
    assert parse(f"step {step} loss {loss}", LOG).step == step
