"""Jobs: payloads launched detached on a host, beside a live run and never in its way."""

from hostkit.jobs.files import Installed, install_files
from hostkit.jobs.guard import Protected, check, protect
from hostkit.jobs.headroom import Facts, Need, check_head_room
from hostkit.jobs.launcher import Launcher, launch, lowered_priority, plan_launch
from hostkit.jobs.models import TERMINAL_STATES, IsolationMeasure, JobLimits, JobSpec, JobState, State
from hostkit.jobs.supervisor import Supervisor

__all__ = [
    "TERMINAL_STATES",
    "Facts",
    "Installed",
    "IsolationMeasure",
    "JobLimits",
    "JobSpec",
    "JobState",
    "Launcher",
    "Need",
    "Protected",
    "State",
    "Supervisor",
    "check",
    "check_head_room",
    "install_files",
    "launch",
    "lowered_priority",
    "plan_launch",
    "protect",
]
