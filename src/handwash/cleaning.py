"""What `clean` may end, what it holds back, and which GPUs come free by it. Pure: survey and verdict in, plan out."""

from __future__ import annotations

from handwash.frozen import frozen
from handwash.messages import _
from handwash.model import Gpu, Judged, Process, Survey, Unknown
from handwash.services import SHELLS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


# Of a holder's words: it has ended, whatever the driver says.
_GONE = ("dead", "zombie")


@frozen
class Plan:
    """`targets`: what is to be ended. `held_back`: what is not, each with the word why: mps, service.

    `complaint`: why nothing at all is to be ended; `unsure`: that is because it could not be told.
    """

    targets: tuple[Judged, ...] = ()
    held_back: tuple[tuple[Judged, str], ...] = ()
    complaint: str | None = None
    unsure: bool = False


@frozen
class Freed:
    """One GPU that a target holds. `others`: who is on it besides, as words; free where there are none."""

    gpu: Gpu
    others: tuple[str, ...]


def picked(
    pids: list[int], seen: Survey, judged: tuple[Judged, ...], uid: int, strangers: Mapping[int, str] | None = None
) -> Plan:
    """The processes a person named with all that they have started, or why one of them is out of bounds.

    `strangers`: the owners of those that the survey does not hold.
    The main process alone would give nothing back where its children hold the GPU. Never upwards: a launcher stays.
    """
    known = {one.process.pid: one for one in judged}
    for pid in pids:
        if pid in seen.chain or pid == 1:
            return Plan(complaint=_("{pid} is this shell, or one that it runs in: nothing was ended.").format(pid=pid))
        one = known.get(pid)
        owner = one.process.user if one is not None and one.process.uid != uid else (strangers or {}).get(pid)
        if owner is not None:
            sentence = _("{pid} belongs to {user}: handwash never ends other people's processes. Nothing was ended.")
            return Plan(complaint=sentence.format(pid=pid, user=owner))
        if one is None:
            return Plan(complaint=_("{pid} is not a process of yours on this node: nothing was ended.").format(pid=pid))
        if one.process.state in ("Z", "X"):
            return Plan(complaint=_("{pid} cannot be ended: {why}").format(pid=pid, why=one.why))
    children: dict[int, list[Judged]] = {}
    for one in judged:
        if one.process.uid == uid and one.process.state not in ("Z", "X"):
            children.setdefault(one.process.ppid, []).append(one)
    found: dict[int, Judged] = {}
    front = [known[pid] for pid in dict.fromkeys(pids)]
    while front:
        one = front.pop(0)
        if one.process.pid not in found:
            found[one.process.pid] = one
            front += children.get(one.process.pid, [])
    below = [one for pid, one in found.items() if pid not in pids]
    services = {one.process.pid for one in below if one.whose == "service"}
    targets = tuple(one for pid, one in found.items() if pid not in services)
    return Plan(targets, tuple((one, "service") for one in below if one.process.pid in services))


def without_mps(seen: Survey, targets: tuple[Judged, ...]) -> Plan:
    """Holds back the clients of a multi-process service that other processes share: their end can take those down too."""
    partners = mps_partners(seen, [one.process.pid for one in targets])
    return Plan(
        tuple(one for one in targets if one.process.pid not in partners),
        tuple((one, "mps") for one in targets if one.process.pid in partners),
    )


def restarted(
    fresh: Iterable[Judged], ended: Iterable[Judged], now: Iterable[Judged], chain: Collection[int]
) -> dict[int, Judged]:
    """Of those that have appeared, the ones that an agent has started in place of what was ended: pid to the agent.

    The same program of the same job again, below the same living parent. A parent that is asking, or a shell that somebody
    sits at, is none: there a person has typed it anew. Neither is process 1, which is given everybody's orphans.
    """
    ending = {one.process.pid for one in ended}
    parents = {one.process.pid: one for one in now if _may_be_agent(one.process, ending, chain)}
    was = {
        (one.process.ppid, one.process.name, one.process.job)
        for one in ended
        # Else the parent's pid is another's by now.
        if one.process.ppid in parents and parents[one.process.ppid].process.start_ticks <= one.process.start_ticks
    }
    return {
        one.process.pid: parents[one.process.ppid]
        for one in fresh
        if one.process.ppid in parents
        and parents[one.process.ppid].process.uid == one.process.uid
        and (one.process.ppid, one.process.name, one.process.job) in was
    }


def staying_parents(targets: Collection[Judged], seen: Survey) -> tuple[Process, ...]:
    """The parents of the person's own that are not ended with their children, and may start these anew."""
    ending = {one.process.pid for one in targets}
    parents = {one.process.ppid for one in targets}
    processes = () if isinstance(seen.processes, Unknown) else seen.processes
    return tuple(one for one in processes if one.pid in parents and _may_be_agent(one, ending, seen.chain))


def _may_be_agent(process: Process, ending: Collection[int], chain: Collection[int]) -> bool:
    sat_at = process.name in SHELLS and process.terminal != 0 and process.pid == process.sid
    return process.pid not in ending and process.pid not in chain and process.pid != 1 and not sat_at


def mps_partners(seen: Survey, pids: Collection[int]) -> Mapping[int, tuple[int, ...]]:
    """Of `pids`, the clients of a multi-process service, each with those other clients on its GPU that are not in `pids`."""
    if isinstance(seen.gpus, Unknown):
        return {}
    found: dict[int, tuple[int, ...]] = {}
    for gpu in seen.gpus:
        clients = {holder.pid for holder in gpu.holders if holder.kind == "mps" and holder.word not in _GONE}
        others = tuple(sorted(clients - set(pids)))
        for pid in clients & set(pids):
            if others:
                found[pid] = others
    return found


def frees(seen: Survey, targets: Iterable[Judged]) -> tuple[Freed, ...]:
    """The GPUs that the targets hold, each with who stays on it."""
    if isinstance(seen.gpus, Unknown):
        return ()
    targets = tuple(targets)
    ending = {one.process.pid for one in targets}
    held = {index for one in targets for index in one.process.gpus}
    return tuple(Freed(gpu, _others(gpu, seen, ending)) for gpu in seen.gpus if gpu.index in held)


def _others(gpu: Gpu, seen: Survey, ending: Collection[int]) -> tuple[str, ...]:
    """Who stays on a GPU. A monitor has the device open and holds none of its memory; of a hidden one there is a number."""
    processes = () if isinstance(seen.processes, Unknown) else seen.processes
    names = {process.pid: f"{process.name} ({process.user})" for process in processes}
    return tuple(
        f"{holder.pid} {names[holder.pid]}" if holder.pid in names else f"{holder.pid}"
        for holder in gpu.holders
        if holder.pid not in ending and holder.word not in (*_GONE, "monitor", "elsewhere")
    )


@frozen
class Returned:
    """Memory in use on one GPU before and after, in bytes. `back`: whether it is given back; None where nobody can tell."""

    index: int
    before: int | None
    after: int | None
    back: bool | None


# A driver keeps some memory for itself, and other processes may have grown meanwhile: this share of a GPU is passed over.
_SLACK = 0.02


def returned(before: Survey, after: Survey, targets: Collection[Judged], gone: Collection[int]) -> tuple[Returned, ...]:
    """Each GPU that the targets held: whether the memory of those that are `gone` has come back.

    Dead pids in the driver's list count with them: their memory hangs on the children that hold the device.
    """
    if isinstance(before.gpus, Unknown):
        return ()
    held = {index for one in targets for index in one.process.gpus}
    later = {} if isinstance(after.gpus, Unknown) else {gpu.uuid or str(gpu.index): gpu for gpu in after.gpus}
    return tuple(
        _one_returned(gpu, later.get(gpu.uuid or str(gpu.index)), set(gone)) for gpu in before.gpus if gpu.index in held
    )


def _one_returned(gpu: Gpu, now: Gpu | None, gone: set[int]) -> Returned:
    if gpu.memory_used is None:
        # Known by its device file alone, there never was a word on memory: that the holders are gone is all there is.
        return Returned(gpu.index, None, None, None if gpu.uses_known else True)
    if now is None or now.memory_used is None or not now.uses_known:
        return Returned(gpu.index, gpu.memory_used, None if now is None else now.memory_used, None)
    if any(holder.word == "foreign" for holder in gpu.holders):
        # In a container the driver's numbers are not these: only that there is less can be told.
        return Returned(
            gpu.index, gpu.memory_used, now.memory_used, True if now.memory_used < gpu.memory_used else None
        )
    leaving = {holder.pid for holder in gpu.holders if holder.pid in gone or holder.word in _GONE}
    expected = sum(use.memory or 0 for use in gpu.uses if use.pid in leaving)
    accounted = sum(use.memory or 0 for use in now.uses if use.pid not in leaving)
    slack = (gpu.memory_total or 0) * _SLACK
    is_less = bool(expected) and gpu.memory_used - now.memory_used >= expected * 0.9
    is_accounted = now.memory_used <= accounted + slack
    still_listed = any(use.pid in leaving for use in now.uses)
    return Returned(gpu.index, gpu.memory_used, now.memory_used, not still_listed and (is_less or is_accounted))
