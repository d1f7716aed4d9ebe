"""Where am I: the evidence, gathered in a look, and the reading of it together with the queue's answer."""

from __future__ import annotations

import os

from handwash import schedulers, world
from handwash.messages import _
from handwash.model import Gpu, Job, Node, Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Union

_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv", "/.singularity.d", "/singularity")
_CONTAINER_VARIABLES = ("APPTAINER_NAME", "APPTAINER_CONTAINER", "SINGULARITY_NAME", "SINGULARITY_CONTAINER")
_CONTAINER_CGROUPS = ("docker", "containerd", "kubepods", "libpod", "crio-", "lxc/", "lxc.payload")


def look() -> dict[str, Any]:
    """The evidence, as plain data. Reads files and the environment; Slurm's and PBS's start no program."""
    return {
        "host": world.host(),
        "container": _container_sign(),
        "scheduler": schedulers.here().evidence(),
    }


def read(
    seen: dict[str, Any],
    jobs: Union[tuple[Job, ...], Unknown],
    unlisted: tuple[str, ...] = (),
    gpus: tuple[Gpu, ...] = (),
) -> Node:
    """The node's kind with the evidence for it. `jobs` and `unlisted` tell a living job from one that a stale variable names.

    `gpus`: those of this node, by which the scheduler's own names for them are read. Raises CouldNotTell.
    """
    living = None if isinstance(jobs, Unknown) else frozenset((*(row.number for row in jobs), *unlisted))
    place = schedulers.here().place(seen["scheduler"], living)
    why = list(place.why)
    if seen["container"]:
        why.insert(0, _("{sign} shows a container.").format(sign=seen["container"]))
    if not place.kind:
        why.append(_("No batch scheduler was found here."))
    return Node(
        kind=place.kind or "workstation",
        host=place.host or seen["host"],
        job=place.job,
        container=bool(seen["container"]),
        why=tuple(why),
        gpus=place.gpus or tuple(gpu.node_index for gpu in gpus if gpu.uuid in place.uuids),
        held=_held(place.job, jobs),
        controller=place.controller,
    )


def _held(job: str | None, jobs: Union[tuple[Job, ...], Unknown]) -> int | None:
    """How many GPUs a job holds, those of all components of a heterogeneous one (`7+0`, `7+1`); None where not all tell."""
    rows = () if isinstance(jobs, Unknown) or job is None else jobs
    counts = [row.gpus for row in rows if row.number == job or row.id.startswith(f"{job}+")]
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None


def _container_sign() -> str | None:
    for path in _CONTAINER_FILES:
        if os.path.exists(path):
            return path
    for variable in _CONTAINER_VARIABLES:
        if world.env.get(variable):
            return variable
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    return next((sign for sign in _CONTAINER_CGROUPS if sign in text), None)
