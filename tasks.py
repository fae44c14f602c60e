"""The namespace that `invoke` finds."""

from hostkit.tasks.namespace import namespace

__all__ = ["namespace"]
