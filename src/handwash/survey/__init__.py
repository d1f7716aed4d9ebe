"""Four looks side by side under one deadline: where am I, which jobs are mine, who is on the GPUs, which processes are mine.

A look never judges. Each answer is known, or `Unknown` with the reason.
"""

from __future__ import annotations

import os

from handwash import run, world
from handwash.messages import _
from handwash.model import Process, Site, Survey, Unknown
from handwash.survey import gpus, jobs, node, processes, procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Union


def take(deadline: float, only: tuple[str, ...] = ("gpus", "jobs", "processes", "node")) -> Survey:
    """The survey, after `deadline` seconds at the latest. A look that is not in `only` is not taken, and unknown."""
    looks: dict[str, Callable[[], Any]] = {
        "gpus": _look_at_gpus,
        "jobs": jobs.look,
        "processes": _look_at_processes,
        "node": node.look,
    }
    answers: dict[str, Any] = dict.fromkeys(looks, Unknown(_("It was not asked.")))
    wanted = {name: looks[name] for name in only}
    if "gpus" in wanted and gpus.nothing_here():
        answers["gpus"] = {"gpus": gpus.NOTHING, "holders": []}
        del wanted["gpus"]
    answers.update(run.looks(wanted, deadline))
    queue = _read(answers["jobs"], jobs.read)
    where = _read(answers["node"], lambda seen: node.read(seen, queue))
    devices = _read(answers["gpus"], lambda seen: gpus.read(seen["gpus"]))
    seen = answers["processes"]
    found: Union[tuple[Process, ...], Unknown]
    if isinstance(seen, Unknown):
        found = seen
    else:
        known = {row["pid"] for row in seen["rows"]}
        others = [] if isinstance(devices, Unknown) else [
            row for row in answers["gpus"]["holders"] if row["pid"] not in known
        ]  # fmt: skip
        rows = seen["rows"] + others
        found = processes.read(rows, {} if isinstance(devices, Unknown) else _gpus_by_pid(rows, devices))
    return Survey(
        node=where,
        jobs=queue,
        gpus=devices,
        processes=found,
        site=Site(proctrack=None if isinstance(answers["jobs"], Unknown) else answers["jobs"]["proctrack"]),
        session=world.env.get("HANDWASH_SESSION") or None,
        chain=_chain() + (() if isinstance(seen, Unknown) else tuple(seen["helpers"])),
        running_sessions=() if isinstance(seen, Unknown) else tuple(seen["running_sessions"]),
    )


def _read(answer: Any, reader: Any) -> Any:
    return answer if isinstance(answer, Unknown) else reader(answer)


def _look_at_gpus() -> dict[str, Any]:
    """The driver's word, and who the processes in its lists are; a pid it names may be gone, or of another namespace."""
    seen = gpus.look()
    boot = world.boot_time()
    holders = []
    # In a container the driver's numbers are the host's, and mean somebody else here.
    named = {use[0] for gpu in seen["gpus"] for use in gpu["uses"]} if procfs.is_host_namespace() else set()
    for pid in sorted(named):
        uid = procfs.owner(pid)
        row = None if uid is None else processes.describe(pid, uid, boot)
        if row is not None:
            holders.append(row)
    return {"gpus": seen, "holders": holders}


def _look_at_processes() -> dict[str, Any]:
    from handwash.srun import record

    return {
        "rows": processes.look(),
        "running_sessions": record.running(),
        "helpers": record.helper_pids(),
    }


def _gpus_by_pid(rows: list[dict[str, Any]], devices: tuple[Any, ...]) -> Mapping[int, Mapping[str, Any]]:
    """The GPUs of each process by either look: the driver's lists, and the device files that it holds open.

    In a container only the second counts: there the driver's numbers are not those of this /proc.
    """
    found: dict[int, set[int]] = {}
    for gpu in devices if procfs.is_host_namespace() else ():
        for use in gpu.uses:
            found.setdefault(use.pid, set()).add(gpu.index)
    for row in rows:
        if row["devices"]:
            found.setdefault(row["pid"], set()).update(gpus.indices_of(row["devices"], devices))
    return {pid: {"gpus": tuple(sorted(indices))} for pid, indices in found.items()}


def _chain() -> tuple[int, ...]:
    """handwash itself, and the shell chain that asks: every ancestor up to the first process of the node."""
    return tuple(pid for pid, _name in procfs.ancestors(os.getpid()))
