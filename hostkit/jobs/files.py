"""Files to and from a job's host, whole or not at all, proven by their SHA-256."""

from __future__ import annotations

import base64
import hashlib
import posixpath
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from hostkit.errors import DataError, UsageError
from hostkit.inventory.models import Host
from hostkit.jobs.asking import ask
from hostkit.transport.base import Transport


class Installed(BaseModel):
    """Which files were written, and which stood there already with the same content."""

    model_config = ConfigDict(frozen=True)

    written: tuple[str, ...]
    kept: tuple[str, ...]


def install_files(
    transport: Transport, host: Host, files: Mapping[str, bytes], dest: str, *, mode: int = 0o600
) -> Installed:
    """Bring small files below the folder `dest`, in one round trip; each appears whole, by rename.

    Names may hold folders (`dflash/metrics.py`). What is there with the same content is left alone.
    """
    for name in files:
        _proper(name)
    manifest = [
        {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "mode": mode}
        for name, data in files.items()
    ]
    reply = ask(
        transport, host, "install", dest=dest, files=manifest, stdin=b"".join(files.values()), timeout=300.0
    )
    return Installed(written=tuple(reply["written"]), kept=tuple(reply["kept"]))


def result_names(transport: Transport, host: Host, job_id: str) -> list[str]:
    """Return the names of the files that the job left in results/."""
    return list(ask(transport, host, "fetch", job=job_id)["names"])


def fetch(transport: Transport, host: Host, job_id: str, name: str, *, limit: int = 256 * 2**20) -> bytes:
    """Return a file of the job's results/; one that changes meanwhile, or is larger than `limit`, is a DataError."""
    _proper(name)
    parts: list[bytes] = []
    offset, seen = 0, None
    while True:
        reply = ask(transport, host, "fetch", job=job_id, name=name, offset=offset, timeout=300.0)
        size = int(reply["size"])
        if seen is not None and seen != (size, reply["mtime_ns"]):
            raise DataError(f"results/{name} changed while it was fetched", where=transport.host)
        if size > limit:
            raise DataError(f"results/{name} has {size} bytes, more than {limit}", where=transport.host)
        seen = (size, reply["mtime_ns"])
        part = base64.b64decode(reply["data"])
        parts.append(part)
        offset += len(part)
        if offset >= size:
            return b"".join(parts)
        if not part:
            raise DataError(f"results/{name} ended before its size", where=transport.host)


def _proper(name: str) -> None:
    parts = name.split("/")
    if (
        name != posixpath.normpath(name)
        or name.startswith("/")
        or ".." in parts
        or "\0" in name
        or name == "."
    ):
        raise UsageError(f"{name!r} is not the name of a file below a folder")
