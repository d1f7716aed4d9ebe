"""Asks the queue until the job or step is gone, ends it if need be, and never takes silence for an answer."""

from __future__ import annotations

import time

from handwash import run, slurm_names, world
from handwash.frozen import frozen
from handwash.messages import _
from handwash.schedulers import slurm_step
from handwash.schedulers.slurm_step import GONE, THERE, UNKNOWN, Answer, Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Quick at first, since a job of ours is usually out at once; then as slowly as administrators ask for.
PAUSES = (0.05, 0.1, 0.2, 0.4, 1.0, 1.5, 2.0, 2.0, 2.0, 4.0, 8.0)
PATIENCE = 30.0
ASK_TIMEOUT = 6.0
# srun has ended and its job is still held: something keeps it. Looked at this often before it is ended by force.
TRIES_BEFORE_CANCEL = 3
UNKNOWN_TRIES = 1


@frozen
class Confirmation:
    """The queue's last word, and whether the step or job had to be cancelled."""

    answer: Answer
    cancelled: bool = False


def environment() -> dict[str, str]:
    """For scancel too: SCANCEL_* variables narrow it down to some states or make it ask questions."""
    return {name: value for name, value in run.clean_environment().items() if not name.startswith("SCANCEL_")}


def ask(argv: Sequence[str], timeout: float = ASK_TIMEOUT) -> run.Result:
    """Runs one of Slurm's commands; a missing one is a failed one."""
    try:
        return run.run(argv, timeout, environment())
    except OSError as error:
        return run.Result(127, b"", f"{slurm_names.name(argv[0])}: {error.strerror}".encode(), False)


def confirm(
    target: Target,
    *,
    urgent: bool,
    query: Callable[[Sequence[str]], run.Result] = ask,
    sleep: Callable[[float], None] = time.sleep,
) -> Confirmation:
    """Polls until the target is gone, for `PATIENCE` seconds at most. `urgent`: srun did not end by itself: cancel at once."""
    if slurm_step.is_ambiguous(target):
        return Confirmation(Answer(UNKNOWN, _("more than one cluster was asked")))
    deadline = world.monotonic() + PATIENCE
    cancelled = False
    unknown = 0
    tries = 0
    answer = Answer(UNKNOWN)
    while True:
        answer = slurm_step.parse_queue(query(slurm_step.queue_argv(target)))
        tries += 1
        if answer.word == GONE:
            return Confirmation(answer, cancelled)
        unknown = unknown + 1 if answer.word == UNKNOWN else 0
        if unknown > UNKNOWN_TRIES or world.monotonic() >= deadline:
            return Confirmation(answer, cancelled)
        # A completing job is on its way out; cancelling it again changes nothing.
        if answer.word == THERE and answer.detail != "COMPLETING" and (urgent or tries > TRIES_BEFORE_CANCEL):
            query(slurm_step.cancel_argv(target, whole_job=False))
            if target.own:
                query(slurm_step.cancel_argv(target, whole_job=True))
            cancelled = True
            urgent = False
            tries = 0
        pause = PAUSES[min(tries, len(PAUSES)) - 1] if tries else PAUSES[0]
        sleep(min(pause, max(deadline - world.monotonic(), 0.01)))


def gpus(target: Target) -> int | None:
    """How many GPUs the job holds, over all its components; None where Slurm does not say."""
    if slurm_step.is_ambiguous(target):
        return None
    total = 0
    for number in range(len(target.jobs)):
        count = slurm_step.parse_gpus(ask(slurm_step.gpus_argv(target, number)))
        if count is None:
            return None
        total += count
    return total


def option_argument(srun: str, name: str) -> str:
    """What kind of option a plug-in has added: srun itself says so when given nothing else."""
    return slurm_step.parse_arity(ask([srun, f"--{name}"], 10.0))


def release(srun: str) -> str | None:
    """The installed release."""
    return slurm_step.parse_release(ask([srun, "--version"], 10.0))
