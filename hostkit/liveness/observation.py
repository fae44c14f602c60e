"""What one look at a run brought back, measured: all that findings and verdict are made of (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from hostkit.inventory.models import Run
from hostkit.liveness.logs import LogReading
from hostkit.liveness.past import Past
from hostkit.liveness.progress import Progress
from hostkit.liveness.readings import ProcessFacts, Reading


@dataclass(frozen=True)
class Observation:
    """`here`: this machine's clock when the far one was read. `past`: earlier observations."""

    run: Run
    reading: Reading
    log: LogReading
    progress: Progress
    main: ProcessFacts | None
    past: Past
    here: float | None = None
    here_within: float = 0.0  # half the round trip: the moment of the reading is known this well

    @property
    def log_age(self) -> float | None:
        mtime = self.reading.run.log.mtime
        return None if mtime is None else self.reading.clock.files - mtime
