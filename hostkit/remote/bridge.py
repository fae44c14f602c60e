"""Carry a copy from one host to another: start the receiver over there, and the sender, whose bytes go straight to it.

Travels to hosts: standard library only, Python 3.8 or newer. Runs on the source, which pushes then, or on the machine
of hostkit itself, which relays. Writes nothing where it runs. The two ends are joined by a pipe of the kernel, so that
no byte of the copy passes through this process.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from typing import IO, Any

from host import child, priority
from transfer import protocol

# Stands for ssh to the rsync that it starts: gives the words of the far end first, then joins the streams.
_JOIN = (
    'i=$1; o=$2; shift 3; exec 3<&0; { printf "%s\\n" "$@" ""; exec cat <&3; } >/proc/self/fd/$o & '
    "exec cat </proc/self/fd/$i"
)


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Return the receiver's reply, with what the sender said; or `failed`: the receiver itself was not there."""
    if request.get("low_priority"):
        priority.take()
    receiver = child.ChildProcess(request["receiver"]["argv"], stdout=subprocess.PIPE)
    put, back = receiver.process.stdin, receiver.process.stdout
    assert put is not None
    assert back is not None
    reply: Any = None
    told: dict[str, Any] = {}
    try:
        put.write(base64.b64decode(request["receiver"]["program"]))
        put.flush()
        greeting = protocol.document(back) if protocol.found(back, request["marker"].encode()) else None
        if greeting is not None and "begin" in greeting:
            carry = _rsync if "rsync" in request else _stream
            reply, told = carry(request, greeting["begin"], put, back)
        else:
            reply = greeting
    except BrokenPipeError:
        reply = None
    finally:
        _close(put)
        status = receiver.end(now=reply is None)
    if reply is None:
        return {"failed": "receiver", "exit": status, "said": receiver.said(), "sender": told}
    if reply.pop("broken", False):
        reply["exit"] = told["exit"] or protocol.BROKEN
    elif "rsync" in request and "exit" in reply:
        reply["exit"] = told.get("exit") or reply["exit"]
    if told.get("said"):
        reply["said"] = told["said"]
    return dict(reply)


def _stream(
    request: dict[str, Any], begin: Any, put: IO[bytes], back: IO[bytes]
) -> tuple[Any, dict[str, Any]]:
    """Join a sender's output with the receiver's input; return the receiver's answer, and how the sender ended."""
    program = base64.b64decode(request["sender"]["program"]).replace(b"@BEGIN@", repr(begin).encode())
    protocol.widen(put.fileno())
    sender = child.ChildProcess(request["sender"]["argv"], given=program, stdout=put)
    _close(put)
    reply = protocol.document(back)
    status = sender.end(now=reply is None or "damaged" in reply)
    return reply, {"exit": status, "said": sender.said()}


def _rsync(
    request: dict[str, Any], _begin: Any, put: IO[bytes], back: IO[bytes]
) -> tuple[Any, dict[str, Any]]:
    """Run an rsync whose far end the receiver starts: what comes back from that is unpacked here."""
    asked = request["rsync"]
    read, write = os.pipe()
    rsh = ["sh", "-c", _JOIN, "sh", str(read), str(put.fileno())]
    words = [asked["argv"][0], "-e", " ".join(_quoted(word) for word in rsh), *asked["argv"][1:]]
    rsync = child.ChildProcess(
        [*words, "receiver:."],
        given=os.fsencode(asked["names"]),
        stdout=subprocess.DEVNULL,
        pass_fds=(read, put.fileno()),
    )
    os.close(read)
    _close(put)
    reply = None
    for kind, payload in protocol.frames(back):
        if kind == b"j":
            reply = json.loads(payload)
            break
        try:
            protocol.write(write, payload)
        except BrokenPipeError:
            continue  # it has ended; the receiver's answer is to come
    os.close(write)
    return reply, {"exit": rsync.end(now=reply is None), "said": rsync.said()}


def _quoted(word: str) -> str:
    """Quote a word for rsync's own splitting of -e, which knows quotes but no backslash."""
    return "'" + word.replace("'", "''") + "'" if any(c in word for c in " '\"") else word


def _close(stream: IO[bytes]) -> None:
    try:
        stream.close()
    except BrokenPipeError:
        return
