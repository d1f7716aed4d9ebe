"""Slurm, as the rest of handwash asks for it: which jobs, where is this shell, whose is a process, cancel this job."""

from __future__ import annotations

import os

from handwash import run, siteinfo, slurm_names, world
from handwash.messages import _
from handwash.model import Job, Site
from handwash.schedulers import slurm
from handwash.schedulers.base import Leaving, Partition, Place, Scheduler
from handwash.survey import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from handwash.model import Node
    from handwash.schedulers.slurm_launchers import Step
    from handwash.usage import Records

_SLURMD_SIGNS = (
    "/run/slurmd.pid",
    "/run/slurm/slurmd.pid",
    "/run/slurmd/slurmd.pid",
    "/sys/fs/cgroup/system.slice/slurmd.service",
    "/sys/fs/cgroup/systemd/system.slice/slurmd.service",
)
# For the records of a month of somebody who submits arrays of thousands; a job takes some 300 bytes.
_RECORDS_CAP = 64 * 1024 * 1024
_CONFIG_TIMEOUT_S = 3.0


class Slurm(Scheduler):
    name = "Slurm"
    variables = (b"SLURM_JOB_ID", b"SLURM_STEP_ID", b"SLURMD_NODENAME")
    reaches_nodes = True
    recorder = "sacct"
    launcher = "srun"

    def ask(self) -> dict[str, Any]:
        """Squeue's answer as it came, and the process tracking. No scheduler at all is an answer: no jobs."""
        argv = slurm.squeue_argv(world.uid())
        if run.find(argv[0]) is None:
            if siteinfo.config_file() is not None or world.env.get("SLURM_JOB_ID"):
                raise run.CouldNotTell(
                    _("squeue is not on the PATH, though this is a Slurm cluster. Try `module load slurm`.")
                )
            return {"result": None, "proctrack": None}
        # The deadline of the look ends this request too; its own limit is only a backstop.
        result = run.run(argv, timeout=60)
        answer = (result.code, result.out, result.err, result.timed_out, result.capped)
        return {"result": answer, "proctrack": _proctrack() if result.code == 0 and not result.err else None}

    def jobs(self, said: dict[str, Any]) -> tuple[Job, ...]:
        return () if said["result"] is None else slurm.parse_squeue(run.Result(*said["result"]))

    def site(self, said: dict[str, Any]) -> Site:
        return Site(None if said is None else said["proctrack"], ("srun", "salloc"))

    def evidence(self) -> dict[str, Any]:
        """Reads /proc, the environment and slurm.conf; starts no program."""
        env = world.env
        cgroup_job, cgroup_step = slurm.job_in_groups(procfs.groups("self"))
        return {
            "host": world.host(),
            "env_job": env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID"),
            "env_node": env.get("SLURMD_NODENAME"),
            # The node's own numbers, where CUDA_VISIBLE_DEVICES can be relative to what the cgroup shows (srun(1)).
            "env_gpus": env.get("SLURM_STEP_GPUS") or env.get("SLURM_JOB_GPUS"),
            "cgroup_job": cgroup_job,
            "cgroup_step": cgroup_step,
            "ancestors": [name for _pid, name in procfs.ancestors(os.getpid())],
            "client": run.find("squeue") is not None,
            **_in_config(),
            "slurmd": next((path for path in _SLURMD_SIGNS if os.path.exists(path)), None),
        }

    def place(self, seen: dict[str, Any], living: frozenset[str] | None) -> Place:
        why: list[str] = []
        job = seen["env_job"]
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
            why.append(
                _("SLURM_JOB_ID={job} and SLURMD_NODENAME={node} are set.").format(job=job, node=seen["env_node"])
            )
        elif job:
            kind = "allocation-shell"
            why.append(
                _(
                    "SLURM_JOB_ID={job} is set, but SLURMD_NODENAME is not: job {job} is yours, its GPUs are elsewhere."
                ).format(job=job)
            )
        if kind is None:
            return Place(_kind_without_job(seen, why), None, tuple(why), controller=seen["controller"])
        if kind != "compute":
            return Place(kind, job, tuple(why), controller=seen["controller"])
        numbers = (seen["env_gpus"] or "").split(",")
        held = tuple(int(number) for number in numbers if number.isascii() and number.isdigit())
        return Place(kind, job, tuple(why), seen["env_node"] or "", held, seen["controller"])

    def membership(
        self, groups: bytes | None, variables: Mapping[str, str]
    ) -> tuple[str | None, str | None, str | None]:
        job, step = slurm.job_in_groups(groups)
        if job is not None:
            return job, step, "cgroup"
        if not variables.get("SLURM_JOB_ID"):
            return None, None, None
        # Slurm names the node in every task and batch script; without it, it was started in a shell that salloc gave.
        if "SLURMD_NODENAME" not in variables:
            return variables["SLURM_JOB_ID"], None, "allocation"
        return variables["SLURM_JOB_ID"], variables.get("SLURM_STEP_ID"), "environment"

    def records(self, begin: float, timeout: float) -> Records:
        from handwash.schedulers import slurm_accounting
        from handwash.usage import Records

        delimiter = f"\x1f{os.urandom(6).hex()}\x1f"
        runs = slurm_accounting.parse_sacct(
            _past(slurm_accounting.sacct_argv(world.uid(), begin, delimiter), timeout), delimiter
        )
        if runs and all(one.gpus == 0 for one in runs):
            _check_recorded()
        return Records(runs, "sacct")

    def records_name(self) -> str:
        return _("Slurm's accounting")

    def shown(self, now: float, timeout: float) -> Records:
        from handwash.schedulers import slurm_accounting
        from handwash.usage import Records

        result = _past(slurm_accounting.queue_argv(world.uid()), timeout)
        return Records(slurm_accounting.parse_queue(result, now), "squeue")

    def cancel(self, job: str) -> bool | None:
        return cancel(job)

    def cancel_line(self, job: str) -> str:
        return f"{slurm_names.name('scancel')} {job}"

    def queue_line(self, job: str) -> str:
        return f"{slurm_names.name('squeue')} -j {job}"

    def shell_line(self) -> str:
        return _("sinfo -o '%P %G %t' shows the partitions with GPUs; then: srun --gres=gpu:1 --pty bash")

    def ask_gpus(self) -> tuple[Any, ...] | None:
        from handwash.schedulers import slurm_partitions

        if run.find("sinfo") is None:
            return None
        result = run.run(slurm_partitions.sinfo_argv(), timeout=60)
        return result.code, result.out, result.err, result.timed_out

    def partitions(self, said: tuple[Any, ...]) -> tuple[Partition, ...]:
        from handwash.schedulers import slurm_partitions

        return slurm_partitions.parse_sinfo(run.Result(*said))

    def partition_line(self, partition: Partition) -> str:
        from handwash.schedulers import slurm_partitions

        return slurm_partitions.srun_line(partition)

    def other_node_line(self) -> str:
        return slurm_names.here("srun --exclude=$(hostname -s) …")

    def whole_gpu_line(self) -> str:
        return slurm_names.here("srun --gres=gpu:1 --exclusive …")

    def server_line(self) -> str:
        return slurm_names.here("scontrol ping")

    def clock(self) -> float | None:
        """To a second; scontrol answers in the controller's local time, so the time zone has to be the same."""
        from datetime import datetime

        from handwash.schedulers import slurm_partitions

        if run.find("scontrol") is None:
            return None
        result = run.run(slurm.scontrol_config_argv(), timeout=60)
        now = world.now()
        stamp = slurm_partitions.parse_clock(result)
        if stamp is None:
            return None
        try:
            ahead = datetime.fromisoformat(stamp).timestamp() - now
        except ValueError:
            return None
        return 0.0 if abs(ahead) < 2 else ahead

    def clock_line(self) -> str:
        return slurm_names.here("date; scontrol show config | head -1")

    def leaving(self, site: Site, node: Node | None) -> Leaving | None:
        """Measured on 22.05 and 24.11."""
        kind = site.proctrack
        if kind is None:
            return None
        what = {
            "cgroup": _("When you leave a job's shell, Slurm ends all that still runs in it, a training run too."),
            "linuxproc": _(
                "When you leave a job's shell, what still runs in it goes on, and the job is billed meanwhile."
            ),
            "pgid": _("When you leave a job's shell, what has left its process group goes on, unbilled, on the GPU."),
        }.get(kind, _("What leaving a job's shell does to what still runs in it is not known for this site."))
        remedy = _(
            "safe-srun in place of srun ends it all and confirms it; a run that is to go on belongs into sbatch."
        )
        return Leaving(what, f"ProctrackType=proctrack/{kind}", remedy)


def steps(job: str, timeout: float) -> tuple[Step, ...]:
    """The steps of a job that run, each with the srun that waits for it. `timeout`: seconds. Raises CouldNotTell."""
    from handwash.schedulers import slurm_launchers

    try:
        return slurm_launchers.parse_steps(run.run(slurm_launchers.steps_argv(job), timeout), job)
    except OSError as error:
        sentence = _("The steps of job {job} could not be told: {said}")
        raise run.CouldNotTell(
            sentence.format(job=job, said=f"{slurm_names.name('scontrol')}: {error.strerror}")
        ) from None


def cancel(job: str, step: str = "") -> bool | None:
    """`scancel JOB`, or `scancel JOB.STEP`, and whether it has left the queue then; None where that could not be told."""
    from handwash.schedulers import slurm_step
    from handwash.srun import confirm

    target = slurm_step.Target((job,), step, own=not step)
    confirm.ask(slurm_step.cancel_argv(target, whole_job=not step))
    word = confirm.confirm(target, urgent=False).answer.word
    return {slurm_step.GONE: True, slurm_step.THERE: False}.get(word)


def _past(argv: list[str], timeout: float) -> run.Result:
    """sacct's or squeue's answer about the past, in UTC."""
    from handwash.schedulers import slurm_accounting

    if run.find("sacct") is None and run.find("squeue") is None and siteinfo.config_file() is None:
        raise run.CouldNotTell(
            _("Neither sacct nor squeue is here: there is no scheduler whose records could be read.")
        )
    if run.find(argv[0]) is None:
        sentence = _("{program} is not on the PATH. Try `module load slurm`.")
        raise run.CouldNotTell(sentence.format(program=slurm_names.name(argv[0])))
    return run.run(argv, timeout, run.clean_environment(slurm_accounting.ENVIRONMENT), cap=_RECORDS_CAP)


def _check_recorded() -> None:
    """No job with a GPU on record: either there was none, or this site does not put GPUs on record. Raises CouldNotTell."""
    from handwash.schedulers import slurm_accounting

    try:
        recorded = slurm_accounting.parse_recorded(run.run(slurm.scontrol_config_argv(), _CONFIG_TIMEOUT_S))
    except OSError:
        recorded = None
    if recorded is None:
        raise run.CouldNotTell(
            _("The accounting has no job with a GPU, and whether it records GPUs at all could not be told.")
        )
    if not recorded:
        raise run.CouldNotTell(
            _("This site's accounting does not record GPUs (AccountingStorageTRES is without gres/gpu).")
        )


def _proctrack() -> str | None:
    """The site's process tracking, from the person's state folder or, at most once a day, from the controller."""
    # The controller has just answered squeue; if it is slow now, the jobs must not wait for this.
    known = siteinfo.ask(timeout=1)
    return known["ProctrackType"].rpartition("/")[2] or None if known else None


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
    return ""


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
