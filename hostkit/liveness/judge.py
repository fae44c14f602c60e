"""From one reading to a verdict and its evidence: the table of verdicts, in its order (pure)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hostkit.inventory.models import Run
from hostkit.liveness.findings import Finding, findings
from hostkit.liveness.groups import Group
from hostkit.liveness.logs import LogReading, parse
from hostkit.liveness.observation import Observation
from hostkit.liveness.past import Past
from hostkit.liveness.process_found import with_process
from hostkit.liveness.process_missing import without_process
from hostkit.liveness.progress import Progress, measure
from hostkit.liveness.readings import SKEW, ProcessFacts, Reading
from hostkit.liveness.verdict import Verdict, worst
from hostkit.sanitize import one_line


@dataclass(frozen=True)
class Judgement:
    """A verdict, what it rests on, and all that was measured on the way."""

    verdict: Verdict
    evidence: tuple[str, ...]
    findings: tuple[Finding, ...]
    progress: Progress
    log: LogReading
    processes: tuple[ProcessFacts, ...]  # all that fit; all are protected

    @property
    def exit(self) -> int:
        """The worst of verdict and findings: 2, else 3, else 1, else 0."""
        return worst([self.verdict.exit, *(finding.severity for finding in self.findings)])


def judge(
    run: Run,
    reading: Reading,
    past: Past | None = None,
    *,
    here: float | None = None,
    here_within: float = 0.0,
) -> Judgement:
    """Return the verdict on a run. `here` is this machine's clock at the reading, known to `here_within` seconds."""
    past = past or Past()
    group = Group.of(run, reading)
    log = parse(reading.run.log.tail, run.log, begins=reading.run.log.begins)
    notes = list(group.notes)
    speaks = log.step is not None or log.loss is not None
    if group.main is not None and speaks and _of_an_earlier_attempt(reading, log, group.main):
        last = "end" if log.step is None else f"last step, {log.step},"
        notes.append(f"the log's {last} is an earlier attempt's: it was written before the process began")
        log = replace(log, step=None, rate=None, loss=None, finished=None, stepped_at=None, interval=0)
    progress = measure(run, reading, log, group.main, past)
    observation = Observation(run, reading, log, progress, group.main, past, here, here_within)
    if group.doubt:
        verdict, evidence = Verdict.UNKNOWN, group.doubt
    elif group.main is None:
        verdict, evidence = without_process(observation)
    else:
        verdict, evidence = with_process(observation, group)
    return Judgement(
        verdict=verdict,
        evidence=tuple(one_line(text) for text in (*evidence, *notes)),
        findings=tuple(one.model_copy(update={"text": one_line(one.text)}) for one in findings(observation)),
        progress=progress,
        log=log,
        processes=group.all,
    )


def _of_an_earlier_attempt(reading: Reading, log: LogReading, main: ProcessFacts) -> bool:
    began = reading.started(main)
    mtime = reading.run.log.mtime
    written = mtime is not None and mtime < began - 1 and mtime <= reading.clock.files + SKEW
    told = began + reading.clock.wall - reading.clock.files  # by the clock that programs there are told
    return written or (log.stepped_at is not None and log.stepped_at < told - SKEW)
