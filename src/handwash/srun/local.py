"""`safe-srun --local COMMAND…`: the same supervision on this host, without a scheduler."""

from __future__ import annotations

import os

from handwash import config, paths
from handwash.messages import _
from handwash.srun import guardian, kernel, receipt, record, supervisor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def session_folder() -> str:
    """The folder for records; empty where it cannot be had, which costs the record only."""
    where = record.folder()
    try:
        paths.make_private(where)
    except OSError:
        return ""
    return where


def run(command: Sequence[str], label: str, quiet: bool) -> int:
    """Runs the command to its end, ends what it left, says so, and ends as the command ended."""
    settings = config.load()
    where = session_folder()
    session = record.new_id()
    main = record.Main(session, label, where)
    main.write()
    orders = supervisor.Orders(session, settings.grace, where, {})
    chain = guardian.join(orders)
    ending = supervisor.supervise(command, orders, chain)
    if chain is not None:
        chain.goodbye()
    words = record.parts_of(session, where)
    outcome = "leftover" if ending.left else "clean" if ending.complete else "unconfirmed"
    main.finish(outcome, words)
    record.prune()
    if not quiet or outcome != "clean":
        unsure = "" if ending.complete else _("could not tell whether all of it has ended")
        receipt.say(receipt.processes(ending.ended, ending.killed, ending.left), unsure)
    kernel.exit_like(ending.status)
    os._exit(125)
