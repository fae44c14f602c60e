"""Have a plan's copy carried: by the source that pushes, or by this machine that relays."""

from __future__ import annotations

import base64
import re
import sys
from typing import Any

from hostkit.errors import UnreachableError
from hostkit.inventory.models import Inventory
from hostkit.staging.models import StagePlan
from hostkit.staging.rsync_exit import last_lines
from hostkit.staging.transfer_commands import SILENCE, marker, receiver, sending, wanted
from hostkit.transport.connections import THIS_MACHINE, Connections
from hostkit.transport.programs.run import run_program

LEAST = 16 << 10  # bytes that the slowest sender gives at once (page_cache): silent as long as they take


def carry(
    connections: Connections, inventory: Inventory, plan: StagePlan, disproved: float | None
) -> dict[str, Any]:
    """Run the copy; return the receiver's reply. The carrier listens: it ends with this command."""
    pushed = plan.by == "push"
    transport = connections.transport(plan.source) if pushed else connections.machine()
    python = inventory.hosts[plan.source].python if pushed else sys.executable
    reply = run_program(transport, python, "bridge", _request(inventory, plan, disproved), listen=True)
    if reply.get("failed"):
        raise _lost(plan, reply)
    return reply


def _request(inventory: Inventory, plan: StagePlan, disproved: float | None) -> dict[str, Any]:
    line = marker()
    state = inventory.hosts[plan.destination].state
    silence = max(SILENCE, 3 * LEAST / plan.rate) if plan.rate else SILENCE
    receive = wanted(plan) | {"folder": plan.folder, "name": plan.name, "state": state}
    receive |= {"disproved": disproved, "marker": line, "silence": silence, "rsync": plan.via == "rsync"}
    request: dict[str, Any] = {
        "marker": line,
        "low_priority": plan.by == "push",  # beside the run
        "receiver": {
            "argv": list(plan.receiver),
            "program": base64.b64encode(receiver(receive)).decode(),
        },
    }
    if plan.via == "rsync":
        return request | {"rsync": {"argv": list(plan.argv), "names": plan.names}}
    program = base64.b64encode(sending(plan, line)).decode()
    return request | {"sender": {"argv": list(plan.argv), "program": program}}


def _lost(plan: StagePlan, reply: dict[str, Any]) -> UnreachableError:
    """Return the error for a receiver that was not there, or went away: its hop is the one that ssh speaks of."""
    stderr = str(reply["said"])
    carrier = plan.source if plan.by == "push" else THIS_MACHINE
    message = last_lines(stderr)
    named = [hop for hop in plan.into if re.search(rf"\b{re.escape(hop)}\b", message)]
    began = bool(reply["sender"])
    hint = "run the same command to resume"
    if not began and plan.by == "push":
        hint = f"the keys and known_hosts of {carrier} itself count here; `--by relay` uses this machine's"
    what = "lost" if began else "did not reach"
    return UnreachableError(
        f"{carrier} {what} the receiver on {plan.destination} ({reply['exit']}){': ' + message if message else ''}",
        hop=named[0] if named else plan.destination,
        where=carrier,
        hint=hint,
    )
