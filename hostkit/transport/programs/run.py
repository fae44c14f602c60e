"""Remote programs: a module of hostkit/remote is sent on stdin, run by the host's Python, and answers in JSON."""

from __future__ import annotations

import json
import re
import signal
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from hostkit.errors import DataError, HostkitError, LostError, ProtocolError
from hostkit.sanitize import one_line
from hostkit.transport.base import Completed, Transport

_REMOTE = Path(__file__).parents[2] / "remote"
# An import statement of a remote module, on its own lines; a test holds it against Python's own parser.
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<source>[\w.]+)[ \t]+import[ \t]+(?P<names>\([^)]*\)|[^\n#]+)"
    r"|import[ \t]+(?P<modules>[^\n#]+))",
    re.MULTILINE,
)
MAX_REPLY = 64 << 20  # bytes; the largest that hostkit asks for are a few MiB

# Also Python 2 must understand it, to say that it is too old. Nothing of the program stands in an argv.
LOADER = (
    "import sys,zlib\n"
    "b=getattr(sys.stdin,'buffer',sys.stdin)\n"
    "v=sys.version_info\n"
    'if v<(3,8):sys.stdout.write(\'{"old":"%d.%d"}\'%v[:2]);sys.exit(3)\n'
    "exec(zlib.decompress(b.read(int(b.readline()))))"
)

# Runs on the host: makes modules of the texts that travelled along.
FINDER = r"""
import sys
sources = {sources!r}
class Finder:
    @staticmethod
    def find_spec(wanted, path=None, target=None):
        if wanted in sources:
            from importlib.machinery import ModuleSpec
            room = any(name.startswith(wanted + '.') for name in sources)
            return ModuleSpec(wanted, Finder, origin='<hostkit ' + wanted + '>', is_package=room)
    @staticmethod
    def create_module(spec): return None
    @staticmethod
    def exec_module(module):
        text = module.__source__ = sources[module.__name__]
        exec(compile(text, '<hostkit ' + module.__name__ + '>', 'exec'), module.__dict__)
sys.meta_path.insert(0, Finder)
"""

# Then hands serve() the request, and keeps stdout for the answer alone. A program that listens ends as soon as
# nobody waits for its answer any more (hostkit has ended, or the ssh session above is gone). Now and then it writes
# a blank before the JSON: an ssh on the way finds out by writing only that its own caller is gone.
_DRIVER = (
    FINDER
    + r"""
import json, os
name = {name!r}
request = json.loads(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))
answer = os.fdopen(os.dup(1), 'wb')
os.dup2(2, 1)
if {listens!r}:
    import _thread
    mine = _thread.allocate_lock()
    def listen():
        import select
        poll = select.poll()
        poll.register(answer.fileno(), 0)
        try:
            while not poll.poll(2000):
                with mine: os.write(answer.fileno(), b' ')
        finally: os._exit(1)
    _thread.start_new_thread(listen, ())
me = os.getpid()
try:
    import importlib
    reply = {{'reply': importlib.import_module(name).serve(request)}}
except BaseException as error:
    import traceback
    reply = {{'error': type(error).__name__ + ': ' + str(error), 'trace': traceback.format_exc()[-8000:]}}
if os.getpid() != me: os._exit(1)
if {listens!r}: mine.acquire()
answer.write(json.dumps(reply).encode()); answer.flush(); sys.stderr.flush(); os._exit(0)
"""
)


@cache
def _bundle(name: str, listens: bool = False) -> bytes:
    """Return the compressed program: the module, all that it imports from there, and the driver."""
    return zlib.compress(_DRIVER.format(name=name, sources=sources_of(name), listens=listens).encode(), 9)


def sources_of(*names: str) -> dict[str, str]:
    """Return the text of each module of hostkit/remote, by dotted name, and of all that they import from there."""
    sources: dict[str, str] = {}
    pending = list(names)
    while pending:
        name = pending.pop()
        if name in sources:
            continue
        text = _text(name)
        if text is None:
            raise HostkitError(f"hostkit/remote holds no {name}", hint="install hostkit again")
        sources[name] = text
        pending += imported(text)
    return sources


def imported(source: str) -> set[str]:
    """Return the modules of hostkit/remote that a source imports anywhere, by dotted name, their rooms included."""
    modules: set[str] = set()
    for match in _IMPORT.finditer(source):
        for name in re.findall(r"[\w.]+", match["modules"] or match["source"]):
            modules |= {name, *_rooms(name)}
        if match["source"]:
            modules |= {f"{match['source']}.{name}" for name in re.findall(r"\w+", match["names"])}
    return {name for name in modules if _text(name) is not None}


def _rooms(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


@cache
def _text(name: str) -> str | None:
    """Return what the module says, or None where hostkit/remote has none of that name."""
    place = _REMOTE.joinpath(*name.split("."))
    for file in (place.with_name(place.name + ".py"), place / "__init__.py"):
        if file.is_file():
            return file.read_text("utf-8")
    return None


def run_program(
    transport: Transport,
    python: str,
    name: str,
    request: dict[str, Any],
    *,
    timeout: float | None = None,
    stdin: bytes = b"",
    retry: bool = False,
    listen: bool = False,
) -> dict[str, Any]:
    """Run hostkit/remote/<name>.py's `serve(request)` on the host; return the dict that it returned.

    `stdin` follows the request on the program's standard input (`sys.stdin.buffer`). `listen`: the program ends
    when nobody waits for its answer any more. `retry`: it only reads, so that it listens too, and may be asked
    once more when the connection was lost.
    """
    code, asked = _bundle(name, retry or listen), json.dumps(request).encode()
    data = b"%d\n%s%d\n%s%s" % (len(code), code, len(asked), asked, stdin)
    argv = [python, "-I", "-S", "-B", "-c", LOADER]
    try:
        done = transport.run(argv, stdin=data, timeout=timeout, max_bytes=MAX_REPLY)
    except LostError:
        if not retry:
            raise
        done = transport.run(argv, stdin=data, timeout=timeout, max_bytes=MAX_REPLY)
    return _reply(done, transport.host, python, name)


def _reply(done: Completed, host: str, python: str, name: str) -> dict[str, Any]:
    try:
        document = json.loads(done.stdout)
    except (ValueError, RecursionError):  # no JSON, or nested to hurt
        document = None
    if not isinstance(document, dict):
        if done.exit in (126, 127):
            raise DataError(
                f"no usable {python} (exit {done.exit})",
                where=host,
                hint=f"set hosts.{host}.python to a Python 3.8 or newer",
            )
        if b"-I" in done.stderr and done.exit == 2:  # Python 2 does not know the option
            raise _too_old(python, "older than 3.4", host)
        raise _no_answer(done, host, python, name)
    if "old" in document:
        raise _too_old(python, str(document["old"]), host)
    if "error" in document:
        raise DataError(f"{name} failed: {one_line(str(document['error']))}", where=host)
    reply = document.get("reply")
    if not isinstance(reply, dict):
        raise ProtocolError(f"{name} answered with something else than a document", where=host)
    return reply


def _no_answer(done: Completed, host: str, python: str, name: str) -> ProtocolError:
    """Quote the end of what came instead: what stands in for an interpreter may say on stdout what it is."""
    said = (one_line(each[-4000:].decode("utf-8", "replace")).strip() for each in (done.stderr, done.stdout))
    quoted = next((text[-300:] for text in said if text), None)
    ended = 0 if quoted else done.exit - 128
    if 0 < ended < signal.NSIG:  # the interpreter had begun: its words in the inventory are not at fault
        short = ", or the kernel for want of memory (its log says so)" if ended == signal.SIGKILL else ""
        return ProtocolError(
            f"{name} was ended by signal {ended} before it answered",
            where=host,
            hint=f"somebody over there ended it{short}; the same command may be given again",
        )
    return ProtocolError(
        f"{name} gave no answer (exit {done.exit})" + (f": {quoted}" if quoted else ", and said nothing"),
        where=host,
        hint=f"is {python} there a plain Python? It must run `-c` and print nothing of its own (hosts.{host}.python)",
    )


def _too_old(python: str, version: str, host: str) -> DataError:
    return DataError(
        f"{python} is Python {version}; 3.8 or newer is needed",
        where=host,
        hint=f"set hosts.{host}.python to a newer one",
    )
