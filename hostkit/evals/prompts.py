"""The prompts of an evaluation: those that travel with the harness, or a JSONL file of this machine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from hostkit.errors import ConfigError
from hostkit.inventory.models import Host
from hostkit.jobs import install_files
from hostkit.transport.base import Transport
from hostkit.transport.programs.run import run_program


@dataclass(frozen=True)
class Prompts:
    """Where the prompts are on the evaluation host, and what they are. `data`: to be brought there first."""

    path: str
    sha256: str
    folder: str
    data: bytes | None = None

    @classmethod
    def read(cls, file: str, folder: str) -> Prompts:
        """Return those of a file of this machine, to be brought into `folder`, named by its content."""
        try:
            data = Path(file).expanduser().read_bytes()
        except OSError as error:
            raise ConfigError(
                f"the prompts cannot be read: {error.strerror}",
                where=file,
                hint="write `prompts: bundled`",
            ) from error
        digest = hashlib.sha256(data).hexdigest()
        return cls(f"{folder}/{digest[:16]}.jsonl", digest, folder, data)

    def present(self, transport: Transport, host: Host) -> bool:
        """Say whether they are on the evaluation host. Those that travel with the harness count as present."""
        if self.data is None:
            return True
        name = self.path.rpartition("/")[2]
        request = {"folder": self.folder, "names": [name]}
        found = run_program(transport, host.python, "hashes", request, retry=True)["files"].get(name)
        return found is not None and found["sha256"] == self.sha256

    def install(self, transport: Transport, host: Host) -> None:
        """Bring a file of this machine to the evaluation host; the name is that of its content."""
        if self.data is not None:
            install_files(transport, host, {self.path.rpartition("/")[2]: self.data}, self.folder)
