"""The task's side of the orders."""

from __future__ import annotations

import os

from handwash.node import kernel, supervisor
from handwash.node.chain import join
from handwash.node.orders import Orders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(text: str, command: Sequence[str]) -> None:
    """Runs the command under supervision and ends as it ended. Does not return."""
    if "LC_CTYPE" in os.environ:
        from handwash.node import coerced

        coerced.undo()
    orders = Orders.unpack(text)
    orders.slurmstepd = os.getppid()
    try:
        chain = join(orders)
    except OSError:
        chain = None
    ending = supervisor.supervise(command, orders, chain)
    if chain is not None:
        chain.leave()
    kernel.exit_like(ending.status)
    os._exit(125)
