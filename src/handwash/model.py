"""What the survey knows and what the judge decides. Pure data: nothing here looks at the world.

Units: bytes, seconds, GPU-hours (GPUs times hours). Times are seconds since the epoch (UTC).
"""

from __future__ import annotations

from handwash.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Generic, Optional, TypeVar, Union

    T = TypeVar("T")


@frozen
class Unknown:
    """An answer that could not be had. Never the same as an empty one."""

    why: str


@frozen
class Node:
    """Where the asking shell is. `kind`: login, compute, allocation-shell, workstation. `job`: the job the shell is in."""

    kind: str
    host: str
    job: Optional[str]
    container: bool
    why: tuple[str, ...]
    scheduler: Optional[str] = None


@frozen
class Job:
    """One row of the scheduler's queue that belongs to the person."""

    id: str
    state: str
    name: str
    partition: str
    nodes: tuple[str, ...]
    gpus: Optional[int]
    elapsed_s: Optional[int]
    limit_s: Optional[int]
    interactive: Optional[bool]

    @property
    def gpu_hours(self) -> Optional[float]:
        """GPU-hours so far (GPUs times hours since the start); None where either is not known."""
        if self.gpus is None or self.elapsed_s is None:
            return None
        return self.gpus * self.elapsed_s / 3600.0


@frozen
class GpuUse:
    """One process on one GPU in the driver's own list. `memory` in bytes, None where the driver does not say."""

    pid: int
    memory: Optional[int]
    kind: str


@frozen
class Gpu:
    """One GPU of this node as the driver numbers it. `utilisation` from 0 to 1, None where it cannot be told (MIG)."""

    index: int
    uuid: str
    name: str
    memory_used: Optional[int]
    memory_total: Optional[int]
    utilisation: Optional[float]
    shared: bool
    minor: Optional[int] = None
    uses: tuple[GpuUse, ...] = ()


@frozen
class Process:
    """One process of this node. (`pid`, `start_ticks`) is its identity within one boot (proc(5), field 22 of stat).

    `devices`: accelerator device files it holds open. `gpus`: the indices of the GPUs that it holds by either look.
    `job`, `session`: whose it is by `attributed_by` (cgroup, environment, record, ancestry). `terminal`: it has one.
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
    job: Optional[str] = None
    session: Optional[str] = None
    attributed_by: Optional[str] = None
    gpus: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()


@frozen
class Survey:
    """The four answers, each known or unknown-because; `chain` holds the pids of handwash and of the shells that ask."""

    node: Union[Node, Unknown]
    jobs: Union[tuple[Job, ...], Unknown]
    gpus: Union[tuple[Gpu, ...], Unknown]
    processes: Union[tuple[Process, ...], Unknown]
    site: Site
    session: Optional[str] = None
    chain: tuple[int, ...] = ()


@frozen
class Site:
    """What the site's own configuration says. `proctrack`: cgroup, linuxproc, pgid …, None where it could not be asked."""

    proctrack: Optional[str] = None


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
    """`verdict`: clean, leftover, unknown. `unknown`: what could not be told, in words. `idle_jobs`: jobs nobody sits in."""

    verdict: str
    judged: tuple[Judged, ...]
    unknown: tuple[str, ...]

    @property
    def leftovers(self) -> tuple[Judged, ...]:
        return tuple(judged for judged in self.judged if judged.leftover)
