"""Start a command in a session of its own, its output appended to a file, and print its process number.

`python detach.py OUTPUT COMMAND...`: what an operator does with setsid and nohup. Standard library only.
"""

import os
import sys


def main() -> None:
    """Fork twice, so that the command is nobody's child here and leaves no zombie with whoever started it."""
    output, command = sys.argv[1], sys.argv[2:]
    read, write = os.pipe()
    if os.fork():
        os.close(write)
        with os.fdopen(read) as pipe:
            sys.stdout.write(pipe.read())
        os.wait()
        return
    os.setsid()
    child = os.fork()
    if child:
        os.write(write, b"%d\n" % child)
        os._exit(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), 1)
    os.dup2(1, 2)
    os.execv(command[0], command)  # noqa: S606  (the point of it)


if __name__ == "__main__":
    main()
