"""Whose work each process is, and what happens to it if the person leaves now. Pure: survey in, verdict out."""

from __future__ import annotations

from handwash.frozen import frozen, replace
from handwash.limits import Policy, is_load, on_gpu
from handwash.messages import N_, _
from handwash.model import Job, Judged, Node, Process, Survey, Unknown, Verdict
from handwash.services import is_client, is_kernel, is_service, of_editor

# Ids from here on stand for no ordinary step: interactive 0xfffffffa, batch …fb, extern …fc (slurm.h).
_SPECIAL_STEPS = 0xFFFFFFF0

_SURVIVES, _ENDS, _FATE_UNKNOWN = "survives", "ends-with-job", "unknown"


@frozen
class _Context:
    survey: Survey
    policy: Policy
    node: Node | None
    living: frozenset[str] | None
    mine: dict[int, Process]
    session: str | None
    own_step: str | None
    own_sid: int | None
    shell_pgid: int | None
    pipeline: int | None
    now: float
    # Whether something of this session keeps the terminal, and by that the job, when the shell has gone.
    kept: bool


def judge(survey: Survey, uid: int, now: float, policy: Policy | None = None) -> Verdict:
    """The verdict on a survey taken by `uid` at `now` (seconds since the epoch)."""
    unknown = [
        sentence.format(why=answer.why)
        for answer, sentence in (
            (survey.node, N_("Could not tell where this shell runs: {why}")),
            (survey.jobs, N_("Could not tell which jobs are yours: {why}")),
            (survey.gpus, N_("Could not tell who is on the GPUs: {why}")),
            (survey.processes, N_("Could not tell which processes are yours: {why}")),
        )
        for sentence in (_(sentence),)
        if isinstance(answer, Unknown)
    ]
    if not isinstance(survey.gpus, Unknown):
        wedged = [gpu.index for gpu in survey.gpus if "wedged" in gpu.trouble]
        sentence = _("GPU {index} is wedged: what keeps it busy could not be told.")
        unknown += [sentence.format(index=index) for index in wedged]
    judged: tuple[Judged, ...] = ()
    if not isinstance(survey.processes, Unknown):
        context = _context(survey, uid, now, policy or Policy())
        judged = tuple(
            _named(_judge(process, uid, context))
            for process in survey.processes
            if not _is_asking(process, survey, context.pipeline)
        )
        sentence = _("Could not tell whose work process {pid} ({name}) is: {why}.")
        unknown += [
            sentence.format(
                pid=one.process.pid,
                name=one.process.name,
                why=_("it hangs in the kernel") if _is_unread(one.process) else one.why,
            )
            for one in judged
            if one.process.uid == uid and one.fate == _FATE_UNKNOWN and one.whose == "no-job"
        ]
    if any(one.leftover for one in judged):
        word = "leftover"
    else:
        word = "unknown" if unknown else "clean"
    return Verdict(word, judged, tuple(unknown))


def _context(survey: Survey, uid: int, now: float, policy: Policy) -> _Context:
    processes = () if isinstance(survey.processes, Unknown) else survey.processes
    mine = {process.pid: process for process in processes if process.uid == uid}
    own = [mine[pid] for pid in survey.chain if pid in mine]
    node = None if isinstance(survey.node, Unknown) else survey.node
    job = node.job if node else None
    return _Context(
        survey=survey,
        policy=policy,
        node=node,
        living=survey.living,
        mine=mine,
        # A variable outlives what it names: a tmux started within a session still has it when that session is over.
        session=survey.session if survey.session in survey.running_sessions else None,
        own_step=next((process.step for process in own if process.job == job and process.step is not None), None),
        own_sid=own[0].sid if own else None,
        shell_pgid=own[-1].pgid if own else None,
        pipeline=_pipeline(own),
        now=now,
        kept=bool(keeping(survey, uid)),
    )


def _pipeline(own: list[Process]) -> int | None:
    """The process group of `handwash check | less`: with job control one of its own, which no shell of the chain is in."""
    groups = [process.pgid for process in own]
    return groups[0] if len(groups) > 1 and groups[0] not in groups[1:] else None


def keeping(survey: Survey, uid: int) -> tuple[Process, ...]:
    """What of the person's keeps the job when its shell has gone, by the terminal that it holds; the shells that ask do not."""
    inside = not isinstance(survey.node, Unknown) and survey.node.job is not None
    if not inside or not survey.site.waits_for_terminal or isinstance(survey.processes, Unknown):
        return ()
    mine = {one.pid: one for one in survey.processes if one.uid == uid}
    pipeline = _pipeline([mine[pid] for pid in survey.chain if pid in mine])
    return tuple(
        one
        for one in mine.values()
        if one.on_terminal and not _is_asking(one, survey, pipeline) and one.state not in ("Z", "X")
    )


def _is_asking(process: Process, survey: Survey, pipeline: int | None) -> bool:
    """Part of the question: the chain that asks, what its pipe leads to, and process 1, which in a container is a shell."""
    return process.pid in survey.chain or process.pid == 1 or process.pgid == pipeline


def _named(one: Judged) -> Judged:
    """A notebook's kernel that is left over is named as what it is: its owner has closed a page and thinks it is gone."""
    if not one.leftover or not is_kernel(one.process):
        return one
    return replace(one, why=_("A notebook's kernel. {why}").format(why=one.why))


def _judge(process: Process, uid: int, context: _Context) -> Judged:
    if process.uid != uid:
        return Judged(process, "other-user", _SURVIVES, False, _("It belongs to {user}.").format(user=process.user))
    if process.state in ("Z", "X"):
        whose = "session" if _in_own_job(process, context) else "no-job"
        parent = context.mine.get(process.ppid)
        name = f"{process.ppid} ({parent.name})" if parent else str(process.ppid)
        why = _("It has ended and holds no GPU; its parent, process {parent}, has not collected it yet.").format(
            parent=name
        )
        return Judged(process, whose, _ENDS, False, why)
    if is_service(process):
        why = _("A background service: it is meant to outlive a terminal.")
        return Judged(process, "service", _fate_in_job(process, context), False, why)
    if of_editor(process, context.mine):
        why = _("A helper of an editor's server: it belongs to that service.")
        return Judged(process, "service", _fate_in_job(process, context), False, why)
    if is_client(process) or process.name in context.survey.site.holders:
        return _plain(process, context, False, _("A scheduler's client: its job is in the queue."))
    if process.job is not None:
        return _judge_with_job(process, context)
    if _is_unread(process):
        why = _("It hangs in the kernel and does not tell what it is: whose work it is could not be told.")
        return Judged(process, "no-job", _FATE_UNKNOWN, False, why)
    return _judge_without_job(process, context)


def _is_unread(process: Process) -> bool:
    """No job's and no session's, as far as can be told without its environment: it can be a living job's all the same."""
    return process.unread and process.job is None and process.session is None


def _in_own_job(process: Process, context: _Context) -> bool:
    return context.node is not None and context.node.job is not None and process.job == context.node.job


def _judge_with_job(process: Process, context: _Context) -> Judged:
    assert process.job is not None
    if _in_own_job(process, context):
        if _of_this_session(process, context):
            fate = _fate_in_job(process, context)
            return Judged(process, "session", fate, _counts_in_session(process, context), _session_sentence(fate))
        if has_ended(process, context.survey.living_steps):
            why = _("It belongs to step {step} of this job, which has ended.").format(step=process.step)
            return Judged(process, "session", _fate_in_job(process, context), not _attended(process, context), why)
        why = _("It belongs to another part of job {job}, which goes on.").format(job=process.job)
        return Judged(process, "living-job", _SURVIVES, False, why)
    if context.living is None:
        why = _("It belongs to job {job}; whether that still runs could not be told.").format(job=process.job)
        return Judged(process, "living-job", _FATE_UNKNOWN, False, why)
    if process.job in context.living:
        why = _("It belongs to job {job}, which is still in the queue.").format(job=process.job)
        return Judged(process, "living-job", _SURVIVES, False, why)
    if process.uid == 0 and not process.computes:
        # The scheduler's own processes on a node (slurmstepd, prolog, epilog) bear the ids of other people's jobs.
        return _plain(process, context, False, _("It belongs to the system."))
    if process.attributed_by == "allocation":
        # It never ran inside the job: a tmux on the login node keeps the variables of an allocation long after its end.
        return _judge_without_job(process, context)
    why = _("Its job {job} is no longer in the queue.").format(job=process.job)
    return Judged(process, "ended-job", _SURVIVES, not _attended(process, context), why)


def _of_this_session(process: Process, context: _Context) -> bool:
    """Belongs to what this shell started, and not to another step or another session within the same job."""
    own = context.session
    if own is not None and process.session is not None:
        return process.session == own
    if _descends_from_chain(process, context):
        return True
    if process.step is not None and context.own_step is not None:
        return process.step == context.own_step
    job = _job_row(process.job, context)
    return job is not None and job.interactive is True and process.step is None and context.own_step is None


def has_ended(process: Process, living: tuple[str, ...] | None) -> bool:
    """Whether it is of an ordinary step that Slurm no longer lists among the `living` of its job.

    Batch, extern and interactive steps have names, or huge numbers, and no end of their own.
    """
    step = process.step or ""
    # Out of an environment, which can hold anything: int() refuses other digits, and thousands of them.
    is_number = step.isascii() and step.isdigit() and len(step) <= len(str(_SPECIAL_STEPS))
    return living is not None and is_number and int(step) < _SPECIAL_STEPS and step not in living


def _job_row(number: str | None, context: _Context) -> Job | None:
    jobs = () if isinstance(context.survey.jobs, Unknown) else context.survey.jobs
    return next((job for job in jobs if job.number == number), None)


def _descends_from_chain(process: Process, context: _Context) -> bool:
    pid, steps = process.ppid, 0
    while pid in context.mine and steps < 128:
        if pid in context.survey.chain:
            return True
        pid, steps = context.mine[pid].ppid, steps + 1
    return pid in context.survey.chain


def _counts_in_session(process: Process, context: _Context) -> bool:
    """On a compute node all of the session's work counts; in a shell that salloc left on the login node only real load."""
    if context.node is not None and context.node.kind == "allocation-shell":
        return _is_load(process, context)
    return True


def _session_sentence(fate: str) -> str:
    return {
        _ENDS: _("It belongs to this session and ends with it."),
        _SURVIVES: _("It belongs to this session and will go on after you leave."),
    }.get(fate, _("It belongs to this session; whether it ends with it could not be told."))


def _fate_in_job(process: Process, context: _Context) -> str:
    """What leaving does to a process of this job: a safe-srun session and proctrack/cgroup end it, the others do not.

    Measured on 22.05 and 24.11: after the end of `srun --pty bash` linuxproc leaves everything, pgid everything outside
    the first task's process group. PBS (23.06) kills the session that its shell leads, and with its cgroup hook all of the job,
    but waits before that for the terminal's last holder.
    """
    if not _in_own_job(process, context) and process.session is None:
        return _SURVIVES
    if process.session is not None and process.session == context.session:
        return _ENDS
    proctrack = context.survey.site.proctrack
    if not _in_own_job(process, context) or context.kept:
        return _SURVIVES
    if proctrack == "session":
        return _ENDS if process.sid == context.own_sid else _SURVIVES
    if proctrack == "cgroup":
        return _ENDS
    if proctrack == "linuxproc":
        return _SURVIVES
    if proctrack == "pgid":
        return _ENDS if process.pgid == context.shell_pgid else _SURVIVES
    return _FATE_UNKNOWN


def _judge_without_job(process: Process, context: _Context) -> Judged:
    own = context.session
    if process.session is not None:
        if process.session == own:
            return Judged(process, "session", _ENDS, True, _session_sentence(_ENDS))
        if process.session in context.survey.running_sessions:
            why = _("It belongs to session {session}, which still runs.").format(session=process.session)
            return Judged(process, "living-job", _SURVIVES, False, why)
        why = _("It was started by session {session}, which is over.").format(session=process.session)
        return Judged(process, "no-job", _SURVIVES, not _attended(process, context), why)
    if process.attributed_by == "other-scheduler":
        why = _("it was started in a job of another scheduler than the one that is asked")
        return Judged(process, "no-job", _FATE_UNKNOWN, False, why)
    if context.node is None:
        why = _("No job of yours is known to account for it, but where it runs could not be told.")
        return _plain(process, context, False, why)
    if context.node.kind in ("login", "allocation-shell"):
        if on_gpu(process):
            return _plain(process, context, not _attended(process, context), _("It holds a GPU on the login node."))
        heavy = _is_load(process, context)
        why = _("It keeps the login node busy.") if heavy else _("It runs on the login node.")
        return _plain(process, context, heavy and not _attended(process, context), why)
    if context.node.kind == "workstation":
        holds = on_gpu(process)
        why = _("It holds a GPU and no terminal is attached to it.") if holds else _("It runs on this machine.")
        return _plain(process, context, holds and not _attended(process, context), why)
    if process.uid == 0 and not process.computes:
        return _plain(process, context, False, _("It belongs to the system."))
    if _may_be_a_rank(process, context):
        why = _("it may be a part of a job of yours that runs on this node and on others: by ssh it gets no sign of it")
        return Judged(process, "no-job", _FATE_UNKNOWN, False, why)
    return _plain(process, context, not _attended(process, context), _("No job of yours accounts for it."))


def _may_be_a_rank(process: Process, context: _Context) -> bool:
    """Whether a job's first node may have started it here by ssh, as MPI libraries do where they do not know the scheduler.

    What this shell itself has started is none.
    """
    jobs = context.survey.jobs
    if context.survey.site.marks_all or context.node is None or process.sid == context.own_sid:
        return False
    if _descends_from_chain(process, context):
        return False
    return isinstance(jobs, Unknown) or any(len(job.nodes) > 1 and job.is_on(context.node.host) for job in jobs)


def _plain(process: Process, context: _Context, leftover: bool, why: str) -> Judged:
    login = context.node is not None and context.node.kind in ("login", "allocation-shell")
    return Judged(process, "login-work" if login else "no-job", _SURVIVES, leftover, why)


def _is_load(process: Process, context: _Context) -> bool:
    return is_load(process, context.policy, context.now)


def _attended(process: Process, context: _Context) -> bool:
    """Someone sits at its terminal, in another window than the one that asks: the leader of its session is alive there."""
    if process.terminal == 0 or process.sid == context.own_sid:
        return False
    leader = context.mine.get(process.sid)
    return leader is not None and leader.terminal == process.terminal and leader.state not in ("Z", "X")
