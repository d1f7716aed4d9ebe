"""`safe-srun --local COMMAND…`: the same supervision on this host, without a scheduler."""

from __future__ import annotations

import os

from handwash import world
from handwash.messages import _
from handwash.node import kernel, supervisor
from handwash.node.chain import Chain, join
from handwash.node.command import Command, command_environment
from handwash.node.wire import Orders, job_and_step, variable
from handwash.srun import history, receipt, record, sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from handwash.config import Config


def run(command: Sequence[str], label: str, settings: Config) -> int:
    """Runs the command to its end, ends what it left, says so, and ends as the command ended."""
    where = sessions.make()
    session = sessions.new_id()
    main = record.Main(session, label, where)
    main.set(local=1, **surroundings())
    orders = Orders(session, settings.grace, where, {})
    orders.variables = of_the_site(settings.scheduler)
    main.write()
    chain = join(orders)
    ending = supervisor.supervise(Command(command, command_environment(orders)), orders, chain)
    # From here on its status is what counts.
    try:
        if chain is not None:
            chain.leave()
        close(session, where, main, ending, chain)
    except Exception as error:
        receipt.say_fault(error)
    kernel.exit_like(ending.status)
    os._exit(125)


def surroundings() -> dict[str, str | None]:
    """The job and step that this runs in, for the record; or the `allocation` that the environment names where it is in none.

    salloc's shell sits outside its job, and in a tmux, say, it goes on naming that long after its end.
    """
    job, step = job_and_step()
    if variable(b"SLURM_JOB_ID") and not variable(b"SLURMD_NODENAME"):
        return {"allocation": job}
    return {"job": job or None, "step": step or None}


def of_the_site(scheduler: str) -> tuple[bytes, ...]:
    """The variables by which a scheduler of the site's own (the setting) tells its jobs; none of one that cannot be used."""
    if scheduler in ("", "slurm", "pbs"):
        return ()
    from handwash import schedulers

    return schedulers.of(scheduler).variables


def close(session: str, where: str, main: record.Main, ending: supervisor.Ending, chain: Chain | None) -> None:
    """Says what became of it, and closes the record."""
    words = record.parts_of(session, where)
    if chain is not None and chain.leaked:
        # The guardian's search knows more.
        ending.ended = sum(word.ended for word in words)
        ending.killed = sum(word.killed for word in words)
        ending.left = [(pid, why) for word in words for pid, _start, why in word.left]
        ending.complete = bool(words) and all(word.finished and word.complete for word in words)
    outcome = "leftover" if ending.left else "clean" if ending.complete else "unconfirmed"
    unsure = "" if ending.complete else _("could not tell whether all of it has ended")
    said = receipt.line(receipt.processes(ending.ended, ending.killed, ending.left), unsure)
    main.set(receipt=said)
    main.finish(outcome, words)
    history.prune()
    receipt.say(said)
    told = [row for word in words for row in word.stuck]
    receipt.say_to_send(told or [(world.host(), pid, "", why) for pid, why in ending.left])
