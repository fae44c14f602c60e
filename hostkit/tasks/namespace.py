"""All tasks in one Invoke collection."""

from __future__ import annotations

from invoke.collection import Collection

from hostkit.tasks import checkpoints, evals, inventory, jobs, practice, staging, train, trust

namespace = Collection()
for _module in (train, evals, checkpoints, staging, jobs, inventory, trust, practice):
    for _task in _module.TASKS:
        namespace.add_task(_task)
