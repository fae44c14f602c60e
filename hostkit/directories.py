"""Where hostkit keeps its own files on this machine: the XDG directories, private to the user."""

from __future__ import annotations

from pathlib import Path

import platformdirs

from hostkit.errors import CannotCreateError

_NAME = "hostkit"


def state_directory(*, create: bool = True) -> Path:
    """Return the folder of journals and jobs on this machine (`~/.local/state/hostkit`), created unless it is read."""
    path = platformdirs.user_state_path(_NAME, appauthor=False)
    return _private(path) if create else path


def data_directory(*, create: bool = True) -> Path:
    """Return the folder of what must outlive upgrades (`~/.local/share/hostkit`), created unless it is only read."""
    path = platformdirs.user_data_path(_NAME, appauthor=False)
    return _private(path) if create else path


def config_directory() -> Path:
    """Return the folder of the user's own files (`~/.config/hostkit`); it is read, so not created."""
    return platformdirs.user_config_path(_NAME, appauthor=False)


def _private(path: Path) -> Path:
    """Create `path` for its owner alone, and take others' permissions away where it already stands."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.stat().st_mode & 0o077:
            path.chmod(0o700)
    except OSError as error:
        raise CannotCreateError(
            f"cannot create {path}: {error.strerror}",
            where="this machine",
            hint="make it writable for you, or set the XDG_*_HOME variable to a folder that is",
        ) from error
    return path
