"""ProxyCommand of ct129's ssh: connect to pve's socket and hand the connection over (ProxyUseFdpass)."""

import array
import socket
import sys


def main() -> int:
    """Pass an open connection to the socket named in argv through standard output, itself a socket of ssh's."""
    with socket.socket(socket.AF_UNIX) as there, socket.socket(fileno=sys.stdout.fileno()) as ssh:
        try:
            there.connect(sys.argv[1])
        except OSError as error:
            # as ssh says it of a host that it connects to by itself
            print(f"ssh: connect to host pve port 22: {error.strerror}", file=sys.stderr)  # noqa: T201
            return 1
        ssh.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [there.fileno()]))])
    return 0


if __name__ == "__main__":
    sys.exit(main())
