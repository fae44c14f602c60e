"""The copy itself at the destination: by an rsync or a sender that we start, or from what a carrier brings to us.

Travels to hosts: standard library only, Python 3.8 or newer. All of it happens under the claim on the slot.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from typing import IO, Any, Callable

from checkpoint import completeness, formats
from host import child as host_child
from host import tools
from transfer import protocol, receive_files, receive_subset, verify_files
from transfer.staging_dir import Claim, RefusedError, StagingSlot, need_room

HERE_EVERY = 2.0  # seconds between two signs of life to a carrier


def copied(
    slot: StagingSlot, request: dict[str, Any], claim: Claim, copy: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Have it copied and proven, unless another command did so a moment ago: what is proven is not touched again.

    The claim is free between a copy and its final name, while the source is compared. Until then the lock's note
    says what proves the copy.
    """
    manifest = slot.manifest()
    if manifest is not None and manifest.get("staged_at") != request.get("disproved"):
        raise RefusedError("published", "another command has staged it")
    wanted = [request.get(key) for key in ("files", "format", "entry", "plan")]
    of = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()
    before = claim.copied
    if (
        isinstance(before, dict)
        and before.get("of") == of
        and changed(slot.partial, before["reply"]["proofs"]) is None
    ):
        claim.note(before)
        return dict(before["reply"], adopted=True)
    ready(slot, request)
    reply = copy()
    if "proofs" in reply:
        claim.note({"of": of, "reply": reply})
    return reply


def changed(folder: str, proofs: list[dict[str, Any]]) -> str | None:
    """Return which of the proven files is no longer the one that was proven, by size, mtime and inode."""
    for proof in proofs:
        try:
            stat = os.lstat(os.path.join(folder, proof["name"]))
        except OSError:
            return "%s vanished" % proof["name"]
        if (stat.st_size, stat.st_mtime_ns, stat.st_ino) != (
            proof["size"],
            proof["mtime_ns"],
            proof["inode"],
        ):
            return "%s changed" % proof["name"]
    return None


def receive(slot: StagingSlot, request: dict[str, Any], claim: Claim) -> dict[str, Any]:
    """Copy with the given rsync, then prove what came."""
    before = slot.arrived()
    done = host_child.ChildProcess(
        [*request["argv"], slot.partial + "/"],
        given=os.fsencode(request["names"]),
        stdout=subprocess.DEVNULL,
        pass_fds=(claim.number,),
    )
    status = done.end(now=False)
    reply: dict[str, Any] = {"exit": status, "said": done.said(), "resumed_at": before}
    if status == 0:
        reply.update(verify_files.proof(slot.partial, request))
    return reply


def pull(slot: StagingSlot, request: dict[str, Any], claim: Claim) -> dict[str, Any]:
    """Run `argv` with `program` on its stdin, take what it sends; return proofs, or what is wrong."""

    def send(begin: Any) -> host_child.ChildProcess:
        program = base64.b64decode(request["program"]).replace(b"@BEGIN@", repr(begin).encode())
        return host_child.ChildProcess(
            request["argv"], given=program, stdout=subprocess.PIPE, pass_fds=(claim.number,)
        )

    return _taken(slot, request, send)


def _taken(slot: StagingSlot, request: dict[str, Any], send: Callable[[Any], Any]) -> dict[str, Any]:
    output = _output(slot, request)
    try:
        begin = output.resume()
        reply: dict[str, Any] = {"exit": 0, "said": "", "resumed_at": output.at, "trailer": {"code": None}}
        if output.at < output.size:
            reply.update(_from_child(output, send(begin), request["marker"].encode()))
        if reply["exit"] or "damaged" in reply or reply["trailer"]["code"]:
            return reply
        return dict(reply, **output.proof())
    finally:
        output.close()


def _output(slot: StagingSlot, request: dict[str, Any]) -> Any:
    if "plan" in request:
        return receive_subset.Selection(os.path.join(slot.partial, request["entry"]), request)
    return receive_files.Files(slot.partial, request)


def _from_child(output: Any, child: host_child.ChildProcess, marker: bytes) -> dict[str, Any]:
    assert child.process.stdout is not None
    protocol.widen(child.process.stdout.fileno())
    reply: dict[str, Any] = {"damaged": "the stream was not read to its end"}
    try:
        reply = _from(output, child.process.stdout, marker)
    finally:
        child.process.stdout.close()
        status = child.end(now="damaged" in reply)
    reply["said"] = child.said()
    if reply.pop("broken", False):  # the status of ssh says why, or nothing does
        reply["exit"] = status or protocol.BROKEN
    return reply


def _from(output: Any, stream: IO[bytes], marker: bytes) -> dict[str, Any]:
    """Take a stream; `broken` when it ends before its end."""
    try:
        if protocol.found(stream, marker):
            taken: dict[str, Any] = output.take(stream)
            return taken
    except protocol.CutError:
        pass
    except protocol.OddError:
        return {"damaged": "unexpected data in the stream"}
    return {"broken": True, "trailer": {"code": None}}


# --- what a carrier brings: its stream is our standard input, our answers go back on our standard output


def receive_stdin(request: dict[str, Any]) -> None:
    """Be the receiver that a carrier talks to; we end when nobody reads our answers, or nothing comes for too long."""
    carrier = Carrier(request["marker"].encode(), request["silence"])
    try:
        slot = StagingSlot(request["folder"], request["name"])
        with Claim(slot) as claim:
            copy = _served if request.get("rsync") else _carried
            reply = copied(slot, request, claim, lambda: copy(slot, request, claim, carrier))
    except RefusedError as why:
        reply = dict(why.more, refused=why.code, what=str(why))
    except OSError as error:
        reply = refusal(error, request)
    carrier.say(reply)


def ready(slot: StagingSlot, request: dict[str, Any]) -> None:
    """Refuse what does not fit; make the folder, without links that something could be written through."""
    plan = request.get("plan")
    files = request.get("files", ())
    for one in files:  # the source tells their names, and may be anybody's by now
        if not formats.inside(one["name"]):
            raise RefusedError("usage", "%r is not a valid file name in a checkpoint" % one["name"][:200])
    need_room(slot, plan["size"] if plan else sum(one["size"] for one in files), max(1, len(files)))
    os.makedirs(slot.partial, mode=0o700, exist_ok=True)
    for one in completeness.payload(slot.partial):
        if os.path.islink(one):
            os.unlink(one)


def refusal(error: OSError, request: dict[str, Any]) -> dict[str, Any]:
    """Return the reply that an error of the disk stands for."""
    code = "space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "cannot-create"
    return {"refused": code, "what": "%s: %s" % (error.filename or request["folder"], error.strerror)}


class Carrier:
    """Who brings the bytes."""

    def __init__(self, marker: bytes, silence: float) -> None:
        self.marker = marker
        self.silence = silence
        self.stream: Any = sys.stdin.buffer
        self.heard = time.monotonic()
        self.listening = False  # until we have said that we are ready, it is ours to take time
        protocol.widen(0)
        self._out = os.dup(1)
        os.dup2(2, 1)
        self._mine = threading.Lock()
        protocol.write(self._out, b"\n" + marker + b"\n")
        threading.Thread(target=self._watch, daemon=True).start()

    def say(self, document: dict[str, Any]) -> None:
        """Give a document back."""
        self.give(b"j", json.dumps(document).encode())

    def give(self, kind: bytes, payload: bytes) -> None:
        """Give a frame back."""
        with self._mine:
            protocol.write(self._out, protocol.frame(kind, payload))

    def read(self, size: int) -> bytes:
        """Read as a file does."""
        self.heard = time.monotonic()
        return bytes(self.stream.read(size))

    def readinto(self, buffer: memoryview) -> int:
        """Read into a buffer as a file does."""
        self.heard = time.monotonic()
        return int(self.stream.readinto(buffer))

    def readline(self, size: int = -1) -> bytes:
        """Read a line as a file does."""
        self.heard = time.monotonic()
        return bytes(self.stream.readline(size))

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._out, 0)
        try:
            while not poll.poll(int(HERE_EVERY * 1000)):
                if self.listening and time.monotonic() - self.heard > self.silence:
                    break
                with self._mine:
                    os.write(self._out, b"\0\0\0\0")
        finally:
            os._exit(1)


def _carried(slot: StagingSlot, request: dict[str, Any], claim: Claim, carrier: Carrier) -> dict[str, Any]:
    del claim  # nobody else writes
    output = _output(slot, request)
    try:
        begin = output.resume()
        reply: dict[str, Any] = {"exit": 0, "said": "", "resumed_at": output.at, "trailer": {"code": None}}
        if output.at < output.size:
            carrier.say({"begin": begin})
            carrier.heard, carrier.listening = time.monotonic(), True
            reply.update(_from(output, carrier, request["marker"].encode()))  # type: ignore[arg-type]
        carrier.listening = False
        if reply.get("broken") or "damaged" in reply or reply["trailer"]["code"]:
            return reply
        return dict(reply, **output.proof())
    finally:
        output.close()


def _served(slot: StagingSlot, request: dict[str, Any], claim: Claim, carrier: Carrier) -> dict[str, Any]:
    """Be the far end of the carrier's rsync; it has its own way of telling that nothing comes any more."""
    before = slot.arrived()
    carrier.say({"begin": before})
    words = _words()
    if words[1:2] != ["--server"] or "--sender" in words or words[-1] != ".":
        raise RefusedError("usage", "not a sending rsync: %r" % words)
    rsync = tools.tools()["rsync"]
    if rsync is None:
        raise RefusedError("cannot-create", "rsync is missing")
    server = host_child.ChildProcess(
        [rsync, *words[1:]], stdin=0, stdout=subprocess.PIPE, cwd=slot.partial, pass_fds=(claim.number,)
    )
    assert server.process.stdout is not None
    for data in iter(lambda: os.read(server.process.stdout.fileno(), 65536), b""):  # type: ignore[union-attr]
        carrier.give(b"d", data)
    status = server.end(now=False)
    reply: dict[str, Any] = {"exit": status, "said": server.said(), "resumed_at": before}
    if status == 0:
        reply.update(verify_files.proof(slot.partial, request))
    return reply


def _words() -> list[str]:
    """Return the words that the carrier's rsync wants run here, up to an empty line, and not a byte beyond it."""
    words: list[str] = []
    word = b""
    while len(words) < 100 and len(word) < 4096:
        byte = os.read(0, 1)
        if byte == b"\n" and not word:
            return words
        if byte == b"\n":
            words.append(os.fsdecode(word))
            word = b""
        elif byte:
            word += byte
        else:
            break
    raise RefusedError("usage", "the sender's rsync did not start")
