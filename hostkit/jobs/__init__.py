"""Jobs: payloads launched detached on a host, beside a live run and never in its way."""

from hostkit.jobs.files import Installed, fetch, install_files, result_names
from hostkit.jobs.launching import launch, plan_launch
from hostkit.jobs.models import JobLimits, JobSpec, JobState, Lever
from hostkit.jobs.watching import cancel, inspect, list_jobs, tail, wait

__all__ = [
    "Installed",
    "JobLimits",
    "JobSpec",
    "JobState",
    "Lever",
    "cancel",
    "fetch",
    "inspect",
    "install_files",
    "launch",
    "list_jobs",
    "plan_launch",
    "result_names",
    "tail",
    "wait",
]
