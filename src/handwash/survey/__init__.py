"""Four looks side by side under one deadline: where am I, which jobs are mine, who is on the GPUs, which processes are mine.

A look never judges. Each answer is known, or `Unknown` with the reason.
"""

from __future__ import annotations

import os

from handwash import run, schedulers, world
from handwash.accelerators import device_files, nvml
from handwash.messages import _
from handwash.model import Gpu, Process, Survey, Unknown, Visibility
from handwash.survey import gpus, jobs, node, processes, procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Union

# What is asked after the other looks may take so long in any case, though they have used the time up.
_LEAST_S = 0.1


def take(deadline: float, only: tuple[str, ...] = ("gpus", "jobs", "processes", "node")) -> Survey:
    """The survey, after `deadline` seconds at the latest. A look that is not in `only` is not taken, and unknown."""
    taken = world.now()
    ends_at = world.monotonic() + deadline
    looks: dict[str, Callable[[], Any]] = {
        "gpus": _look_at_gpus,
        "jobs": jobs.look,
        "processes": _look_at_processes,
        "node": node.look,
    }
    answers: dict[str, Any] = dict.fromkeys(looks, Unknown(_("It was not asked."), "not-asked"))
    wanted = {name: looks[name] for name in only}
    if "gpus" in wanted and gpus.nothing_here():
        answers["gpus"] = {**gpus.NOTHING, "holders": [], "missing": {}}
        del wanted["gpus"]
    answers.update(_by_module(wanted, deadline) if schedulers.is_of_the_site() else run.looks(wanted, deadline))
    queue = _read(answers["jobs"], jobs.read)
    seen = answers["processes"]
    rows = [] if isinstance(seen, Unknown) else seen["rows"]
    named = [row["job"] for row in rows]
    more = _read(
        queue, lambda known: jobs.unlisted(answers["jobs"], known, named, max(_LEAST_S, ends_at - world.monotonic()))
    )
    queue, unlisted = (more, ()) if isinstance(more, Unknown) else (queue, more)
    here = procfs.is_host_namespace()
    known, in_part, visibility, rows = _join(answers["gpus"], rows, here, deadline)
    devices = () if isinstance(known, Unknown) else known
    where = _read(answers["node"], lambda seen: node.read(seen, queue, unlisted, devices))
    found: Union[tuple[Process, ...], Unknown] = seen
    if not isinstance(seen, Unknown):
        found = processes.read(rows, _gpus_by_pid(rows, in_part if isinstance(known, Unknown) else known, here))
    return Survey(
        node=where,
        jobs=queue,
        gpus=known,
        processes=found,
        site=jobs.site(answers["jobs"]),
        session=world.env.get("HANDWASH_SESSION") or None,
        chain=_chain() + (() if isinstance(seen, Unknown) else tuple(seen["helpers"])),
        running_sessions=() if isinstance(seen, Unknown) else tuple(seen["running_sessions"]),
        gpus_in_part=in_part,
        visibility=visibility,
        opened_beside=() if isinstance(seen, Unknown) else tuple(seen["opened_beside"]),
        unlisted=unlisted,
        taken=taken,
    )


def _join(
    seen: Any, rows: list[dict[str, Any]], here: bool, deadline: float
) -> tuple[Union[tuple[Gpu, ...], Unknown], tuple[Gpu, ...], Visibility | None, list[dict[str, Any]]]:
    """The GPUs with both looks joined, known or in part; what programs see of them; all processes that are described."""
    why = seen if isinstance(seen, Unknown) else None
    if isinstance(seen, Unknown):
        if seen.cause == "not-asked":
            return seen, (), None, rows
        if seen.cause == "timed-out" and nvml.library_present():
            why = Unknown(**nvml.silent(deadline))
        elif seen.cause == "crashed" and nvml.library_present():
            why = Unknown(_("The NVIDIA driver's library crashed when it was asked."), "driver-crashed")
        plain: dict[str, Any] = {"gpus": gpus.by_device_file(device_files.present()), "holders": [], "missing": {}}
    else:
        plain = seen
        if plain["why"]:
            why = Unknown(plain["why"], plain["cause"])
    if why is None and not plain["gpus"] and "CUDA_VISIBLE_DEVICES" not in world.env:
        return (), (), None, rows
    from handwash.survey import holders, visible

    own = {row["pid"] for row in rows}
    rows = rows + [row for row in plain["holders"] if row["pid"] not in own]
    joined = holders.join(gpus.read(plain["gpus"]), {row["pid"]: row for row in rows}, plain["missing"], here)
    if why is not None:
        return why, joined, None, rows
    visibility = visible.read(world.env, joined)
    return visible.numbered(joined, visibility, world.env), (), visibility, rows


def _read(answer: Any, reader: Any) -> Any:
    if isinstance(answer, Unknown):
        return answer
    try:
        return reader(answer)
    except run.CouldNotTell as reason:
        return Unknown(str(reason))


def _by_module(wanted: Mapping[str, Callable[[], Any]], deadline: float) -> dict[str, Any]:
    """The looks' answers where the scheduler is the site's own: its module is imported once for all that it is asked itself."""
    from handwash.survey import of_the_site

    asked = {name: look for name, look in wanted.items() if name in ("jobs", "node")}
    rest = {name: look for name, look in wanted.items() if name not in asked}
    if not asked:
        return run.looks(rest, deadline)
    answers = run.looks({**rest, "module": lambda: of_the_site.look(asked)}, deadline)
    return {**answers, **of_the_site.read(answers.pop("module"), asked, deadline)}


def _look_at_gpus() -> dict[str, Any]:
    """The driver's word, and who the processes in its lists are."""
    seen = gpus.look()
    described, missing = gpus.named_in(seen["gpus"])
    return {**seen, "holders": described, "missing": missing}


def _look_at_processes() -> dict[str, Any]:
    from handwash import opened
    from handwash.srun import record

    rows = processes.look()
    return {
        "rows": rows,
        "opened_beside": opened.look(),
        # Without a record (a full disk, another state folder) a session is known by its supervisor.
        "running_sessions": sorted({*record.running(), *processes.watched_sessions(rows)}),
        "helpers": record.helper_pids(),
    }


def _gpus_by_pid(rows: list[dict[str, Any]], devices: tuple[Gpu, ...], here: bool) -> Mapping[int, Mapping[str, Any]]:
    """The GPUs of each process by either look: the driver's lists, and the device files that it holds open.

    In a container (not `here`) only the second counts: there the driver's numbers are not those of this /proc.
    """
    found: dict[int, set[int]] = {}
    for gpu in devices if here else ():
        for use in gpu.uses:
            found.setdefault(use.pid, set()).add(gpu.index)
    for row in rows:
        if row["devices"]:
            found.setdefault(row["pid"], set()).update(gpus.indices_of(row["devices"], devices))
    return {pid: {"gpus": tuple(sorted(indices))} for pid, indices in found.items()}


def _chain() -> tuple[int, ...]:
    """handwash itself, and the shell chain that asks: every ancestor up to the first process of the node."""
    return tuple(pid for pid, _name in procfs.ancestors(os.getpid()))
