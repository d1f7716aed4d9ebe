"""What handwash asks of a batch scheduler. One class for each kind of it; which one is here: `schedulers.here`.

Its methods are of two kinds. Those that look (`ask`, `evidence`, `not_over`, `steps`, `cancel`) may start programs, with
`run.run`, and read files; the first three run in a child process with a deadline, so what they answer has to be plain data
(`marshal`). Those that read are pure. Whoever could not tell raises `run.CouldNotTell` with a whole sentence: that is never an
empty answer.
"""

from __future__ import annotations

from handwash.frozen import frozen
from handwash.run import CouldNotTell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from handwash.model import Job, Site
    from handwash.schedulers.slurm_launchers import Step


@frozen
class Place:
    """Where a shell is, as the scheduler tells. `kind`: compute, allocation-shell, login, or "" where it is not known here.

    `job`: the one that the shell is in, by its number. `why`: the evidence, a sentence each. `host`: the scheduler's own name
    of this node, "" where it gives none. `gpus`: the indices on this node of the GPUs that the job holds, as far as they are
    named. `controller`: whether this host is the scheduler's own; None where that is not known.
    """

    kind: str
    job: str | None
    why: tuple[str, ...]
    host: str = ""
    gpus: tuple[int, ...] = ()
    controller: bool | None = None


class Scheduler:
    """A kind of batch scheduler. This one is no scheduler at all: it has no jobs, and does not know this host."""

    # For a person.
    name = ""
    # What each process of a job has in its environment; `membership` gets those that a process has.
    variables: tuple[bytes, ...] = ()
    # See `model.Site`.
    waits_for_terminal = False
    # Whether handwash can be started on the other nodes of a job that one is in.
    reaches_nodes = False
    # Whether `ask` tells of every job that a process of this person's can be in; where not, `not_over` is asked of the rest.
    lists_all = True

    def ask(self) -> Any:
        """What the scheduler says of this person's jobs."""
        return None

    def jobs(self, said: Any) -> tuple[Job, ...]:
        """The jobs in the answer of `ask`."""
        return ()

    def not_over(self, jobs: Sequence[str]) -> tuple[str, ...]:
        """Which of these, that processes here are in and that are not among `jobs`, have not left the queue."""
        return ()

    def site(self, said: Any) -> Site:
        """What the answer of `ask` tells of the site's own settings."""
        from handwash.model import Site

        return Site()

    def evidence(self) -> Any:
        """What there is to see of the scheduler on this host, and in this shell's environment."""
        return None

    def place(self, seen: Any, living: frozenset[str] | None) -> Place:
        """Where this shell is, by `evidence`. `living`: the numbers of the person's jobs in the queue, None where not known."""
        return Place("", None, ())

    def membership(
        self, groups: bytes | None, variables: Mapping[str, str]
    ) -> tuple[str | None, str | None, str | None]:
        """(job, step, by what) of one process. `groups`: the content of its /proc/PID/cgroup.

        By what: `cgroup`; `environment`, of what the scheduler itself starts in the job; `allocation`, where the variables
        reach a shell outside the job too. Here: the first of `variables` is the job's number.
        """
        job = variables.get(self.variables[0].decode()) if self.variables else None
        return job or None, None, "environment" if job else None

    def steps(self, job: str, timeout: float) -> tuple[Step, ...]:
        """The parts of a running job that were started in it, each with the program that waits for it. `timeout`: seconds."""
        return ()

    def cancel(self, job: str) -> bool | None:
        """Cancels a job, and says whether it has left the queue then; None where that could not be told."""
        return None

    def cancel_line(self, job: str) -> str:
        """What a person types to cancel a job."""
        return ""

    def queue_line(self, job: str) -> str:
        """What a person types to see whether a job is still in the queue."""
        return ""

    def shell_line(self) -> str:
        """What a person types to get a shell with a GPU, as far as one line serves every site."""
        return ""


class Unusable(Scheduler):
    """A scheduler of which nothing can be told, for the reason `why`."""

    def __init__(self, why: str) -> None:
        self.why = why

    def ask(self) -> Any:
        raise CouldNotTell(self.why)

    def evidence(self) -> Any:
        raise CouldNotTell(self.why)
