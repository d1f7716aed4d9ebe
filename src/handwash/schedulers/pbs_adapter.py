"""PBS, as the rest of handwash asks for it: which jobs, where is this shell, whose is a process, cancel this job."""

from __future__ import annotations

import os

from handwash import run, world
from handwash.messages import _
from handwash.model import Job, Site
from handwash.schedulers import pbs, pbs_job, pbs_node
from handwash.schedulers.base import Leaving, Partition, Place, Scheduler
from handwash.schedulers.slurm_step import GONE, UNKNOWN
from handwash.survey import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from handwash.model import Node
    from handwash.usage import Records

_CONFIG_CAP = 256 * 1024
# MOM gives a job `kill_delay`, 10 s by default, between TERM and KILL; it was gone after 11 s, once after 21 (23.06).
_PATIENCE_S = 30.0
_PAUSE_S = 1.0
_ASK_TIMEOUT_S = 6.0
# For two weeks of somebody who submits arrays of thousands; a job takes 2 KB, or what `qsub -V` makes of it.
_RECORDS_CAP = 64 * 1024 * 1024


class Pbs(Scheduler):
    name = "PBS"
    variables = tuple(name.encode() for name in pbs_node.VARIABLES)
    waits_for_terminal = True
    recorder = "qstat"
    divided_by = "queue"
    # Chosen by their owner, and subjobs by their state: not one that is ending, not a job that somebody else has submitted
    # for this person (qsub(1B), -u), not one of another server.
    lists_all = False

    def ask(self) -> dict[str, Any]:
        """Qstat's answers as they came, and whether this shell is in a control group of PBS's."""
        tracking = "session" if pbs_node.job_in_cgroup(_text(procfs.groups("self"))) is None else "cgroup"
        return {"tracking": tracking, **_queue(60)}

    def jobs(self, said: dict[str, Any]) -> tuple[Job, ...]:
        user, asked = said["user"], said["asked"]
        found = pbs.parse_jobs(run.Result(*said["jobs"]), user, asked)
        if said["subjobs"] is None:
            return found.jobs
        return pbs.with_subjobs(found, pbs.parse_jobs(run.Result(*said["subjobs"]), user, asked))

    def not_over(self, jobs: Sequence[str]) -> tuple[str, ...]:
        """Raises CouldNotTell, OSError."""
        answers = {job: pbs_job.parse_state(run_command(pbs_job.state_argv(job), 60), job) for job in jobs}
        for job, answer in answers.items():
            if answer.word == UNKNOWN:
                sentence = _("Could not tell whether job {job} is over: {said}")
                raise run.CouldNotTell(sentence.format(job=job, said=answer.detail))
        return tuple(job for job, answer in answers.items() if answer.word != GONE)

    def site(self, said: dict[str, Any]) -> Site:
        tracking = None if said is None else said["tracking"]
        return Site(tracking, ("qsub",), waits_for_terminal=True, marks_all=False)

    def evidence(self) -> dict[str, Any]:
        """Reads /proc, the environment and pbs.conf; starts no program."""
        config = settings()
        ancestors = procfs.ancestors(os.getpid())
        return {
            "host": world.host(),
            "env_job": pbs_node.job_in_environment(world.env),
            "cgroup_job": pbs_node.job_in_cgroup(_text(procfs.groups("self"))),
            "ancestors": [name for _pid, name in ancestors],
            "gpus": _given_gpus(ancestors),
            "config": None if config is None else pbs_node.config_path(world.env),
            "mom": config is not None and config.mom,
            "server": None if config is None else config.is_server,
        }

    def place(self, seen: dict[str, Any], living: frozenset[str] | None) -> Place:
        why: list[str] = []
        job = seen["env_job"]
        kind = ""
        if seen["cgroup_job"]:
            kind, job = "compute", seen["cgroup_job"]
            why.append(_("This shell is in the control group of job {job}.").format(job=job))
        elif job and "pbs_mom" in seen["ancestors"]:
            kind = "compute"
            why.append(_("This shell was started by PBS's node daemon for job {job}.").format(job=job))
        elif job and living is not None and job not in living:
            why.append(_("PBS_JOBID={job} is stale: that job is no longer in the queue.").format(job=job))
            job = None
        elif job:
            kind = "compute"
            why.append(_("PBS_JOBID={job} and PBS_ENVIRONMENT are set.").format(job=job))
        if not kind:
            kind = _kind_without_job(seen, why)
        # Without the cgroup hook the variable can be anybody's: qsub -V hands on that of the shell it is typed in.
        uuids = tuple(seen["gpus"].split(",")) if seen["cgroup_job"] else ()
        return Place(kind, job, tuple(why), controller=seen["server"], uuids=uuids)

    def membership(
        self, groups: bytes | None, variables: Mapping[str, str]
    ) -> tuple[str | None, str | None, str | None]:
        job = pbs_node.job_in_cgroup(_text(groups))
        if job is not None:
            return job, None, "cgroup"
        job = pbs_node.job_in_environment(variables)
        return job, None, None if job is None else "environment"

    def records(self, begin: float, timeout: float) -> Records:
        from handwash.frozen import replace
        from handwash.schedulers import pbs_accounting, pbs_limits

        _check_command()
        user, asked = _user(), world.now()
        result = run_command(pbs_accounting.history_argv(user), timeout, _RECORDS_CAP)
        found = pbs_accounting.parse_history(result, user, asked, begin)
        try:
            kept = pbs_accounting.parse_kept(run_command(pbs_limits.server_argv(), _ASK_TIMEOUT_S))
            missing = pbs_accounting.forgotten(kept, begin, asked)
        except run.CouldNotTell as reason:
            missing = (str(reason),)
        return replace(found, doubts=(*found.doubts, *missing))

    def records_name(self) -> str:
        return _("PBS's job history")

    def shown(self, now: float, timeout: float) -> Records:
        from handwash.schedulers import pbs_accounting
        from handwash.usage import Records

        said = _queue(timeout)
        answers = (run.Result(*said[name]) for name in ("jobs", "subjobs") if said[name] is not None)
        parts = [pbs_accounting.parse_history(answer, said["user"], said["asked"]) for answer in answers]
        # A job begun between the two is in both.
        runs = {one.id: one for part in parts for one in part.runs}
        return Records(tuple(runs.values()), "qstat", tuple(doubt for part in parts for doubt in part.doubts))

    def cancel(self, job: str) -> bool | None:
        word = pbs_job.parse_cancel(_ask(pbs_job.cancel_argv(job)), job).word
        limit = world.monotonic() + _PATIENCE_S
        while True:
            answer = pbs_job.parse_state(_ask(pbs_job.state_argv(job)), job)
            if answer.word == GONE:
                return True
            # What has not been asked for does not come by waiting.
            if word in (pbs_job.REFUSED, UNKNOWN) or world.monotonic() >= limit:
                return None if answer.word == UNKNOWN else False
            world.pause(_PAUSE_S)

    def cancel_line(self, job: str) -> str:
        return f"qdel {_quoted(job)}"

    def queue_line(self, job: str) -> str:
        return f"qstat -f {_quoted(job)}"

    def shell_line(self) -> str:
        from handwash.schedulers import pbs_vnodes

        return pbs_vnodes.qsub_line()

    def ask_gpus(self) -> tuple[Any, ...] | None:
        from handwash.schedulers import pbs_vnodes

        argv = pbs_vnodes.vnodes_argv()
        return None if command(argv[0]) is None else _plain(run_command(argv, 60))

    def partitions(self, said: tuple[Any, ...]) -> tuple[Partition, ...] | None:
        from handwash.schedulers import pbs_vnodes

        return pbs_vnodes.parse_gpus(run.Result(*said))

    def partition_line(self, partition: Partition) -> str:
        from handwash.schedulers import pbs_vnodes

        return pbs_vnodes.qsub_line(partition)

    def other_node_line(self) -> str:
        # There is no way to ask for any node but one.
        return _("pbsnodes -aSj shows them; then: qsub -I -l select=1:ncpus=4:ngpus=1:host=NODE -l walltime=01:00:00")

    def whole_gpu_line(self) -> str:
        return f"{self.shell_line()} -l place=excl"

    def server_line(self) -> str:
        return "qstat -B"

    def leaving(self, site: Site, node: Node | None) -> Leaving | None:
        """Measured on 23.06 and the head of 2026, with the cgroup hook and without.

        Whether it is here only a job shows; a container can hide it.
        """
        if site.proctrack is None:
            return None
        if node is None or node.job is None or (node.container and site.proctrack != "cgroup"):
            what = _(
                "When you leave an interactive job's shell, PBS ends what is in the shell's session; where the site has no "
                "cgroup hook, what has a session of its own (setsid, a daemon) goes on. A program that still holds the "
                "terminal, a plain `sleep 1000 &` too, keeps the whole job and its GPUs allocated."
            )
            said = _("Whether the site has the cgroup hook does not show here.")
        elif site.proctrack == "cgroup":
            what = _(
                "When you leave this job's shell, PBS ends all that still runs in the job; but a program that still holds the "
                "terminal, a plain `sleep 1000 &` too, keeps the whole job and its GPUs allocated."
            )
            said = _("This shell is in a control group of PBS's, so the site has the cgroup hook.")
        else:
            what = _(
                "When you leave this job's shell, PBS ends what is in the shell's session; what has a session of its own "
                "(setsid, a daemon) goes on. A program that still holds the terminal, a plain `sleep 1000 &` too, keeps the "
                "whole job and its GPUs allocated."
            )
            said = _("This shell is in no control group of PBS's, so the site has no cgroup hook.")
        remedy = _("Before you leave: handwash clean. A run that is to go on belongs into a batch job: qsub SCRIPT")
        return Leaving(what, said, remedy)


def settings() -> pbs_node.Config | None:
    """The pbs.conf in force; None where there is none that can be read."""
    try:
        with open(pbs_node.config_path(world.env), encoding="utf-8", errors="replace") as file:
            return pbs_node.parse_config(file.read(_CONFIG_CAP))
    except OSError:
        return None


def command(name: str) -> str | None:
    """The path of one of PBS's commands: in a job the PATH is set anew, and they may not be on it."""
    found = run.find(name)
    config = None if found is not None else settings()
    return found if config is None else world.on_path(name, config.commands)


def _check_command() -> None:
    """Raises CouldNotTell where there is no qstat."""
    if command("qstat") is None:
        raise run.CouldNotTell(_("qstat is not on the PATH, though this is a PBS cluster. Try `module load pbs`."))


def _user() -> str:
    """Raises CouldNotTell where the directory does not know this user, or does not answer."""
    name = world.user_name(world.uid())
    if name == str(world.uid()):
        raise run.CouldNotTell(_("qstat asks by name, and user {uid} has none here.").format(uid=name))
    return name


def _queue(timeout: float) -> dict[str, Any]:
    """Qstat's answers about the person's jobs as they came, whose they are, and when it was asked. `timeout`: seconds each."""
    _check_command()
    user = _user()
    asked = world.now()
    result = run_command(pbs.jobs_argv(user), timeout)
    try:
        begun = pbs.parse_jobs(result, user, asked).begun
    except run.CouldNotTell:
        begun = False  # its reader says so again, where the sentence reaches somebody
    subjobs = run_command(pbs.subjobs_argv(user), timeout) if begun else None
    return {"user": user, "asked": asked, "jobs": _plain(result), "subjobs": _plain(subjobs)}


def run_command(argv: Sequence[str], timeout: float, cap: int = run.OUTPUT_CAP) -> run.Result:
    """One of PBS's commands, wherever it is, to its end or `timeout` (seconds). Raises OSError."""
    words = [command(argv[0]) or argv[0], *argv[1:]]
    return run.run(words, timeout, run.clean_environment(pbs.ENVIRONMENT), cap)


def _given_gpus(ancestors: Sequence[tuple[int, str]]) -> str:
    """CUDA_VISIBLE_DEVICES as MOM set it, in the environment of what it started above this process; "" where it is not seen.

    The person may have changed it since. The cgroup hook names GPUs by uuid (pbs_cgroups.PY, setup_job_devices_env).
    """
    for (pid, _name), (_parent, above) in zip(ancestors, ancestors[1:]):
        if above == "pbs_mom":
            return procfs.environment(pid, (b"CUDA_VISIBLE_DEVICES",)).get("CUDA_VISIBLE_DEVICES", "")
    return ""


def _ask(argv: Sequence[str]) -> run.Result:
    """A command that is missing is one that failed."""
    try:
        return run_command(argv, _ASK_TIMEOUT_S)
    except OSError as error:
        return run.Result(127, b"", f"{argv[0]}: {error.strerror}".encode(), False)


def _plain(result: run.Result | None) -> tuple[Any, ...] | None:
    return None if result is None else (result.code, result.out, result.err, result.timed_out, result.capped)


def _text(groups: bytes | None) -> str:
    return (groups or b"").decode("utf-8", "replace")


def _quoted(job: str) -> str:
    """A subjob's id has brackets, which are a pattern to every shell, and an error to zsh and csh."""
    return f"'{job}'" if "[" in job else job


def _kind_without_job(seen: dict[str, Any], why: list[str]) -> str:
    if seen["mom"]:
        sentence = _("{path} has PBS_START_MOM=1, so this host runs jobs; this shell is not inside a job of yours.")
        why.append(sentence.format(path=seen["config"]))
        return "compute"
    if seen["config"]:
        why.append(_("PBS is here, and by {path} this host runs no jobs.").format(path=seen["config"]))
        return "login"
    return ""
