"""What `clean` offers beside ending processes: jobs that nobody sits in, steps that have lost their srun. Never unasked."""

from __future__ import annotations

import sys

from handwash import judge, remarks, render, run, schedulers, survey, tell, tell_clean, world
from handwash.config import Config
from handwash.frozen import frozen, replace
from handwash.messages import _
from handwash.model import Job, Judged, Process, Survey, Unknown
from handwash.render import harmless
from handwash.schedulers import slurm_adapter
from handwash.survey import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from handwash.schedulers.slurm_launchers import Step

    # Asks whether so many processes are to be ended, and ends them after a yes.
    Ending = Callable[[Survey, tuple[Judged, ...]], None]

# An srun that ends in good order may be gone a moment before its step is.
_MOMENT_S = 1.5
# Each is a request to the controller.
_JOBS_ASKED = 4


@frozen
class Found:
    """`jobs`: interactive ones with GPUs that nobody is seen in. `steps`: those whose srun was here and is gone.

    `unknown`: what could not be told of either, a sentence for each.
    """

    jobs: tuple[Job, ...] = ()
    steps: tuple[Step, ...] = ()
    unknown: tuple[str, ...] = ()


def look(settings: Config, seen: Survey) -> Found:
    """What may be offered; ends nothing, asks nobody."""
    jobs, unknown = [], []
    for job in remarks.unattended_jobs(seen, world.host()):
        try:
            if not _is_sat_in(settings, seen, job):
                jobs.append(job)
        except run.CouldNotTell as reason:
            unknown.append(str(reason))
    steps, more = _lost(settings, seen)
    return Found(tuple(jobs), steps, tuple(dict.fromkeys((*unknown, *more))))


def make(settings: Config, seen: Survey, found: Found, ask: bool, end: Ending) -> None:
    """Asks about each job and step of `found`, one by one.

    Without `ask` the line to type is all. Batch jobs run without anybody as they should: how to end one is a line, no question.
    """
    for job in found.jobs:
        if not ask:
            render.say(tell.job_hint(job))
        elif is_yes(tell_clean.job_question(job), sys.stdout):
            _cancel_job(settings, seen, job, end)
    for step in found.steps:
        if not ask:
            render.say(tell_clean.step_hint(step))
        elif is_yes(tell_clean.step_question(step), sys.stdout):
            _cancel(settings, step.id, step.job, step.number, (step.job,), end)
    batch = remarks.batch_jobs(seen)
    if batch:
        render.say(tell.batch_hint(batch))


def is_yes(question: str, stream: TextIO) -> bool:
    """Asks, and reads the answer. The Chinese catalogue translates the question; both y and 是 agree."""
    stream.write(question)
    stream.flush()
    return sys.stdin.readline().strip().lower()[:1] in ("y", "是")


def _lost(settings: Config, seen: Survey) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """By two looks a moment apart; each at the steps first, so that none is newer than the processes."""
    jobs = [job.number for job in remarks.held_from(seen, world.host())][:_JOBS_ASKED]
    if not jobs or not procfs.is_host_namespace():
        return (), ()
    steps, unknown = _without_srun(settings, jobs)
    if not steps:
        return steps, unknown
    world.pause(_MOMENT_S)
    again, more = _without_srun(settings, list(dict.fromkeys(step.job for step in steps)))
    return tuple(step for step in steps if step in again), (*unknown, *more)


def _without_srun(settings: Config, jobs: list[str]) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """Those that have lost their srun, and what could not be told."""
    steps: list[Step] = []
    unknown = []
    for job in jobs:
        try:
            steps += _steps(settings, job)
        except run.CouldNotTell as reason:
            unknown.append(str(reason))
    if not any(step.host == world.host() for step in steps):
        return (), tuple(unknown)
    try:
        return remarks.without_srun(steps, _processes(settings), world.host()), tuple(unknown)
    except run.CouldNotTell as reason:
        return (), (*unknown, str(reason))


def _is_sat_in(settings: Config, seen: Survey, job: Job) -> bool:
    """Whether an srun of this host, in whichever session, holds a step of the job. Raises CouldNotTell."""
    numbers = remarks.numbers_of(seen, job)
    steps = [step for number in numbers for step in _steps(settings, number) if step.host == world.host()]
    # A pid that was told from another namespace is not to be found here, and somebody is in it all the same.
    if not steps or not procfs.is_host_namespace():
        return bool(steps)
    return bool(remarks.with_srun(steps, _processes(settings), world.host()))


def _steps(settings: Config, job: str) -> tuple[Step, ...]:
    """Only Slurm has steps. Raises CouldNotTell."""
    is_slurm = isinstance(schedulers.here(), slurm_adapter.Slurm)
    return slurm_adapter.steps(job, settings.deadline) if is_slurm else ()


def _processes(settings: Config) -> tuple[Process, ...]:
    """Raises CouldNotTell."""
    now = survey.take(settings.deadline, only=("processes",)).processes
    if isinstance(now, Unknown):
        raise run.CouldNotTell(_("Could not tell which processes are yours: {why}").format(why=now.why))
    return now


def _cancel_job(settings: Config, seen: Survey, job: Job, end: Ending) -> None:
    """The answer can have come late: somebody may have gone into it meanwhile."""
    try:
        if _is_sat_in(settings, seen, job):
            sentence = _("Somebody works in job {job} by now: it was not cancelled.")
            render.say(sentence.format(job=harmless(job.id)))
            return
    except run.CouldNotTell as reason:
        render.say(harmless(str(reason), 500))
        return
    _cancel(settings, job.id, job.number, "", remarks.numbers_of(seen, job), end)


def _cancel(settings: Config, name: str, job: str, step: str, numbers: tuple[str, ...], end: Ending) -> None:
    """`numbers`: those that the processes of the job have."""
    here = schedulers.here()
    if step:
        gone = slurm_adapter.cancel(job, step)
        sentence = {
            True: _("Step {step} has ended."),
            False: _("Step {step} still runs: squeue -s {step}"),
            None: _("Could not tell whether step {step} has ended: squeue -s {step}"),
        }[gone]
    else:
        gone = here.cancel(job)
        sentence = {
            True: _("Job {job} has left the queue."),
            False: _("Job {job} is still in the queue: {line}"),
            None: _("Could not tell whether job {job} has left the queue: {line}"),
        }[gone]
    render.say(sentence.format(job=harmless(name), step=harmless(name), line=here.queue_line(harmless(name))))
    if not gone:
        return
    # What did not run below the job's own steps outlives it.
    seen = survey.take(settings.deadline)
    if step:
        seen = replace(seen, living_steps=_living_steps(settings, job))
    verdict = judge.judge(seen, world.uid(), world.now(), settings.policy)
    rest = tuple(one for one in verdict.leftovers if one.process.job in numbers and step in ("", one.process.step))
    if rest:
        end(seen, rest)


def _living_steps(settings: Config, job: str) -> tuple[str, ...] | None:
    from handwash.commands import elsewhere

    try:
        return elsewhere.living_steps(job, settings.deadline)
    except run.CouldNotTell:
        return None
