"""What each GPU of this shell's job does, from look to look: the survey, a reading of the programs' CPU time, and a small note.

The driver's samples reach back some twenty seconds. That a look has not found a GPU busy is noted, so that the next one can
say since when none has; what happened between two looks nobody knows, and nobody claims to.
"""

from __future__ import annotations

import os

from handwash import idle, paths, remarks, world
from handwash.idle import Doing, Load
from handwash.model import Survey, Unknown
from handwash.survey import procfs
from handwash.teardown import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Readings of CPU time, which has a grain of 10 ms, and of the state; and the time between two of them. Taken only where a
# GPU would be called idle.
_READINGS = 6
_PAUSE_S = 0.05
# In how many of them whoever waits for a disk has to be seen to: a program that starts others (vfork(2)) is in state D too.
_ON_DISK = 3
_CAP = 256 * 1024
# Rows: more GPUs than one node has, many times over.
_KEPT = 200
# A clock that was set back must not make a look of the future.
_FUTURE_S = 60.0


def take(survey: Survey, idle_after: float) -> tuple[tuple[Doing, ...], bool]:
    """What the job's GPUs on this node do, and whether any process of the person's in the job is at work on the CPU.

    `idle_after`: minutes. Empty outside a job with GPUs. Writes the note.
    """
    if not idle.held_gpus(survey) or isinstance(survey.node, Unknown):
        return (), False
    now, uid, after_s = world.now(), world.uid(), idle_after * 60
    rows = _rows(now)
    job = survey.node.job or ""
    row = remarks.own_job(survey)
    # A job that was queued again has kept its number.
    began = now - (row.elapsed_s or 0) if row is not None else 0.0
    seen = {
        gpu: (times[0] if times[0] >= began else 0.0, times[1] if times[1] >= began else 0.0)
        for (of, gpu), times in rows.items()
        if of == job
    }
    doing = idle.weigh(survey, uid, now, after_s, seen)
    at_work = False
    if any(one.is_idle for one in doing):
        load = read_load(idle.of_job(survey, uid).union(*(idle.family(one.gpu, survey, uid) for one in doing)))
        at_work = load.word(frozenset(load.cores)) == "cpu"
        doing = idle.weigh(survey, uid, now, after_s, seen, load)
    for one in doing:
        busy_at, quiet_at = seen.get(idle.key(one.gpu), (0.0, 0.0))
        if one.word == "busy":
            rows[job, idle.key(one.gpu)] = (now, 0.0)
        elif one.gpu.utilisation is not None:
            rows[job, idle.key(one.gpu)] = (busy_at, quiet_at or now)
    _note(rows)
    return doing, at_work


def read_load(pids: Iterable[int]) -> Load:
    """How much CPU time each of these processes takes while this waits a moment, and who is waiting for a disk."""
    pids = frozenset(pids)
    if not pids:
        return Load({})
    begun = world.monotonic()
    readings = [{pid: _reading(pid) for pid in pids}]
    for _time in range(_READINGS - 1):
        world.pause(_PAUSE_S)
        readings.append({pid: _reading(pid) for pid in pids})
    elapsed = max(world.monotonic() - begun, 0.001)
    cores, on_disk = {}, set()
    for pid in pids:
        first, last = readings[0][pid], readings[-1][pid]
        if first is not None and last is not None and first[0] == last[0]:
            cores[pid] = (last[1] - first[1]) / elapsed
            states = [seen[2] for reading in readings if (seen := reading[pid]) is not None]
            on_disk |= {pid} if states.count("D") >= _ON_DISK else set()
    return Load(cores, frozenset(on_disk))


def _reading(pid: int) -> tuple[int, float, str] | None:
    """Start time, CPU seconds so far, state (proc(5)); None where it has ended."""
    stat = procfs.stat_fields(pid)
    if stat is None:
        return None
    fields = stat[1]
    return int(fields[19]), (int(fields[11]) + int(fields[12])) / procfs.TICKS, fields[0].decode()


def _path() -> str:
    return os.path.join(paths.state_dir(), f"idle.{world.host()}")


def _rows(now: float) -> dict[tuple[str, str], tuple[float, float]]:
    """(job, GPU) to what `idle.weigh` takes as `seen`, of this boot; what is damaged is passed over."""
    try:
        with open(_path(), "rb") as file:
            content = file.read(_CAP)
    except OSError:
        return {}
    found = {}
    for line in content.decode("utf-8", "replace").splitlines():
        words = line.split(" ")
        if len(words) != 5 or words[0] != identity.boot_id():
            continue
        try:
            times = float(words[3]), float(words[4])
        except ValueError:
            continue
        if all(0 <= time <= now + _FUTURE_S for time in times):
            found[words[1], words[2]] = times
    return found


def _note(rows: Mapping[tuple[str, str], tuple[float, float]]) -> None:
    """Writes the newest of them. A disk that is full or read-only costs the note."""
    newest = sorted(rows.items(), key=lambda row: max(row[1]))[-_KEPT:]
    # Whole seconds, never one that is still to come.
    lines = [f"{identity.boot_id()} {job} {gpu} {int(busy)} {int(quiet)}" for (job, gpu), (busy, quiet) in newest]
    try:
        paths.write_whole(_path(), ("\n".join(lines) + "\n").encode("utf-8", "replace"))
    except OSError:
        pass
