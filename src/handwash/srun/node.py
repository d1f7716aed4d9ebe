"""The orders that travel from safe-srun to the node in one argument, and the task's side of them."""

from __future__ import annotations

import os

from handwash.srun import guardian, kernel, lines, supervisor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def pack(session: str, grace: float, folder: str, environment: Mapping[str, str | None]) -> str:
    """Orders to one argument. It shows in the process list: no secrets."""
    changes = [f"-{name}" if value is None else f"+{name}={value}" for name, value in environment.items()]
    return lines.join([session, f"{grace:g}", folder, *changes])


def unpack(text: str) -> supervisor.Orders:
    """The reverse of `pack`."""
    session, grace, folder, *changes = lines.split(text)
    environment: dict[str, str | None] = {}
    for change in changes:
        name, equals, value = change[1:].partition("=")
        environment[name] = value if equals else None
    return supervisor.Orders(session, float(grace), folder, environment)


def main(text: str, command: Sequence[str]) -> None:
    """Runs the command under supervision and ends as it ended. Does not return."""
    orders = unpack(text)
    try:
        chain = guardian.join(orders)
    except OSError:
        chain = None
    ending = supervisor.supervise(command, orders, chain)
    if chain is not None:
        chain.goodbye()
    kernel.exit_like(ending.status)
    os._exit(125)
