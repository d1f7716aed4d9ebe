"""What handwash asks of a batch scheduler. One class for each kind of it; which one is here: `schedulers.here`.

Its methods are of two kinds. Those that look (`ask`, `evidence`, `not_over`, `ask_gpus`, `clock`, `cancel`, `records`,
`shown`) may start programs, with `run.run`, and read files. All but `cancel` run in a child process with a
deadline; what the first five answer has to be plain data (`marshal`), and so has what is in a `usage.Run`. Those that read are
pure. A module of the site's is never run outside of such a child, whichever method it is (`of_the_site`): nothing that one
method leaves in memory is there for the next. Whoever could not tell raises `run.CouldNotTell` with a whole sentence: that is
never an empty answer.
"""

from __future__ import annotations

from handwash.frozen import frozen
from handwash.messages import _
from handwash.run import CouldNotTell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from handwash.model import Job, Node, Site
    from handwash.usage import Records


@frozen
class Place:
    """Where a shell is, as the scheduler tells. `kind`: compute, allocation-shell, login, or "" where it is not known here.

    `job`: the one that the shell is in, by its number. `why`: the evidence, a sentence each. `host`: the scheduler's own name
    of this node, "" where it gives none. `gpus`: the indices on this node of the GPUs that the job holds, as far as they are
    named; `uuids`: the same by the driver's names. `controller`: whether this host is the scheduler's own; None where that is
    not known.
    """

    kind: str
    job: str | None
    why: tuple[str, ...]
    host: str = ""
    gpus: tuple[int, ...] = ()
    controller: bool | None = None
    uuids: tuple[str, ...] = ()


@frozen
class Partition:
    """A part of the cluster that has GPUs; all of it where `name` is "". `default`: a job gets there without naming it.

    `idle`: GPUs that nobody has now; `cpus`: of its smallest node with GPUs; limit in seconds, None where there is none.
    """

    name: str
    default: bool
    gpus: int
    idle: int
    cpus: int
    limit_s: int | None


@frozen
class Leaving:
    """What leaving a job's shell does here to what still runs in it: `what`, by which `evidence`, and what a person can do."""

    what: str
    evidence: str
    remedy: str


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
    # The program that answers `records`, for a person who waits for it.
    recorder = ""
    # The program that safe-srun wraps, and that takes a command into a job which one already holds; "" where there is none.
    launcher = ""
    # What `Partition.name` is the name of, partition or queue.
    divided_by = "partition"
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
        """What the answer of `ask` tells of the site's own settings; without an answer (None), what is so at every site."""
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

    def records(self, begin: float, timeout: float) -> Records:
        """What is on record of this person's jobs that ran at `begin` or later.

        `begin`: seconds since the epoch; `timeout`: seconds. A scheduler that keeps nothing of jobs that have ended says so.
        """
        raise CouldNotTell(_("Of jobs that have ended nothing can be asked here: only those that run are counted."))

    def records_name(self) -> str:
        """What the scheduler's records are called, within a sentence."""
        return _("the scheduler's records")

    def shown(self, now: float, timeout: float) -> Records:
        """The runs of the person's jobs that the queue shows. `now`: seconds since the epoch; `timeout`: seconds.

        Here: those that `jobs` has, each as it is now. When a suspended one began is then not known, only for how long it ran.
        """
        from handwash import usage

        jobs = [job for job in self.jobs(self.ask()) if job.state != "PENDING"]
        runs = (
            usage.Run(
                id=job.id,
                number=job.number,
                state=job.state,
                name=job.name,
                partition=job.partition,
                nodes=job.nodes,
                gpus=job.gpus,
                started=now - (job.elapsed_s or 0),
                ended=None,
                elapsed_s=job.elapsed_s or 0,
                suspended_s=0,
                by=self.name,
            )
            for job in jobs
        )
        doubts = usage.untimed([job.id for job in jobs if job.elapsed_s is None and job.gpus != 0])
        return usage.Records(tuple(runs), self.name, tuple(doubts))

    def cancel(self, job: str) -> bool | None:
        """Cancels a job, and says whether it has left the queue then; None where that could not be told."""
        return None

    def cancel_line(self, job: str) -> str:
        """What a person types to cancel a job; here in words, which a sentence can end with as well."""
        return _("the command of {name} that cancels job {job}").format(name=self.name, job=job)

    def queue_line(self, job: str) -> str:
        """What a person types to see whether a job is still in the queue; here in words."""
        return _("the command of {name} that shows job {job}").format(name=self.name, job=job)

    def shell_line(self) -> str:
        """What a person types to get a shell with a GPU, as far as one line serves every site."""
        return ""

    def ask_gpus(self) -> Any:
        """What the scheduler says of the GPUs of the cluster; None where it cannot be asked."""
        return None

    def partitions(self, said: Any) -> tuple[Partition, ...] | None:
        """The parts of the cluster that have GPUs, in the answer of `ask_gpus`: first the one that is to be had soonest.

        None where the answer does not tell of GPUs at all.
        """
        return None

    def partition_line(self, partition: Partition) -> str:
        """What a person types to get a shell with one GPU of it."""
        return self.shell_line()

    def other_node_line(self) -> str:
        """What a person types to get a shell on another node than this one, which is broken."""
        return ""

    def whole_gpu_line(self) -> str:
        """What a person types to get a GPU that is not shared."""
        return ""

    def server_line(self) -> str:
        """What a person types to see whether the scheduler answers."""
        return ""

    def clock(self) -> float | None:
        """How many seconds the clock of the scheduler's own host is ahead of this one's; None where that cannot be told."""
        return None

    def clock_line(self) -> str:
        """What a person types to see both clocks."""
        return ""

    def leaving(self, site: Site, node: Node | None) -> Leaving | None:
        """What leaving a job's shell does, by `site`; None where that is not known. `node`: where this shell is."""
        return None


class Unusable(Scheduler):
    """A scheduler of which nothing can be told, for the reason `why`."""

    def __init__(self, why: str) -> None:
        self.why = why

    def ask(self) -> Any:
        raise CouldNotTell(self.why)

    def evidence(self) -> Any:
        raise CouldNotTell(self.why)

    def records(self, begin: float, timeout: float) -> Records:
        raise CouldNotTell(self.why)
