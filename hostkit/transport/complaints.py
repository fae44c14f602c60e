"""What ssh, pct and sudo say on stderr when they do not get as far as the command, and what that means."""

from __future__ import annotations

from hostkit.transport.route import Route


def explain(route: Route, stdout: bytes, stderr: bytes) -> None:
    """Raise the right error when a wrapper on the way said why it failed; return when nothing is known."""
