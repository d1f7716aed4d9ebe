"""What is worth a remark beside the verdict: jobs with nobody in them, nodes not looked at. Pure."""

from __future__ import annotations

from handwash import slurm_names
from handwash.frozen import replace
from handwash.model import Job, Judged, Process, Survey, Unknown, Verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from handwash.schedulers.slurm_launchers import Step

# By how much the clocks of the controller and of this host may differ.
_SLACK_S = 5.0


def unattended_jobs(survey: Survey, host: str = "") -> tuple[Job, ...]:
    """Running interactive jobs with GPUs that this shell is not in and that nobody is seen to sit in from `host`, this one.

    A heterogeneous job is one, with its leader's number and the GPUs of all its components: scancel of it ends all of them.
    Whether someone sits in one from another host cannot be seen, so this is for a remark and a question, not for a verdict.
    """
    # Where it is not known which programs wait for a job, it cannot be seen that nobody sits in one.
    if isinstance(survey.jobs, Unknown) or not survey.site.holders:
        return ()
    here = None if isinstance(survey.node, Unknown) else survey.node.job
    found = []
    for parts in _by_leader(survey.jobs):
        running = [job for job in parts if job.interactive and job.state == "RUNNING"]
        gpus = sum(job.gpus or 0 for job in running)
        is_own = any(job.number == here for job in parts)
        if gpus and not is_own and not any(_is_attended_from(host, job, survey) for job in parts):
            leader = _leader(running[0])
            number = running[0].number if leader == running[0].id else leader
            found.append(replace(running[0], id=leader, number=number, gpus=gpus))
    return tuple(found)


def numbers_of(survey: Survey, job: Job) -> tuple[str, ...]:
    """The numbers that a job's own processes have: more than one for a heterogeneous job."""
    rows = () if isinstance(survey.jobs, Unknown) else survey.jobs
    return tuple(row.number for row in rows if _leader(row) == _leader(job)) or (job.number,)


def _leader(job: Job) -> str:
    """As scancel takes the whole of it: `123` of Slurm's `123+1`, else the job's own id."""
    leader, _plus, place = job.id.partition("+")
    return leader if leader.isdigit() and place.isdigit() else job.id


def _by_leader(jobs: Iterable[Job]) -> tuple[tuple[Job, ...], ...]:
    """The rows of each job, the components of a heterogeneous one together."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(_leader(job), []).append(job)
    return tuple(map(tuple, found.values()))


def batch_jobs(survey: Survey) -> tuple[str, ...]:
    """The batch jobs that run, as scancel takes them: normal, but the only word on how to end one. This shell's own is none.

    A heterogeneous job is one job to a person: its leader's number ends all of it (scancel(1)).
    """
    if isinstance(survey.jobs, Unknown):
        return ()
    here = {job.number for job in components(survey)}
    running = (job for job in survey.jobs if job.interactive is False and job.state == "RUNNING")
    return tuple(dict.fromkeys(_leader(job) for job in running if job.number not in here))


def _is_attended_from(host: str, job: Job, survey: Survey) -> bool:
    """Its srun, salloc or qsub runs in the session that made it, or a shell that salloc gave is still there."""
    if isinstance(survey.processes, Unknown):
        return False
    # The controller calls its own host localhost (22.05).
    made_here = job.alloc_host.split(".")[0] in (host, "localhost")
    return any(
        # PBS does not tell in which session a job was submitted: there any of these at a terminal may wait for it. qsub leaves
        # one without a terminal behind, for two minutes (23.06).
        (
            made_here
            and slurm_names.own(process.name) in survey.site.holders
            and (process.terminal != 0 if job.alloc_sid is None else process.sid == job.alloc_sid)
        )
        or (process.job == job.number and process.attributed_by == "allocation")
        for process in survey.processes
        if process.state not in ("Z", "X")
    )


def held_from(survey: Survey, host: str) -> tuple[Job, ...]:
    """The running jobs that the person holds from `host`, this one: this shell's own, and those somebody here sits in."""
    if isinstance(survey.jobs, Unknown):
        return ()
    own = components(survey)
    there = (
        job
        for parts in _by_leader(survey.jobs)
        for job in parts
        if job.interactive and any(_is_attended_from(host, part, survey) for part in parts)
    )
    return tuple(job for job in dict.fromkeys((*own, *there)) if job.state == "RUNNING")


def without_srun(steps: Iterable[Step], processes: Iterable[Process], host: str) -> tuple[Step, ...]:
    """Of steps that were listed before the processes of `host`, this one, those whose srun was here and is gone.

    An srun on another host cannot be seen, so nothing is said of its step. Neither is anything said while an srun runs here
    that belongs to no step on the list and is old enough to have started this one: in a container it tells the controller
    a number of its own, and the child that outlives a killed srun ends the step by itself.
    """
    steps = tuple(steps)
    alive = {process.pid: process for process in processes if process.state not in ("Z", "X")}
    known = {step.pid for step in steps if step.host == host} & set(alive)
    loose = [one for one in alive.values() if _is_srun(one) and one.pid not in known and one.ppid not in known]
    return tuple(
        step
        for step in steps
        if step.host == host
        and step.pid not in alive
        and not any(step.started is None or one.started < step.started + _SLACK_S for one in loose)
    )


def with_srun(steps: Iterable[Step], processes: Iterable[Process], host: str) -> tuple[Step, ...]:
    """Of steps that were listed before the processes of `host`, this one, those whose srun runs here."""
    alive = {process.pid for process in processes if _is_srun(process) and process.state not in ("Z", "X")}
    return tuple(step for step in steps if step.host == host and step.pid in alive)


def _is_srun(process: Process) -> bool:
    return slurm_names.own(process.name) == "srun"


def of_session(verdict: Verdict, session: str, jobs: tuple[str, ...]) -> tuple[Judged, ...]:
    """What runs here of a session on record. Its cookie goes on into jobs that were submitted from it: those are not its."""
    return tuple(
        one
        for one in verdict.judged
        if one.process.session == session
        and one.process.job in (None, *jobs)
        and one.process.state not in ("Z", "X")
        and one.whose not in ("service", "other-user")
    )


def components(survey: Survey) -> tuple[Job, ...]:
    """The queue's rows of this shell's job: more than one for a heterogeneous job (`123+0`, `123+1`), each with its nodes."""
    own = own_job(survey)
    if own is None or isinstance(survey.jobs, Unknown):
        return ()
    return tuple(job for job in survey.jobs if _leader(job) == _leader(own))


def own_job(survey: Survey) -> Job | None:
    """The queue's row of the job that this shell is in, of a heterogeneous one that of its own component."""
    if isinstance(survey.node, Unknown) or isinstance(survey.jobs, Unknown) or survey.node.job is None:
        return None
    return next((job for job in survey.jobs if job.number == survey.node.job), None)


def has_gpus_here(survey: Survey) -> bool:
    """Whether this shell is in a job that holds GPUs of this node, as the scheduler names them."""
    return not isinstance(survey.node, Unknown) and survey.node.job is not None and bool(survey.node.gpus)


def job_gpus(survey: Survey) -> int | None:
    """How many GPUs this shell's job holds, all components and nodes of it together; None where that is not known."""
    counts = [job.gpus for job in components(survey)]
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None


def other_nodes(survey: Survey) -> tuple[str, ...]:
    """The nodes of this shell's job that it is not on, those of a heterogeneous job's other components among them."""
    here = survey.node.host if not isinstance(survey.node, Unknown) and survey.node.kind == "compute" else None
    names = dict.fromkeys(node for job in components(survey) for node in job.nodes)
    # PBS has a node by the name that it was made with, which can be the long one.
    return tuple(node for node in names if here not in (node, node.partition(".")[0]))


def outlived_job(survey: Survey) -> str | None:
    """The job that this shell was started in and that is over: an ssh session into a node outlives it."""
    if isinstance(survey.jobs, Unknown) or isinstance(survey.processes, Unknown):
        return None
    living = survey.living or ()
    for process in survey.processes:
        inside = process.attributed_by in ("cgroup", "environment")
        if process.pid in survey.chain and inside and process.job is not None and process.job not in living:
            return process.job
    return None
