"""What a host says of its checkpoints: in one round trip, and never taken for more than it is."""

from __future__ import annotations

import json

import pytest

from hostkit.checkpoints import Layout
from hostkit.errors import LostError, ProtocolError
from hostkit.staging.inspect import inspect_checkpoint, list_checkpoints, look, summaries
from hostkit.transport.base import Completed
from hostkit.transport.connections import Connections
from hostkit.transport.fake import FakeTransport
from tests.unit.staging.conftest import Ground, saved


def test_the_step_inside_and_the_weights_of_several_come_in_one_round_trip(ground: Ground) -> None:
    paths = [str(saved(ground.root / f"step_{step}" / "checkpoint.pt", step, numbers=10)) for step in (1, 2)]
    with Connections(ground.inventory()) as connections:
        transport = connections.transport("box")
        assert summaries(transport, "python3", paths, Layout())[0] == {paths[0]: (1, 40), paths[1]: (2, 40)}
        ema = Layout(weights=("ema",), step="config.block_size")
        assert summaries(transport, "python3", paths[:1], ema)[0] == {paths[0]: (16, None)}
        gone = [str(ground.root / "none.pt")]
        assert summaries(transport, "python3", gone, Layout()) == ({gone[0]: (None, None)}, {})


def test_two_looks_at_one_checkpoint_agree_on_its_identity(ground: Ground) -> None:
    path = saved(ground.root / "step_1" / "checkpoint.pt", 1, numbers=10)
    with Connections(ground.inventory()) as connections:
        transport = connections.transport("box")
        contents = inspect_checkpoint(transport, "python3", str(path))
        assert contents.identity == look(transport, "python3", str(path)).identity
        assert (contents.step, contents.keys()) == (1, ["drafter", "step", "config"])
        path.unlink()
        assert look(transport, "python3", str(path)).reason == "vanished"


@pytest.mark.parametrize("reply", [{"path": 3}, {}, {"path": "/c", "complete": "perhaps"}])
def test_a_reply_that_is_not_one_is_no_answer(reply: dict[str, object]) -> None:
    def answer(argv: list[str], _stdin: bytes) -> Completed:
        return Completed(tuple(argv), 0, json.dumps({"reply": reply}).encode(), b"")

    transport = FakeTransport("ct200", answer)
    with pytest.raises(ProtocolError, match="unexpected reply"):
        inspect_checkpoint(transport, "python3", "/c")
    with pytest.raises(ProtocolError, match="not a list"):
        list_checkpoints(transport, "python3", "/c", "step_{step}")


def test_a_read_whose_connection_was_lost_is_asked_once_more() -> None:
    answers: list[bytes | None] = [None, b'{"reply": {"candidates": []}}', None, b'{"reply": {}}']

    def answer(argv: list[str], _stdin: bytes) -> Completed:
        said = answers.pop(0)
        if said is None:
            raise LostError("cut", hop="a")
        return Completed(tuple(argv), 0, said, b"")

    transport = FakeTransport("a", answer)
    assert list_checkpoints(transport, "python3", "/c", "{step}") == []
    assert summaries(transport, "python3", ["/c/1"], Layout()) == ({}, {})
    assert not answers
