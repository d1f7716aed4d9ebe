"""What `clean` offers beside ending processes: jobs that nobody sits in, steps that have lost their srun. Never unasked."""

from __future__ import annotations

import sys

from handwash import giveback, judge, remarks, render, run, survey, tell, tell_clean, world
from handwash.config import Config
from handwash.frozen import replace
from handwash.messages import _
from handwash.model import Judged, Survey, Unknown
from handwash.render import harmless
from handwash.schedulers import slurm_launchers
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


def make(settings: Config, seen: Survey, ask: bool, end: Ending) -> None:
    """Interactive jobs with GPUs that nobody is seen in, and steps whose srun is gone: asked about one by one.

    Without `ask` the line to type is all. Batch jobs run without anybody as they should: how to end one is a line, no question.
    """
    for job in remarks.unattended_jobs(seen, world.host()):
        if not ask:
            render.say(tell.job_hint(job))
        elif is_yes(tell_clean.job_question(job), sys.stdout):
            _cancel(settings, job.id, job.number, "", end)
    for step in _without_srun(settings, seen):
        if not ask:
            render.say(tell_clean.step_hint(step))
        elif is_yes(tell_clean.step_question(step), sys.stdout):
            _cancel(settings, step.id, step.job, step.number, end)
    batch = remarks.batch_jobs(seen)
    if batch:
        render.say(tell.batch_hint(batch))


def is_yes(question: str, stream: TextIO) -> bool:
    """Asks, and reads the answer. The Chinese catalogue translates the question; both y and 是 agree."""
    stream.write(question)
    stream.flush()
    return sys.stdin.readline().strip().lower()[:1] in ("y", "是")


def _without_srun(settings: Config, seen: Survey) -> tuple[Step, ...]:
    """By two looks a moment apart; each at the steps first, so that none is newer than the processes."""
    jobs = [job.number for job in remarks.held_from(seen, world.host())][:_JOBS_ASKED]
    if not jobs or not procfs.has_pids_of_host():
        return ()
    found = _look(settings, jobs)
    if found:
        world.pause(_MOMENT_S)
        again = _look(settings, list(dict.fromkeys(step.job for step in found)))
        found = tuple(step for step in found if step in again)
    return found


def _look(settings: Config, jobs: list[str]) -> tuple[Step, ...]:
    steps: list[Step] = []
    for job in jobs:
        try:
            steps += slurm_launchers.parse_steps(run.run(slurm_launchers.steps_argv(job), settings.deadline), job)
        except run.CouldNotTell as reason:
            render.say(harmless(str(reason), 500))
        except OSError as error:
            sentence = _("The steps of job {job} could not be told: {said}")
            render.say(sentence.format(job=harmless(job), said=f"scontrol: {error.strerror}"))
    if not any(step.host == world.host() for step in steps):
        return ()
    now = survey.take(settings.deadline, only=("processes",)).processes
    return () if isinstance(now, Unknown) else remarks.without_srun(steps, now, world.host())


def _cancel(settings: Config, name: str, job: str, step: str, end: Ending) -> None:
    gone = giveback.cancel(job, step)
    if step:
        sentence = {
            True: _("Step {step} has ended."),
            False: _("Step {step} still runs: squeue -s {step}"),
            None: _("Could not tell whether step {step} has ended: squeue -s {step}"),
        }[gone]
    else:
        sentence = {
            True: _("Job {job} has left the queue."),
            False: _("Job {job} is still in the queue: squeue -j {job}"),
            None: _("Could not tell whether job {job} has left the queue: squeue -j {job}"),
        }[gone]
    render.say(sentence.format(job=harmless(name), step=harmless(name)))
    if not gone:
        return
    # What did not run below the job's own steps outlives it.
    seen = survey.take(settings.deadline)
    if step:
        seen = replace(seen, living_steps=_living_steps(settings, job))
    verdict = judge.judge(seen, world.uid(), world.now(), settings.policy)
    rest = tuple(one for one in verdict.leftovers if one.process.job == job and step in ("", one.process.step))
    if rest:
        end(seen, rest)


def _living_steps(settings: Config, job: str) -> tuple[str, ...] | None:
    from handwash.commands import elsewhere

    try:
        return elsewhere.living_steps(job, settings.deadline)
    except run.CouldNotTell:
        return None
