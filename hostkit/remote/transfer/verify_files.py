"""Prove the files of a copy that came whole: each a regular file of its size, its records' CRCs, its SHA-256.

Travels to hosts: standard library only, Python 3.8 or newer. Runs where the copy is, never on the source.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from checkpoint import completeness, verify


def proof(folder: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return `proofs` of every file that was requested; or what is `damaged`."""
    proofs = []
    for one in request["files"]:
        path = os.path.join(folder, one["name"])
        try:
            look = os.lstat(path)
        except OSError:
            return {"damaged": "%s did not arrive" % one["name"]}
        if not stat.S_ISREG(look.st_mode):
            return {"damaged": "%s is not a regular file" % one["name"]}
        if look.st_size != one["size"]:
            return {"damaged": "%s has %d of %d bytes" % (one["name"], look.st_size, one["size"])}
        try:
            # the source's format decides: a damaged head must not turn the check of CRCs off
            crcs = request["format"] == "torch-zip" or (
                look.st_size and completeness.sniff(path) == "torch-zip"
            )
            found = verify.prove(path, bool(crcs))
        except verify.DamagedError as why:
            return {"damaged": "%s: %s" % (one["name"], why)}
        verify.flush(path)
        proofs.append(dict(found, name=one["name"], mtime_ns=look.st_mtime_ns, inode=look.st_ino))
    return {"proofs": proofs}
