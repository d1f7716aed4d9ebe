"""What the survey knows and what the judge decides. Pure data: nothing here looks at the world.

Units: bytes, seconds, GPU-hours (GPUs times hours). Times are seconds since the epoch (UTC).
"""

from __future__ import annotations

from handwash.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar, Union

    T = TypeVar("T")


@frozen
class Unknown:
    """An answer that could not be had. Never the same as an empty one.

    `cause`: for the GPUs a word of ours for the reason, or "": driver-hangs, driver-crashed, driver-not-loaded,
    driver-mismatch, driver-too-old, driver-nonsense, driver-error, library-missing, library-broken, gpu-lost,
    no-permission, bindings.
    """

    why: str
    cause: str = ""


@frozen
class Node:
    """Where the asking shell is. `kind`: login, compute, allocation-shell, workstation. `job`: the job the shell is in.

    `gpus`: the indices on this node of the GPUs that the job holds, as far as the scheduler names them. `held`: how many it
    holds in all, by the queue; None where that is not known. `controller`: whether this host is the scheduler's own, by its
    configuration; None where there is none.
    """

    kind: str
    host: str
    job: str | None
    container: bool
    why: tuple[str, ...]
    gpus: tuple[int, ...] = ()
    held: int | None = None
    controller: bool | None = None


@frozen
class Job:
    """One row of the scheduler's queue that belongs to the person.

    `id` as people write it (`123_4` for an array task), `number` as the job's own environment has it. `alloc_host`,
    `alloc_sid`: where it was submitted, and the session (getsid(2)) there.
    """

    id: str
    number: str
    state: str
    name: str
    partition: str
    nodes: tuple[str, ...]
    gpus: int | None
    elapsed_s: int | None
    limit_s: int | None
    interactive: bool | None
    alloc_host: str = ""
    alloc_sid: int | None = None

    def is_on(self, host: str) -> bool:
        """Whether it has this node, named without a domain. PBS has a node by the name it was made with, maybe a long one."""
        return any(host in (node, node.partition(".")[0]) for node in self.nodes)

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours so far (GPUs times hours since the start); None where either is not known."""
        if self.gpus is None or self.elapsed_s is None:
            return None
        return self.gpus * self.elapsed_s / 3600.0


@frozen
class GpuUse:
    """One process on one GPU in the driver's own list. `memory` in bytes, None where the driver does not say.

    `kind`: compute, graphics, mps (a client of the multi-process service). `instance`: GPU and compute instance under MIG.
    """

    pid: int
    memory: int | None
    kind: str
    instance: tuple[int, int] | None = None


@frozen
class Holder:
    """One process on one GPU, by both looks. `memory`: its GPU memory in bytes, None where nobody says.

    `by`: driver (its list alone), files (it holds the device files open), both. `kind`: compute, graphics, mps (a client of
    the multi-process service), mps-server, or "". `user`: its owner, "" where unknown. `word`: where the looks disagree, how:
    dead: in the driver's list, and no such process here · zombie: it has ended, its parent has not collected it
    foreign: the driver counts in another PID namespace, so who that is cannot be told here
    hidden: another person's, of whom /proc shows nothing (hidepid)
    unlisted: has the device files of a program that computes open, and the driver's lists do not have it at all
    elsewhere: has this GPU's device file open, and the driver lists it on other GPUs alone · monitor: no context, it looks
    """

    pid: int
    memory: int | None
    kind: str
    by: str
    word: str = ""
    user: str = ""


@frozen
class Gpu:
    """One GPU, or one MIG instance, of this node. `index`: the driver's, that of the whole GPU for an `instance` of it.

    `utilisation`: from 0 to 1, the mean over the driver's last samples, of `utilisation_over_s` seconds, with
    `utilisation_max` the highest; over None seconds it is one instant. None where it cannot be told (MIG).
    `uses_known`: whether `uses` is the driver's word; False where it would not say. `device`: the GPU's device file, or "".
    `notes`: what is wrong with the GPU or with the answers about it, in words; `trouble`: in words of ours: lost, reset,
    wedged. `sharing`: how others come to be on it: mig, mps, shard. `visible`: the number under which a CUDA program
    started in this shell sees it, None where it sees none or that cannot be told. `holders`: both looks, joined.
    """

    index: int
    uuid: str
    name: str
    memory_used: int | None
    memory_total: int | None
    utilisation: float | None
    shared: bool
    minor: int | None = None
    uses: tuple[GpuUse, ...] = ()
    uses_known: bool = True
    device: str = ""
    notes: tuple[str, ...] = ()
    vendor: str = "NVIDIA"
    instance: tuple[int, int] | None = None
    sharing: tuple[str, ...] = ()
    trouble: tuple[str, ...] = ()
    utilisation_max: float | None = None
    utilisation_over_s: float | None = None
    visible: int | None = None
    holders: tuple[Holder, ...] = ()

    @property
    def node_index(self) -> int:
        """The number on this node, which Slurm and the device file use; a control group makes the driver's start at 0."""
        return self.index if self.minor is None else self.minor


@frozen
class Visibility:
    """What CUDA_VISIBLE_DEVICES of this shell means.

    `kind`: all (not set), none (set and empty), no-dev-files, list, repeated (one is named twice, which hides all).

    `order`: places in `Survey.gpus`, in the order in which a program numbers them. `rejected`: the first entry that names no
    GPU here, which ends the list; `ignored`: those after it. `certain`: False where CUDA's own order cannot be told.
    """

    kind: str
    value: str
    order: tuple[int, ...]
    rejected: str | None = None
    ignored: tuple[str, ...] = ()
    certain: bool = True


@frozen
class Process:
    """One process of this node. (`pid`, `start_ticks`) is its identity within one boot (proc(5), field 22 of stat).

    `devices`: accelerator device files it holds open; `computes`: as a program with a context on one does, not a monitor.
    `gpus`: the indices of the GPUs that it holds by either look. `terminal`: its controlling terminal, 0 for none.
    `unread`: it hangs in the kernel so that its command line and environment cannot be read. `on_terminal`: it holds a terminal
    open, looked at only where the scheduler waits for that.
    `job`, `session`: whose it is by `attributed_by` (cgroup, environment, allocation, record, ancestry; without either:
    other-scheduler, where it was started in a job of one that is not asked).
    """

    pid: int
    ppid: int
    start_ticks: int
    started: float
    uid: int
    user: str
    command: str
    name: str
    state: str
    cpu_s: float
    rss: int
    terminal: int
    sid: int
    pgid: int
    job: str | None = None
    step: str | None = None
    session: str | None = None
    attributed_by: str | None = None
    gpus: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    computes: bool = False
    threads: int = 1
    unread: bool = False
    on_terminal: bool = False


@frozen
class Survey:
    """The four answers, each known or unknown-because; `chain` holds the pids of handwash and of the shells that ask.

    `session`: the safe-srun session this shell says it is in. `running_sessions`: those whose owner is alive.
    `gpus_in_part`: where `gpus` is unknown, those of which something is known all the same (by their device files, or
    before the driver stopped answering). `visibility`: None where `gpus` is unknown. `living_steps`: the numbers of the
    steps of this shell's job that still run; None where nobody has asked. `opened_beside`: the jobs that ran on this node when
    this shell was opened outside of all jobs, see `opened`. `unlisted`: jobs that processes here belong to, that are not in
    `jobs` and not over either. `taken`: when the looks began, seconds since the epoch; 0 where that is not known.
    """

    node: Union[Node, Unknown]
    jobs: Union[tuple[Job, ...], Unknown]
    gpus: Union[tuple[Gpu, ...], Unknown]
    processes: Union[tuple[Process, ...], Unknown]
    site: Site
    session: str | None = None
    chain: tuple[int, ...] = ()
    running_sessions: tuple[str, ...] = ()
    gpus_in_part: tuple[Gpu, ...] = ()
    visibility: Visibility | None = None
    living_steps: tuple[str, ...] | None = None
    opened_beside: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    taken: float = 0.0

    @property
    def living(self) -> frozenset[str] | None:
        """The numbers of the jobs that are not over; None where that is not known."""
        return (
            None if isinstance(self.jobs, Unknown) else frozenset((*(job.number for job in self.jobs), *self.unlisted))
        )


@frozen
class Site:
    """What the site's own configuration says, or the kind of its scheduler brings with it.

    `proctrack`: what ends an interactive job's processes with it, cgroup, linuxproc, pgid … of Slurm, or session (getsid(2)) of
    PBS; None where it could not be asked. `holders`: the programs that wait at a terminal for an interactive job.
    `waits_for_terminal`: whether such a job goes on, with all that is in it, while something holds the terminal of the shell
    that was left. `marks_all`: whether each process of a job bears a sign of it, also where the job's first node has started
    it by ssh.
    """

    proctrack: str | None = None
    holders: tuple[str, ...] = ()
    waits_for_terminal: bool = False
    marks_all: bool = True


@frozen
class Judged:
    """One process with the judge's word. `whose` and `fate` as in the contract; `leftover`: it would go on unattended."""

    process: Process
    whose: str
    fate: str
    leftover: bool
    why: str


@frozen
class Verdict:
    """`verdict`: clean, leftover, unknown. `unknown`: what could not be told, in words."""

    verdict: str
    judged: tuple[Judged, ...]
    unknown: tuple[str, ...]

    @property
    def leftovers(self) -> tuple[Judged, ...]:
        return tuple(judged for judged in self.judged if judged.leftover)
