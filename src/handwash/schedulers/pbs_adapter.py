"""PBS, as the rest of handwash asks for it: which jobs, where is this shell, whose is a process, cancel this job."""

from __future__ import annotations

import os

from handwash import run, world
from handwash.messages import _
from handwash.model import Job, Site
from handwash.schedulers import pbs, pbs_job, pbs_node
from handwash.schedulers.base import Place, Scheduler
from handwash.schedulers.slurm_step import GONE, UNKNOWN
from handwash.survey import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_CONFIG_CAP = 256 * 1024
# MOM gives a job `kill_delay`, 10 s by default, between TERM and KILL; it was gone after 11 s, once after 21 (23.06).
_PATIENCE_S = 30.0
_PAUSE_S = 1.0
_ASK_TIMEOUT_S = 6.0


class Pbs(Scheduler):
    name = "PBS"
    variables = tuple(name.encode() for name in pbs_node.VARIABLES)
    waits_for_terminal = True
    # Chosen by their owner, and subjobs by their state: not one that is ending, not a job that somebody else has submitted
    # for this person (qsub(1B), -u), not one of another server.
    lists_all = False

    def ask(self) -> dict[str, Any]:
        """Qstat's answers as they came, and whether this shell is in a control group of PBS's."""
        tracking = "session" if pbs_node.job_in_cgroup(_text(procfs.groups("self"))) is None else "cgroup"
        if command("qstat") is None:
            raise run.CouldNotTell(_("qstat is not on the PATH, though this is a PBS cluster. Try `module load pbs`."))
        user = world.user_name(world.uid())
        if user == str(world.uid()):  # the directory does not know, or does not answer
            raise run.CouldNotTell(_("qstat asks by name, and user {uid} has none here.").format(uid=user))
        asked = world.now()
        result = _run(pbs.jobs_argv(user), 60)
        try:
            begun = pbs.parse_jobs(result, user, asked).begun
        except run.CouldNotTell:
            begun = False  # its reader says so again, where the sentence reaches somebody
        subjobs = _run(pbs.subjobs_argv(user), 60) if begun else None
        return {"user": user, "asked": asked, "tracking": tracking, "jobs": _plain(result), "subjobs": _plain(subjobs)}

    def jobs(self, said: dict[str, Any]) -> tuple[Job, ...]:
        user, asked = said["user"], said["asked"]
        found = pbs.parse_jobs(run.Result(*said["jobs"]), user, asked)
        if said["subjobs"] is None:
            return found.jobs
        return pbs.with_subjobs(found, pbs.parse_jobs(run.Result(*said["subjobs"]), user, asked))

    def not_over(self, jobs: Sequence[str]) -> tuple[str, ...]:
        """Raises CouldNotTell, OSError."""
        answers = {job: pbs_job.parse_state(_run(pbs_job.state_argv(job), 60), job) for job in jobs}
        for job, answer in answers.items():
            if answer.word == UNKNOWN:
                sentence = _("Could not tell whether job {job} is over: {said}")
                raise run.CouldNotTell(sentence.format(job=job, said=answer.detail))
        return tuple(job for job, answer in answers.items() if answer.word != GONE)

    def site(self, said: dict[str, Any]) -> Site:
        return Site(proctrack=said["tracking"], holders=("qsub",), waits_for_terminal=True)

    def evidence(self) -> dict[str, Any]:
        """Reads /proc, the environment and pbs.conf; starts no program."""
        config = settings()
        return {
            "host": world.host(),
            "env_job": pbs_node.job_in_environment(world.env),
            "cgroup_job": pbs_node.job_in_cgroup(_text(procfs.groups("self"))),
            "ancestors": [name for _pid, name in procfs.ancestors(os.getpid())],
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
        return Place(kind, job, tuple(why), controller=seen["server"])

    def membership(
        self, groups: bytes | None, variables: Mapping[str, str]
    ) -> tuple[str | None, str | None, str | None]:
        job = pbs_node.job_in_cgroup(_text(groups))
        if job is not None:
            return job, None, "cgroup"
        job = pbs_node.job_in_environment(variables)
        return job, None, None if job is None else "environment"

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
        return "qsub -I -l select=1:ncpus=4:ngpus=1 -l walltime=01:00:00"


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
    return found if config is None else run.find(name, config.commands)


def _run(argv: Sequence[str], timeout: float) -> run.Result:
    """Raises OSError."""
    return run.run([command(argv[0]) or argv[0], *argv[1:]], timeout, run.clean_environment(pbs.ENVIRONMENT))


def _ask(argv: Sequence[str]) -> run.Result:
    """A command that is missing is one that failed."""
    try:
        return _run(argv, _ASK_TIMEOUT_S)
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
