"""A command that was cut resumes where it was cut; one that stands in another's way says so and breaks nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hostkit.checkpoints import Candidate, Contents, Fit
from hostkit.errors import BusyError, CannotCreateError, DataError, HostkitError, NotWholeError, UsageError
from hostkit.evals import running
from hostkit.evals.archive import Archive
from hostkit.evals.collaborators import Collaborators
from hostkit.evals.dflash import DFlash
from hostkit.evals.finding import Verified
from hostkit.evals.harness import Preflight
from hostkit.evals.harness_files import HarnessState
from hostkit.evals.pipeline import Options, Pipeline
from hostkit.evals.record import EvaluationLock
from hostkit.evals.results import EvalResult, dump
from hostkit.evals.steps import Steps
from hostkit.jobs import Facts, JobSpec, JobState, State, check
from hostkit.journal import Journal
from hostkit.liveness.status import HopStatus, TrainStatus
from hostkit.staging.models import StagePlan
from hostkit.staging.stage import Staged
from tests.unit.liveness.test_latest import saved, status

from .samples import document
from .test_planning import inventory

SHA = "0" * 64
GIB = 2**30
CONTENTS = Contents(path="/c", complete=True, format="torch-zip", metadata={"config": {}})


class Killed(BaseException):
    """kill -9: nothing is caught, nothing is tidied."""


@dataclass
class World:
    """A host and a run; `cut` names what kills the command, right after it was done."""

    folder: Path
    newest: int = 4000
    cut: str = ""
    fails: dict[str, HostkitError] = field(default_factory=dict)
    jobs: list[JobState] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    others: tuple[str, ...] = ()
    prompts_done: int = 2  # of two
    unreached: int = 0  # observations that do not reach the run, from now on
    told: Callable[[], None] = lambda: None
    broken: tuple[str, ...] = ()

    # -- the run, and staging

    def observe(self) -> TrainStatus:
        if "collect" in self.done and self.unreached:
            self.unreached -= 1
            hop = HopStatus(name="pve", kind="ssh", state="failed", error="connection lost")
            return status(verdict="UNKNOWN", exit=3, hops=[hop])
        return status(saved(self.newest - 1000), saved(self.newest, newest=True), live=self.newest + 10)

    def verify(self, candidate: Candidate) -> Verified:
        self._did("verify")
        if candidate.path in self.broken:
            raise NotWholeError(candidate.path, "cut short", host="ct200")
        return Verified(CONTENTS, Fit(step=candidate.step))

    def plan_stage(self, candidate: Candidate, _: Verified) -> StagePlan:
        return StagePlan(
            run="drafter", step=candidate.step, source="ct200", source_path=candidate.path, destination="ct129",
            folder="/root/eval/staged", name=f"s{candidate.step}", entry="c.pt", format=None, bytes=1,
            contents=CONTENTS,
        )  # fmt: skip

    def stage(self, plan: StagePlan, _progress: Any) -> Staged:
        self._did("stage")
        return Staged(
            path=plan.path, host="ct129", sha256=SHA, bytes=1, step=plan.step, route=(), method="full"
        )

    # -- the harness on its host

    def compare(self, *, update: bool) -> HarnessState:
        return HarnessState((), self.others, "equal")

    def prompts_present(self) -> bool:
        return True

    def install(self, state: HarnessState) -> tuple[str, ...]:
        self._did("install")
        return tuple(name for name in state.dropped if name.startswith("edited"))

    def install_prompts(self) -> None:
        self._did("install prompts")

    def preflight(self, _work: Any, _config: Any) -> Preflight:
        self._did("preflight")
        return Preflight(1, 1, "nothing missing")

    # -- the launcher

    host = "ct129"

    def list_jobs(self, *, limit: int = 200) -> list[JobState]:
        return self.jobs[-limit:]

    def start(self, spec: JobSpec, *, again: bool = False) -> JobState:
        last = next((job for job in reversed(self.jobs) if job.job.startswith(spec.id)), None)
        if last is None or (again and last.state is State.DONE):
            attempt = last.attempt + 1 if last else 1
            job = spec.id if attempt == 1 else f"{spec.id}-{attempt}"
            last = JobState(
                host="ct129", job=job, attempt=attempt, state=State.RUNNING, path="/x", spec=spec,
                isolation_measures=({"name": "cpu-weight", "real": True},),
            )  # fmt: skip
            self.jobs.append(last)
        self._did(f"launch {spec.kind}")
        return last

    def inspect(self, job: str) -> JobState:
        self.asked.append(job)
        for state in reversed(self.jobs):
            if job in (state.attempt_id, state.job.partition("-")[0]):
                return state
        raise UsageError("there is no such job")

    def follow(self, job: str, **_: Any) -> JobState:
        ended = next(state for state in self.jobs if state.attempt_id == job)
        self.jobs[self.jobs.index(ended)] = ended = ended.model_copy(update={"state": State.DONE})
        assert ended.spec is not None
        self._did(f"follow {ended.spec.kind}")
        return ended

    def facts(self, paths: list[str] | None = None) -> Facts:
        disk = {path: {"at": "/", "free": 100 * GIB, "total": 100 * GIB} for path in paths or []}
        return Facts.model_validate(
            {"memory": {"total": 100 * GIB, "available": 100 * GIB}, "disk": disk, "cpus": 4, "at": 0}
        )

    def fetch(self, job: str, _name: str, **_: Any) -> bytes:
        spec = next(state.spec for state in self.jobs if state.attempt_id == job)
        assert spec is not None
        attempt = int(job.rpartition("-")[2])
        lengths = {name: [1, 2] for name in ("p", "q")[: self.prompts_done]}
        found = document(
            lengths, step=spec.inputs["step"], sha=SHA, evaluation_id=spec.inputs["id"],
            status="complete" if self.prompts_done == 2 else "partial", coverage__prompts_asked=2,
            created_at=f"2026-11-30T10:{attempt:02}:00Z",
        )  # fmt: skip
        return dump(found)

    def tail(self, *_: Any, file: str = "out", **__: Any) -> tuple[bytes, int]:
        if file == "out":
            self._did("collect")
        return b"log", 3

    def cancel(self, job: str, *, by: str = "") -> JobState:
        raise AssertionError(f"{by} cancels {job}")

    def result_names(self, _job: str) -> list[str]:
        return ["result.json"]

    # -- the command

    def _did(self, what: str) -> None:
        self.done.append(what)
        if what in self.fails:
            raise self.fails.pop(what)
        if what == self.cut:
            self.cut = ""
            raise Killed

    def evaluate(self, **options: bool) -> dict[str, Any]:
        self.done, self.asked = [], []
        found = inventory().model_copy(update={"archive": str(self.folder)})
        harness = DFlash()
        collaborators = Collaborators(
            observe=self.observe,
            verify=self.verify,
            plan_stage=self.plan_stage,
            stage=self.stage,
            launcher=self,
            harness=harness,
            prompts=harness.prompts(found.evals["drafter"]),
            harness_host=self,
            guard=check,
            here="laptop",
            archive=self.archive,
            lock=self.lock,
            journal=Journal(),
            sleep=lambda _seconds: None,
        )
        return Pipeline(
            collaborators, found, "drafter", Options(**options), Steps(lambda _step: self.told())
        ).run()

    @property
    def archive(self) -> Archive:
        return Archive(self.folder, "drafter")

    @property
    def lock(self) -> EvaluationLock:
        return EvaluationLock(str(self.folder), "drafter")


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return World(tmp_path / "archive")


def whole(record) -> EvalResult:
    return EvalResult.model_validate(document({"p": [1, 2]}, evaluation_id=record.evaluation_id))


def archived(world):
    return [entry.result.checkpoint.step for entry in world.archive.entries()[0]]


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
    assert any("step 6000 was saved meanwhile" in caveat for caveat in found["caveats"])
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
    assert set(world.asked) == {first.attempt_id}


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


def test_following_shows_the_result_of_the_command_that_was_followed(world):
    world.cut = "collect"
    with pytest.raises(Killed):
        world.evaluate()
    held, told, found = world.lock, threading.Event(), []
    followed = World(world.folder, newest=6000)
    followed.told = told.set
    with held:  # by the command that is followed
        follower = threading.Thread(target=lambda: found.append(followed.evaluate(attach=True)))
        follower.start()
        assert told.wait(30)
        record = held.read()
        world.archive.add(whole(record), {"result.json": dump(whole(record).document())})
    follower.join(30)
    assert (found[0]["checkpoint"]["step"], found[0]["reused"], followed.done) == (4000, False, [])


def test_what_is_done_on_a_host_is_in_the_journal_before_it_is_done(world):
    world.cut = "launch eval"
    with pytest.raises(Killed):
        world.evaluate()
    events = [line["event"] for line in Journal().read()]
    assert events == ["eval-latest", "stage", "launch", "launch"]


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


def test_a_partial_result_is_completed_by_the_next_command_without_being_asked_to(world):
    world.prompts_done = 1
    first = world.evaluate()
    assert (first["exit"], first["bad"]) == (1, ["partial: 1 of 2 prompts"])
    world.prompts_done = 2
    second = world.evaluate()
    assert (second["result"]["coverage"]["prompts_done"], second["bad"]) == (2, [])
    assert any("1 of 2 prompts" in caveat for caveat in second["caveats"])
    assert world.evaluate()["reused"]
    assert [entry.whole for entry in world.archive.entries()[0]] == [False, True]


def test_a_completion_that_was_cut_goes_on_with_its_own_attempt(world):
    world.prompts_done = 1
    world.evaluate()
    world.prompts_done, world.cut = 2, "launch eval"
    with pytest.raises(Killed):
        world.evaluate()
    assert world.evaluate()["result"]["status"] == "complete"
    assert world.done == ["follow eval", "collect"]


def test_a_checkpoint_that_is_not_whole_when_read_alone_is_passed_over_once(world):
    world.broken = ("/w/step_4000/checkpoint.pt",)
    found = world.evaluate()
    assert found["checkpoint"]["step"] == 3000
    assert any("step 4000" in caveat for caveat in found["caveats"])


@pytest.mark.parametrize(("unreached", "verdict"), [(3, "RUNNING"), (99, "UNKNOWN")])
def test_a_short_cut_of_the_way_to_the_run_is_not_archived_as_unknown(world, unreached, verdict):
    world.unreached = unreached
    found = world.evaluate()
    assert found["training"]["after"]["verdict"] == verdict
    kept = json.loads((Path(found["archive"]) / "verdict-after.json").read_bytes())
    assert kept["verdict"] == verdict


def test_a_dry_run_writes_nothing(world):
    plan = world.evaluate(dry_run=True)
    assert plan["schema"] == "hostkit.plan/1"
    assert world.done == ["verify", "preflight"]
    assert not world.folder.exists()


def test_a_record_that_cannot_be_read_blocks_nothing(world):
    world.cut = "stage"
    with pytest.raises(Killed):
        world.evaluate()
    world.lock.path.write_text("[" * 100_000)
    assert world.evaluate()["checkpoint"]["step"] == 4000
