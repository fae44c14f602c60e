"""A job does not care whether it is watched, so a watcher whose connection is lost goes on where it was."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from hostkit import jobs
from hostkit.errors import (
    CannotCreateError,
    DeadlineError,
    HostKeyError,
    LostError,
    ProtocolError,
    RefusedError,
    UnreachableError,
)
from hostkit.inventory.models import Host
from hostkit.transport.base import Completed
from hostkit.transport.fake import FakeTransport

HOST = Host.model_validate({"address": "far"})
JOB = "0123456789abcdef"


def answering(*replies: dict[str, Any] | Exception) -> FakeTransport:
    """Give a host that answers each request with the next of `replies`, the last one again and again."""
    left = list(replies)

    def answer(argv: list[str], _: bytes) -> Completed:
        reply = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(reply, Exception):
            raise reply
        return Completed(tuple(argv), 0, json.dumps({"reply": reply}).encode(), b"")

    return FakeTransport("far", answer)


def supervisor(transport: FakeTransport, **options: Any) -> jobs.Supervisor:
    return jobs.Supervisor(transport, HOST, **options)


def poll(state: str, text: bytes = b"", end: int = 0, size: int | None = None) -> dict[str, Any]:
    job = {"job": JOB, "state": state, "path": "/x", "reason": "r"}
    return {
        "job": job,
        "data": base64.b64encode(text).decode(),
        "offset": end,
        "size": end if size is None else size,
    }


CUT = LostError("connection cut", hop="pve")
FACTS = {"memory": {"total": 1, "available": 1}, "cpus": 1, "at": 0}


def test_only_what_changes_nothing_is_asked_once_more_after_a_cut() -> None:
    found = {"job": JOB, "state": "done", "path": "/x"}
    assert supervisor(answering(CUT, found)).inspect(JOB).state == "done"
    assert supervisor(answering(CUT, poll("done", b"x", 1))).tail(JOB) == (b"x", 1)
    assert supervisor(answering(CUT, {"jobs": [found]})).list_jobs()[0].job == JOB
    assert supervisor(answering(CUT, {"names": ["a"]})).result_names(JOB) == ["a"]
    assert supervisor(answering(CUT, FACTS)).facts().cpus == 1
    for act in (
        lambda host: supervisor(host).cancel(JOB),
        lambda host: jobs.launch(supervisor(host), jobs.JobSpec(kind="k", name="n", argv=("a",))),
        lambda host: jobs.install_files(host, HOST, {"a": b""}, "/d"),
    ):
        transport = answering(CUT, found)
        with pytest.raises(LostError):
            act(transport)
        assert len(transport.asked) == 1


def test_a_job_is_named_by_its_very_attempt() -> None:
    for job, exact in ((JOB, f"{JOB}-1"), (f"{JOB}-2", f"{JOB}-2")):
        found = {"job": job, "state": "done", "path": "/x"}
        assert supervisor(answering(found)).inspect(JOB).attempt_id == exact


LOST = UnreachableError("connection lost", hop="pve")


@pytest.mark.report("e15")
def test_output_goes_on_where_it_was_after_a_lost_connection() -> None:
    transport = answering(
        poll("running", b"one ", 4),
        LOST,
        ProtocolError("cut"),
        poll("running", b"two", 7),
        poll("done", b"", 7),
    )
    seen: list[bytes] = []
    state = supervisor(transport).follow(JOB, progress=lambda _, data: seen.append(data))
    assert (state.state, b"".join(seen)) == ("done", b"one two")
    assert len(transport.asked) == 5


@pytest.mark.report("e15")
def test_a_connection_that_stays_lost_is_given_up_with_its_hop() -> None:
    with pytest.raises(UnreachableError) as caught:
        supervisor(answering(poll("running"), LOST), patience=0.6).follow(JOB)
    assert caught.value.hop == "pve"


def test_a_changed_host_key_is_not_tried_again() -> None:
    transport = answering(HostKeyError("changed", hop="pve"), poll("done"))
    with pytest.raises(HostKeyError):
        supervisor(transport).follow(JOB)
    assert len(transport.asked) == 1


def test_a_bounded_wait_ends_though_nothing_is_reached() -> None:
    begin = time.monotonic()
    with pytest.raises(UnreachableError):
        supervisor(answering(LOST)).follow(JOB, timeout=0.2)
    assert time.monotonic() - begin < 100


def test_the_commands_own_deadline_is_not_tried_again() -> None:
    transport = answering(DeadlineError("--timeout was used up", hop="pve"), poll("done"))
    with pytest.raises(DeadlineError):
        supervisor(transport).follow(JOB)
    assert len(transport.asked) == 1


def test_output_that_a_finished_job_left_is_read_to_its_end() -> None:
    transport = answering(poll("done", b"a", 1, size=3), poll("done", b"bc", 3))
    seen: list[bytes] = []
    supervisor(transport).follow(JOB, progress=lambda _, data: seen.append(data))
    assert b"".join(seen) == b"abc"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ({"refused": {"rule": "detach", "what": "KillUserProcesses"}}, RefusedError),
        ({"failed": {"errno": "ENOSPC", "what": "No space left"}}, CannotCreateError),
        ({"failed": {"errno": "EACCES", "what": "denied"}}, CannotCreateError),
        ({"job": JOB, "state": "dancing", "path": "/x"}, ProtocolError),
    ],
)
def test_what_a_host_refuses_or_cannot_do_is_an_error_of_its_kind(
    reply: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        jobs.launch(supervisor(answering(reply)), jobs.JobSpec(kind="k", name="n", argv=("x",)))


def launched(*levers: tuple[str, bool, str]) -> dict[str, Any]:
    found = [{"name": name, "real": real, "detail": detail} for name, real, detail in levers]
    return {"job": JOB, "state": "running", "path": "/x", "levers": found, "attached": False}


GROUPED, ALONE = "/autogroup-1 nice 0", "the kernel does not group by session, so nice counts by itself"


@pytest.mark.parametrize(
    ("levers", "works"),
    [
        ([("nice", True, "19"), ("autogroup", True, "nice 19")], True),
        ([("nice", True, "19"), ("autogroup", False, ALONE)], True),
        ([("nice", True, "19"), ("autogroup", False, GROUPED)], False),
        ([("nice", False, ""), ("autogroup", False, ALONE), ("cpu-weight", True, "")], True),
        ([], False),
    ],
)
def test_beside_a_run_a_job_without_a_lever_is_ended_again_and_refused(
    levers: list[tuple[str, bool, str]], works: bool
) -> None:
    transport = answering(launched(*levers), {"job": JOB, "state": "cancelled", "path": "/x"})
    spec = jobs.JobSpec(kind="k", name="n", argv=("x",))
    launch: Callable[[], Any] = lambda: jobs.launch(supervisor(transport), spec, beside_run=True)  # noqa: E731
    if works:
        assert launch().state == "running"
    else:
        with pytest.raises(RefusedError) as caught:
            launch()
        assert caught.value.rule == "no-levers"
    assert len(transport.asked) == (1 if works else 2)
