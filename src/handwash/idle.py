"""Which GPUs of this shell's job do nothing, and how that is known. Pure: nothing here looks at the world.

A GPU is billed as long as the job holds it. That it does nothing is said only where the driver's own samples show it, and
only of a job and of programs that have had their time to start; what cannot be told is unknown and never idle.
"""

from __future__ import annotations

from handwash import remarks
from handwash.frozen import frozen
from handwash.model import Gpu, Survey, Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Fewer seconds of samples than these are an instant: every training step has pauses.
_ENOUGH_S = 5.0
# As many cores as a data loader at work keeps busy at least; a notebook that waits for its user takes a hundredth.
_AT_WORK_CORES = 0.2
# Somebody with this word has the device file open and no context, or computes on other GPUs.
_NOT_ON_IT = ("monitor", "elsewhere")


@frozen
class Doing:
    """What one GPU of the job does. `word`, of which `empty` and `held` are idle, and only `unknown` is not known:

    empty: nobody is on it · held: somebody is, and does nothing · cpu: whoever holds it computes on the CPU · disk: or waits
    in the kernel, for a disk most often · busy · busy-lately: it was, at a look less than `idle_after` ago · job-started,
    program-started: less than `idle_after` ago · unknown. `over_s`: how many seconds the driver's samples cover, None for
    one instant. `since`: the first of the earlier looks that have not found it busy, with none since that has (seconds since
    the epoch).
    """

    gpu: Gpu
    word: str
    over_s: float | None = None
    since: float | None = None

    @property
    def is_idle(self) -> bool | None:
        return None if self.word == "unknown" else self.word in ("empty", "held")


@frozen
class Load:
    """What processes did for a moment: `cores` that each has kept busy; `on_disk`: those mostly in state D (proc(5))."""

    cores: Mapping[int, float]
    on_disk: frozenset[int] = frozenset()

    def word(self, pids: frozenset[int]) -> str:
        """What these do together: cpu, disk, or "" for nothing."""
        if sum(self.cores.get(pid, 0.0) for pid in pids) >= _AT_WORK_CORES:
            return "cpu"
        return "disk" if pids & self.on_disk else ""


def held_gpus(survey: Survey) -> tuple[Gpu, ...]:
    """The GPUs of this node that the job of this shell holds, as far as the scheduler and the driver name them.

    Where the job has but a part of one (gres/shard), that is not a GPU of its own.
    """
    if isinstance(survey.node, Unknown) or isinstance(survey.gpus, Unknown) or survey.node.job is None:
        return ()
    held = survey.node.gpus
    return tuple(gpu for gpu in survey.gpus if gpu.node_index in held and "shard" not in gpu.sharing)


def weigh(
    survey: Survey,
    uid: int,
    now: float,
    after_s: float,
    seen: Mapping[str, tuple[float, float]],
    load: Load | None = None,
) -> tuple[Doing, ...]:
    """What each of the job's GPUs does. `after_s`: how long job and programs have had to start.

    `seen`: for each GPU by `key` when a look has last found it busy, and the first look since that has not; 0 for never.
    """
    job = remarks.own_job(survey)
    found = []
    for gpu in held_gpus(survey):
        busy_at, quiet_at = seen.get(key(gpu), (0.0, 0.0))
        over_s = gpu.utilisation_over_s
        if over_s is not None and over_s < _ENOUGH_S:
            over_s = None
        word = _word(gpu, over_s)
        if word in ("empty", "held"):
            young = _is_young(gpu, survey, uid, now - after_s)
            if job is None or job.elapsed_s is None or young is None:
                word = "unknown"
            elif job.elapsed_s < after_s:
                word = "job-started"
            elif busy_at and now - busy_at < after_s:
                word = "busy-lately"
            elif young:
                word = "program-started"
            elif load is not None:
                word = load.word(family(gpu, survey, uid)) or word
        found.append(Doing(gpu, word, over_s, None if word == "busy" else quiet_at or None))
    return tuple(found)


def key(gpu: Gpu) -> str:
    """What it is called from look to look."""
    return gpu.uuid or f"index-{gpu.index}"


def _word(gpu: Gpu, over_s: float | None) -> str:
    """By the driver's word on the GPU alone."""
    if gpu.utilisation is None or gpu.trouble:
        return "unknown"
    if gpu.utilisation > 0 or (gpu.utilisation_max or 0) > 0:
        return "busy"
    if not gpu.uses_known:
        return "unknown"
    if all(one.word in _NOT_ON_IT for one in gpu.holders):
        return "empty"
    # One instant between two kernels is nothing.
    return "unknown" if over_s is None else "held"


def _is_young(gpu: Gpu, survey: Survey, uid: int, since: float) -> bool | None:
    """Whether a program of the person's on it was started after `since`: it may still be reading its model.

    None where the person's processes are not known. Workers that are made anew all the time are a sign of life as well.
    """
    if isinstance(survey.processes, Unknown):
        return None
    on_it = _own_holders(gpu, survey, uid)
    return any(one.started > since for one in survey.processes if one.pid in on_it)


def _own_holders(gpu: Gpu, survey: Survey, uid: int) -> frozenset[int]:
    processes = () if isinstance(survey.processes, Unknown) else survey.processes
    own = {one.pid for one in processes if one.uid == uid and one.state not in ("Z", "X")}
    on_it = {one.pid for one in gpu.holders if one.word not in (*_NOT_ON_IT, "foreign")}
    return frozenset(own & on_it)


def family(gpu: Gpu, survey: Survey, uid: int) -> frozenset[int]:
    """The person's processes on a GPU, what is below them, and above them up to the shells that ask: they work together."""
    if isinstance(survey.processes, Unknown):
        return frozenset()
    parents = {one.pid: one.ppid for one in survey.processes if one.uid == uid}
    found = set(_own_holders(gpu, survey, uid))
    for pid in tuple(found):
        above = parents.get(pid)
        while above in parents and above not in found and above not in survey.chain:
            found.add(above)
            above = parents[above]
    below = [pid for pid in parents if pid not in survey.chain and _is_below(pid, found, parents)]
    return frozenset((*found, *below))


def _is_below(pid: int, of: set[int], parents: Mapping[int, int]) -> bool:
    for _generation in range(32):
        if pid not in parents:
            return False
        pid = parents[pid]
        if pid in of:
            return True
    return False


def of_job(survey: Survey, uid: int) -> frozenset[int]:
    """All processes of the person's in this job on this node, without the shells that ask and their like."""
    if isinstance(survey.processes, Unknown) or isinstance(survey.node, Unknown):
        return frozenset()
    return frozenset(
        one.pid
        for one in survey.processes
        if one.uid == uid and one.job == survey.node.job and one.pid not in survey.chain and one.state not in ("Z", "X")
    )
