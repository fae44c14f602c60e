"""The frame: a command's output stands between two nonce markers, with its own exit status inside.

Login shells print, lxc-attach may return 0 for a killed command, a lost connection looks like one that was
killed by a signal: none of them can forge a whole frame. Without one the answer is unknown.

`Frame.argv(command)` is the argv of a small POSIX `sh` program that is run at the innermost level of a route.
It holds no quote, newline, `!` or backslash-backslash, so that each login shell on the way (bash, dash, zsh,
ksh, fish, csh) reads it alike once it is single-quoted; the argv inside is spelt in octal escapes for
`printf %b`. `parse` is pure.
"""

from __future__ import annotations

import math
import os
import re
import secrets
from dataclasses import dataclass, field

from hostkit.errors import ProtocolError, UsageError
from hostkit.sanitize import one_line

KILL_AFTER = 2  # seconds between SIGTERM and SIGKILL on the far side
ADDED_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LONGEST_LINE = 120_000  # Linux refuses a single argument of 128 KiB; a login shell gets the whole line as one

# No `timeout` on the host: a watchdog of our own, which holds none of the command's descriptors. It ends the
# command's whole group where `setsid` can give it one of its own (without a terminal, `set -m` cannot in dash).
_WATCHDOG = "; ".join(
    [
        "exec 4<&0",
        """setsid true && set -- setsid sh -c 'exec "$@"' sh "$@\"""",
        '(exec "$@") <&4 2>&3 3>&- 4<&- & p=$!',
        '(trap "kill \\$z; exit" TERM; sleep "$t" & z=$!; wait $z; kill -TERM -$p || kill -TERM $p; '
        f"sleep {KILL_AFTER} & z=$!; wait $z; kill -KILL -$p || kill -KILL $p) </dev/null >/dev/null 3>&- 4<&- & g=$!",
        "wait $p",
        "r=$?",
        "kill -TERM $g",
    ]
)

# $1 nonce, $2 seconds (0: none), $3 the argv as shell words in octal escapes, $4 the watchdog likewise.
# Descriptor 3 is the command's stderr: the shell's own remarks ("Killed") must not look like the command's.
# `exec`, so that `exit`, `test` and the like are programs, not builtins. The markers are put together by
# printf, so that they stand whole in nobody's argv and a command that lists processes cannot print one.
_SCRIPT = "; ".join(
    [
        "n=$1",
        "t=$2",
        "g=$4",
        "LC_ALL=C",
        'eval "set -- $(printf %b "$3")"',
        "LC_ALL=C.UTF-8",
        f'PATH="${{PATH:+$PATH:}}{ADDED_PATH}"',
        "export LC_ALL PATH",
        'm() { printf "hostkit-frame %s %s\\n" "$n" "$1"; }',
        "m begin >&2",
        "m begin",
        "exec 3>&2 2>/dev/null",
        "w=",
        'if [ "$t" = 0 ]; then (exec "$@") 2>&3 3>&-',
        "r=$?",
        "else s=$(date +%s)",
        f'if timeout -k {KILL_AFTER} 9 true; then (exec timeout -k {KILL_AFTER} "$t" "$@") 2>&3 3>&-',
        "r=$?",
        'else eval "$(printf %b "$g")"',
        "fi",
        '[ $(($(date +%s)-s-(r==137))) -ge "$t" ] && case $r in 124|137|143|265|271) w=" timeout";; esac',
        "fi",
        'm "end $r$w" >&3',
        'm "end $r$w"',
    ]
)
_PLAIN = re.compile(rb"[A-Za-z0-9_./:-]")


@dataclass(frozen=True, slots=True)
class Reply:
    """The content of a whole frame."""

    exit: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """One command's frame. The nonce is fresh for each command, so an old reply is never taken for a new one."""

    nonce: str = field(default_factory=lambda: secrets.token_hex(16))

    def argv(self, argv: list[str], *, timeout: float | None = None) -> list[str]:
        """Return the argv that runs `argv` inside the frame, ended on the far side after `timeout` seconds."""
        if not argv:
            raise UsageError("an empty argv")
        if argv[0].startswith("-"):
            raise UsageError(f"{argv[0]!r} is not a program's name")
        if any("\0" in word for word in argv):
            raise UsageError("an argument contains a NUL byte")
        seconds = 0 if timeout is None else max(1, math.ceil(timeout))
        spelt = spell(argv)
        if len(spelt) > LONGEST_LINE:
            raise UsageError(
                f"an argv of {len(spelt)} bytes is too long for a remote shell", hint="send it on stdin"
            )
        return [
            "sh",
            "-c",
            _SCRIPT,
            "hostkit",
            self.nonce,
            str(seconds),
            spelt,
            _WATCHDOG_SPELT if seconds else "",
        ]

    def _marker(self, what: str) -> bytes:
        return f"hostkit-frame {self.nonce} {what}".encode()

    def began(self, stream: bytes | bytearray) -> bool:
        """Say whether the command was started at all."""
        return self._marker("begin\n") in stream

    def ended(self, stream: bytes | bytearray) -> bool:
        """Say whether a stream is complete so far, so that nobody waits for a grandchild that holds it open."""
        return re.search(re.escape(self._marker("end ")) + rb"\d+( timeout)?\n", stream[-8192:]) is not None

    def parse(self, stdout: bytes, stderr: bytes) -> Reply:
        """Take the reply from between the markers. Raises ProtocolError when the frame is not whole."""
        begin, end = self._marker("begin\n"), self._marker("end ")
        start = stdout.find(begin)
        if start < 0:
            raise ProtocolError("the command did not start" + _remark(stdout, stderr))
        start += len(begin)
        stop = stdout.rfind(end, start)
        status = re.match(rb"(\d{1,4})( timeout)?\n", stdout[stop + len(end) :]) if stop >= 0 else None
        if status is None:
            raise ProtocolError("the reply is incomplete (no end marker)" + _remark(b"", stderr))
        code = int(status[1])
        if code > 255:  # ksh and yash report signal n as 256 + n or 384 + n
            code = 128 + (code & 127)
        return Reply(code, stdout[start:stop], _between(stderr, begin, end), status[2] is not None)


def spell(argv: list[str]) -> str:
    """Return argv as shell words, with everything but plain letters in octal escapes for `printf %b`."""
    return _octal(b" ".join(_shell_word(os.fsencode(word)) for word in argv))


def _octal(text: bytes) -> str:
    return "".join(chr(byte) if _PLAIN.match(bytes([byte])) else f"\\0{byte:03o}" for byte in text)


def _shell_word(word: bytes) -> bytes:
    if word and _PLAIN.sub(b"", word) == b"":
        return word
    return b"'" + word.replace(b"'", b"'\\''") + b"'"


def _between(stream: bytes, begin: bytes, end: bytes) -> bytes:
    start = stream.find(begin)
    start = start + len(begin) if start >= 0 else 0
    stop = stream.rfind(end, start)
    return stream[start:stop] if stop >= 0 else stream[start:]


def _foreign(stream: bytes) -> list[str]:
    """Return the lines that no marker of hostkit's makes."""
    lines = stream.decode("utf-8", "replace").strip().splitlines()
    return [
        line for line in lines if line.strip() and not line.startswith(("hostkit-hop ", "hostkit-frame "))
    ]


def _remark(stdout: bytes, stderr: bytes) -> str:
    """The end of the output that came instead, without control characters."""
    printed = (_foreign(stream) for stream in (stderr, stdout))
    lines = next((lines for lines in printed if lines), [])[-3:]
    text = " / ".join(one_line(line) for line in lines)[-300:]
    return f"; output: {text}" if text else ""


_WATCHDOG_SPELT = _octal(_WATCHDOG.encode())
