"""A command that was cut goes on where it was cut; one that stands in another's way says so and breaks nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from hostkit.checkpoints import Candidate, Contents, Staged, StagePlan
from hostkit.errors import BusyError, CannotCreateError, DataError, HostkitError
from hostkit.evals import filing, pipeline, running
from hostkit.evals.finding import Chosen
from hostkit.evals.pipeline import Options, Pipeline
from hostkit.evals.preflight import HarnessFound, Preflight
from hostkit.evals.record import UnderWay
from hostkit.evals.steps import Steps
from hostkit.jobs import JobState, State
from hostkit.transport.fake import FakeTransport

from .samples import result
from .test_finding import saved, status
from .test_planning import inventory

SHA = "0" * 64


class Killed(BaseException):
    """kill -9: nothing is caught, nothing is tidied."""


@dataclass
class World:
    """A host and a run made of plain functions; `cut` names the function that kills the command, after it is done."""

    archive: str
    newest: int = 4000
    cut: str = ""
    fails: dict[str, HostkitError] = field(default_factory=dict)
    jobs: list[JobState] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    others: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)

    def observe(self, *_: Any) -> Any:
        return status(saved(self.newest, newest=True), live=self.newest + 10)

    def choose_latest(self, *_: Any) -> Chosen:
        return Chosen(
            Candidate(step=self.newest, path=f"/w/{self.newest}", complete=True, size=1, mtime_ns=1, inode=1)
        )

    def verify(self, *_: Any) -> Any:
        self._did("verify")
        return type(
            "Verified", (), {"contents": None, "config": {}, "words": "", "fit": type("F", (), {"notes": ()})}
        )()

    def compare_harness(self, *_: Any, **__: Any) -> Any:
        return HarnessFound((), self.others, "equal")

    def preflight(self, *_: Any) -> Preflight:
        self._did("preflight")
        return Preflight({"memory": {"peak_bytes": 1}, "disk": {"needed_bytes": 1}})

    def plan_stage(
        self, _c: Any, _i: Any, run: str, candidate: Candidate, host: str, folder: str, **_: Any
    ) -> StagePlan:
        return StagePlan(
            run=run, step=candidate.step, source="ct200", source_path=candidate.path, destination=host, folder=folder,
            name=f"s{candidate.step}", entry="c.pt", format=None, bytes=1, contents=Contents(path="/c", complete=True),
        )  # fmt: skip

    def stage(self, *_: Any, plan: StagePlan, **__: Any) -> Staged:
        self._did("stage")
        return Staged(
            path=plan.path, host="ct129", sha256=SHA, bytes=1, step=plan.step, route=(), method="full"
        )

    def list_jobs(self) -> list[JobState]:
        return list(self.jobs)

    def launch(self, _launcher: Any, spec: Any, **_: Any) -> JobState:
        found = next((job for job in self.jobs if job.job == spec.id), None)
        if found is None:
            state = "running" if spec.kind == running.WHOLE else "done"
            found = JobState(host="ct129", job=spec.id, attempt=1, state=state, path="/x", spec=spec)
            self.jobs.append(found)
        self._did(f"launch {spec.kind}")
        return found

    def inspect(self, job: str) -> JobState:
        self.asked.append(job)
        return next(one for one in self.jobs if one.attempt_id == job)

    def follow(self, _launcher: Any, state: JobState, _say: Any, **_: Any) -> JobState:
        ended = state.model_copy(update={"state": State.DONE})
        self.jobs = [ended if job.job == state.job else job for job in self.jobs]
        self._did(f"follow {state.spec.kind}" if state.spec else "follow")
        return ended

    def collect(self, _launcher: Any, state: JobState, this: str, _sha: str) -> Any:
        self._did("collect")
        step = state.spec.inputs["step"] if state.spec else 0
        return result({"p": [1, 2]}, step=step, evaluation_id=this), b"log"

    def _did(self, what: str) -> None:
        self.done.append(what)
        if what in self.fails:
            raise self.fails.pop(what)
        if what == self.cut:
            self.cut = ""
            raise Killed

    def evaluate(self, **options: bool) -> dict[str, Any]:
        self.done = []
        found = inventory().model_copy(update={"archive": self.archive})
        connections = SimpleNamespace(
            transport=FakeTransport, close_multiplexer=lambda _host: None, remaining=lambda: None
        )
        return Pipeline(connections, found, "drafter", Options(**options), Steps()).run()


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = World(str(tmp_path / "archive"))
    for name in (
        "observe", "choose_latest", "verify", "compare_harness", "preflight", "plan_stage", "stage", "launch",
    ):  # fmt: skip
        monkeypatch.setattr(pipeline, name, getattr(made, name))
    monkeypatch.setattr(pipeline, "launcher_of", lambda *_: made)
    monkeypatch.setattr(filing, "observe", made.observe)
    monkeypatch.setattr(running, "follow", made.follow)
    monkeypatch.setattr(running, "collect", made.collect)
    return made


def archived(world):
    from hostkit.evals.archive import Archive

    return [entry.result.checkpoint.step for entry in Archive(world.archive, "drafter").entries()[0]]


CUTS = [
    "verify", "preflight", "stage", "launch eval-one-block", "follow eval-one-block", "launch eval", "follow eval",
    "collect",
]  # fmt: skip


@pytest.mark.parametrize("cut", CUTS)
def test_a_killed_command_goes_on_with_its_own_checkpoint_although_a_newer_one_has_landed(world, cut):
    world.cut = cut
    with pytest.raises(Killed):
        world.evaluate()
    world.newest = 6000
    found = world.evaluate()
    assert (found["checkpoint"]["step"], archived(world)) == (4000, [4000])
    assert [job.state for job in world.jobs if job.spec.kind == running.WHOLE] == ["done"]
    assert any("step 6000 has landed since" in caveat for caveat in found["caveats"])
    assert world.evaluate()["checkpoint"]["step"] == 6000


def test_a_job_that_was_launched_just_before_the_kill_is_followed_and_nothing_is_done_again(world):
    world.cut = "launch eval"
    with pytest.raises(Killed):
        world.evaluate()
    world.evaluate()
    assert world.done == ["follow eval", "collect"]


@pytest.mark.parametrize("cut", ["launch eval", "follow eval"])
def test_the_attempt_that_was_begun_is_followed_although_somebody_has_begun_another(world, cut):
    world.cut = cut
    with pytest.raises(Killed):
        world.evaluate()
    first = next(job for job in world.jobs if job.spec.kind == running.WHOLE)
    world.evaluate()
    assert set(world.asked) == {f"{first.job}-1"}


def test_a_cut_rerun_goes_on_as_a_rerun_and_is_filed_once(world):
    world.evaluate()
    world.jobs.clear()
    world.cut = "follow eval"
    with pytest.raises(Killed):
        world.evaluate(rerun=True)
    world.newest = 6000
    assert world.evaluate(rerun=True)["checkpoint"]["step"] == 4000
    assert world.done == ["follow eval", "collect"]


def test_an_evaluation_that_another_machine_has_begun_is_named_and_the_cut_one_is_not_forgotten(world):
    world.cut = "launch eval"
    with pytest.raises(Killed):
        world.evaluate()
    with pytest.raises(BusyError, match="step 4000") as caught:
        world.evaluate(quick=True)
    assert world.jobs[-1].job in caught.value.what
    assert "verify" not in world.done, "nothing is installed beside a running evaluation"
    assert world.evaluate()["checkpoint"]["step"] == 4000


@pytest.mark.parametrize(
    ("error", "goes_on"),
    [(CannotCreateError("disk full"), True), (DataError("source vanished"), False)],
    ids=["a full disk", "a source that is gone"],
)
def test_only_what_can_still_succeed_is_gone_on_with(world, error, goes_on):
    world.fails["stage"] = error
    with pytest.raises(type(error)):
        world.evaluate()
    world.newest = 6000
    assert world.evaluate()["checkpoint"]["step"] == (4000 if goes_on else 6000)


def test_a_second_time_comes_from_the_archive_and_touches_no_host(world):
    world.evaluate()
    again = world.evaluate()
    assert (again["reused"], world.done) == (True, [])


def test_following_shows_the_result_of_the_command_that_was_followed(world, monkeypatch):
    world.cut = "collect"
    with pytest.raises(Killed):
        world.evaluate()
    record = UnderWay(world.archive, "drafter").read()
    world.evaluate()  # by somebody else, say
    world.newest = 6000
    monkeypatch.setattr(UnderWay, "wait", lambda *_: record)
    found = world.evaluate(attach=True)
    assert (found["checkpoint"]["step"], found["reused"], world.done) == (4000, False, [])


def test_what_is_done_on_a_host_is_in_the_journal_before_it_is_done(world):
    from hostkit.journal import Journal

    world.cut = "launch eval"
    with pytest.raises(Killed):
        world.evaluate()
    events = [line["event"] for line in Journal().read()]
    assert events == ["eval-latest", "stage", "staged", "launch", "launch"]


def test_what_could_have_changed_the_figure_unseen_stands_beside_it(world, tmp_path):
    broken = tmp_path / "archive" / "drafter" / "step_2000_20261130T101500Z_00000000"
    broken.mkdir(parents=True)
    (broken / "result.json").write_text("{")
    world.others = ("torch.py",)
    caveats = world.evaluate()["caveats"]
    assert any("torch.py" in caveat for caveat in caveats)
    assert any(str(broken) in caveat for caveat in caveats), (
        "an earlier result that cannot be read is not none"
    )
