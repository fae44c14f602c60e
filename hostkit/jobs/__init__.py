"""Jobs: payloads launched detached on a host, beside a live run and never in its way."""

from hostkit.jobs.files import Installed, fetch, install_files, result_names
from hostkit.jobs.guard import Protected, check, protect
from hostkit.jobs.headroom import Facts, Need, check_head_room
from hostkit.jobs.launching import facts, launch, out_of_the_way, plan_launch
from hostkit.jobs.models import JobLimits, JobSpec, JobState, Lever
from hostkit.jobs.watching import cancel, inspect, list_jobs, tail, wait

__all__ = [
    "Facts",
    "Installed",
    "JobLimits",
    "JobSpec",
    "JobState",
    "Lever",
    "Need",
    "Protected",
    "cancel",
    "check",
    "check_head_room",
    "facts",
    "fetch",
    "inspect",
    "install_files",
    "launch",
    "list_jobs",
    "out_of_the_way",
    "plan_launch",
    "protect",
    "result_names",
    "tail",
    "wait",
]
