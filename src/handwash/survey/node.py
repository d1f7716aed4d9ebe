"""Where am I: the evidence, gathered in a look, and the reading of it together with the queue's answer."""

from __future__ import annotations

import os

from handwash import run, siteinfo, world
from handwash.messages import _
from handwash.model import Job, Node, Unknown
from handwash.schedulers import slurm
from handwash.survey import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Union

_SLURMD_SIGNS = (
    "/run/slurmd.pid",
    "/run/slurm/slurmd.pid",
    "/run/slurmd/slurmd.pid",
    "/sys/fs/cgroup/system.slice/slurmd.service",
    "/sys/fs/cgroup/systemd/system.slice/slurmd.service",
)
_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv", "/.singularity.d", "/singularity")
_CONTAINER_VARIABLES = ("APPTAINER_NAME", "APPTAINER_CONTAINER", "SINGULARITY_NAME", "SINGULARITY_CONTAINER")
_CONTAINER_CGROUPS = ("docker", "containerd", "kubepods", "libpod", "crio-", "lxc/", "lxc.payload")


def look() -> dict[str, Any]:
    """The evidence, as plain data. Reads /proc, the environment and slurm.conf; starts no program."""
    env = world.env
    cgroup_job, cgroup_step = procfs.slurm_cgroup("self")
    return {
        "host": world.host(),
        "env_job": env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID"),
        "env_node": env.get("SLURMD_NODENAME"),
        # The node's own numbers, where CUDA_VISIBLE_DEVICES can be relative to what the cgroup shows (srun(1)).
        "env_gpus": env.get("SLURM_STEP_GPUS") or env.get("SLURM_JOB_GPUS"),
        "cgroup_job": cgroup_job,
        "cgroup_step": cgroup_step,
        "ancestors": [name for _pid, name in procfs.ancestors(os.getpid())],
        "container": _container_sign(),
        "client": run.find("squeue") is not None,
        **_in_config(),
        "slurmd": next((path for path in _SLURMD_SIGNS if os.path.exists(path)), None),
    }


def read(seen: dict[str, Any], jobs: Union[tuple[Job, ...], Unknown]) -> Node:
    """The node's kind with the evidence for it. `jobs` tells a living job from one that a stale variable names."""
    why: list[str] = []
    job = seen["env_job"]
    living = None if isinstance(jobs, Unknown) else {row.number for row in jobs}
    container = seen["container"]
    if container:
        why.append(_("{sign} shows a container.").format(sign=container))
    kind = None
    if seen["cgroup_job"]:
        kind, job = "compute", seen["cgroup_job"]
        why.append(_("This shell is in the control group of job {job}.").format(job=job))
    elif job and "slurmstepd" in seen["ancestors"]:
        kind = "compute"
        why.append(_("This shell was started by Slurm's step daemon for job {job}.").format(job=job))
    elif job and living is not None and job not in living:
        why.append(_("SLURM_JOB_ID={job} is stale: that job is no longer in the queue.").format(job=job))
        job = None
    elif job and seen["env_node"]:
        kind = "compute"
        why.append(_("SLURM_JOB_ID={job} and SLURMD_NODENAME={node} are set.").format(job=job, node=seen["env_node"]))
    elif job:
        kind = "allocation-shell"
        why.append(
            _(
                "SLURM_JOB_ID={job} is set, but SLURMD_NODENAME is not: job {job} is yours, its GPUs are elsewhere."
            ).format(job=job)
        )
    if kind is None:
        job = None
        kind = _kind_without_job(seen, why)
    more = {"held": _held(job, jobs), "controller": seen["controller"]}
    if kind != "compute" or job is None:
        return Node(kind, seen["host"], job, bool(container), tuple(why), **more)
    numbers = (seen["env_gpus"] or "").split(",")
    held = tuple(int(number) for number in numbers if number.isascii() and number.isdigit())
    return Node(kind, seen["env_node"] or seen["host"], job, bool(container), tuple(why), held, **more)


def _held(job: str | None, jobs: Union[tuple[Job, ...], Unknown]) -> int | None:
    """How many GPUs a job holds, those of all components of a heterogeneous one (`7+0`, `7+1`); None where not all tell."""
    rows = () if isinstance(jobs, Unknown) or job is None else jobs
    counts = [row.gpus for row in rows if row.number == job or row.id.startswith(f"{job}+")]
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None


def _kind_without_job(seen: dict[str, Any], why: list[str]) -> str:
    if seen["configured"]:
        why.append(
            _("{host} is a compute node in slurm.conf; this shell is not inside a job of yours.").format(
                host=seen["host"]
            )
        )
        return "compute"
    if seen["slurmd"]:  # a dynamic node (slurmd -Z, from 22.05) is in no slurm.conf
        why.append(
            _("Slurm's node daemon runs here ({sign}); this shell is not inside a job of yours.").format(
                sign=seen["slurmd"]
            )
        )
        return "compute"
    if seen["client"] or seen["configured"] is False:
        why.append(
            _("Slurm's commands are here, and {host} is not one of its compute nodes.").format(host=seen["host"])
        )
        return "login"
    why.append(_("No batch scheduler was found here."))
    return "workstation"


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


def _in_config() -> dict[str, bool | None]:
    """Whether slurm.conf names this host as a compute node, and as the controller's; None where it tells nothing."""
    path = siteinfo.config_file()
    if path is None:
        return {"configured": None, "controller": None}
    text = _with_includes(path, depth=4)
    here = {world.host(), os.uname().nodename}
    names = {"configured": slurm.nodes_in_config(text), "controller": slurm.controllers_in_config(text)}
    return {key: bool(here & set(found)) if found else None for key, found in names.items()}


def _with_includes(path: str, depth: int) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(4 * 1024 * 1024)
    except OSError:
        return ""
    parts = [text]
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[0].lower() == "include" and depth:
            parts.append(_with_includes(os.path.join(os.path.dirname(path), words[1]), depth - 1))
    return "\n".join(parts)
