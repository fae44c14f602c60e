"""The fleet by hand: `python -m tests.fleet up|down|status`."""

from __future__ import annotations

import argparse
import shlex
import sys
import time

from tests.fleet.fleet import Fleet, running
from tests.fleet.needs import lacking


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet", description=__doc__)
    parser.add_argument("verb", choices=["up", "down", "status"])
    parser.add_argument(
        "--number", type=int, help="which fleet (up: the first number to try; down: only this one)"
    )
    parser.add_argument("--hosts", type=int, default=0, help="plain ssh hosts beside it (not there yet)")
    parser.add_argument("--rtt", type=float, default=0.0, help="delay in ms before ct129 (not there yet)")
    asked = parser.parse_args()
    if asked.hosts or asked.rtt:
        parser.error("plain hosts and delays are not there yet")
    if reason := lacking():
        print(reason, file=sys.stderr)
        return 77
    return {"up": _up, "down": _down, "status": _status}[asked.verb](asked.number)


def _up(number: int | None) -> int:
    began = time.monotonic()
    fleet = Fleet.up(number or 100, outlives_us=True)
    print(f"fleet {fleet.slot.number} is up after {time.monotonic() - began:.2f} s; to use it:\n")
    for name, value in fleet.environment.items():
        if name.startswith(("XDG", "HOSTKIT")):
            print(f"export {name}={shlex.quote(value)}")
    print(f"\n{shlex.join(fleet.hostkit_argv('train-status'))}")
    return 0


def _down(number: int | None) -> int:
    for fleet in running():
        if number is None or fleet.slot.number == number:
            if fleet.owner and fleet.owner.alive():
                print(f"fleet {fleet.slot.number} belongs to a test run; left alone")
                continue
            fleet.down()
            print(f"fleet {fleet.slot.number} is down")
    return 0


def _status(number: int | None) -> int:
    fleets = [fleet for fleet in running() if number in (None, fleet.slot.number)]
    for fleet in fleets:
        print(f"fleet {fleet.slot.number}: inventory {fleet.inventory_path}")
        for host in ("ct129", "pve", "ct200"):
            print(f"  {host}: {len(fleet.processes(host))} processes")
    return 0 if fleets else 1


if __name__ == "__main__":
    sys.exit(main())
