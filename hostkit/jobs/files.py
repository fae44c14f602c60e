"""Small files to a host: whole or not at all, verified by their SHA-256."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Mapping
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict

from hostkit.errors import UsageError
from hostkit.inventory.models import Host
from hostkit.jobs.job_control import ask
from hostkit.transport.base import Transport


class Installed(BaseModel):
    """Which files were written, which stood there already with the same content, and which were taken away."""

    model_config = ConfigDict(frozen=True)

    written: tuple[str, ...]
    kept: tuple[str, ...]
    removed: tuple[str, ...] = ()


def install_files(
    transport: Transport,
    host: Host,
    files: Mapping[str, bytes],
    dest: str,
    *,
    mode: int = 0o600,
    remove: Mapping[str, str] = MappingProxyType({}),
) -> Installed:
    """Bring small files below the folder `dest`, in one round trip; each appears whole, by rename.

    Names may hold folders (`dflash/metrics.py`). What is there with the same content is left alone.
    `remove`: files to take away, with the SHA-256 that each still has, else it stays.
    """
    for name in (*files, *remove):
        check_name(name)
    manifest = [
        {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "mode": mode}
        for name, data in files.items()
    ]
    reply = ask(
        transport,
        host,
        "install",
        dest=dest,
        files=manifest,
        remove=dict(remove),
        stdin=b"".join(files.values()),
        timeout=300.0,
    )
    return Installed.model_validate(reply)


def check_name(name: str) -> None:
    """Raise UsageError unless this is the name of a file below a folder."""
    parts = name.split("/")
    if (
        name != posixpath.normpath(name)
        or name.startswith("/")
        or ".." in parts
        or "\0" in name
        or name == "."
    ):
        raise UsageError(f"{name!r} is not the name of a file below a folder")
