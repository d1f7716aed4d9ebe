"""In a person's words: GPUs that the job holds and that do nothing, and what that costs. It says no more than was seen."""

from __future__ import annotations

import time

from handwash import idle_looks, remarks, render, schedulers, world
from handwash.messages import _, ngettext
from handwash.model import Job, Survey

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handwash.idle import Doing

# Looks that are closer together than this say nothing that the driver's samples do not.
_WORTH_SAYING_S = 60.0


def lines(survey: Survey, idle_after: float) -> list[str]:
    """A line on the idle GPUs, if any, with the way to give them back; one for those whose programs are at work elsewhere."""
    return say(idle_looks.take(survey, idle_after), remarks.own_job(survey), remarks.job_gpus(survey))


def say(seen: tuple[tuple[Doing, ...], bool], job: Job | None, total: int | None) -> list[str]:
    """`seen`: as `idle_looks.take` gives it; `total`: how many GPUs the job has, None where that is not known."""
    doing, at_work = seen
    said = []
    idle = [one for one in doing if one.is_idle]
    if idle and job is not None:
        said.append(_idle(idle, job, is_all=len(idle) == total, at_work=at_work))
    for word in ("cpu", "disk"):
        held = [one for one in doing if one.word == word]
        if held:
            said.append(_held(held, word))
    return said


def _idle(idle: list[Doing], job: Job, is_all: bool, at_work: bool) -> str:
    """What does nothing, what that costs, since when no look has found it busy, and how to end it where nothing speaks
    against that: other GPUs of the job, here or on other nodes, or programs at work without them."""
    # Those of which more is known.
    measured = [one for one in idle if one.over_s is not None]
    shown = measured or idle
    memory = sum(one.gpu.memory_used or 0 for one in shown if one.word == "held")
    if not measured:
        sentence = ngettext(
            "{count} GPU of job {job} (GPU {numbers}) has nobody on it at this moment; each hour costs {count} GPU-hour.",
            "{count} GPUs of job {job} (GPU {numbers}) have nobody on them at this moment; each hour costs {count} GPU-hours.",
            len(shown),
        )
    elif memory:
        sentence = ngettext(
            "{count} GPU of job {job} (GPU {numbers}) has done nothing for the last {seconds} s, with {memory} held; "
            "each hour costs {count} GPU-hour.",
            "{count} GPUs of job {job} (GPU {numbers}) have done nothing for the last {seconds} s, with {memory} held; "
            "each hour costs {count} GPU-hours.",
            len(shown),
        )
    else:
        sentence = ngettext(
            "{count} GPU of job {job} (GPU {numbers}) has done nothing for the last {seconds} s; "
            "each hour costs {count} GPU-hour.",
            "{count} GPUs of job {job} (GPU {numbers}) have done nothing for the last {seconds} s; "
            "each hour costs {count} GPU-hours.",
            len(shown),
        )
    name = render.harmless(job.id.partition("+")[0])
    parts = [
        sentence.format(
            count=len(shown), job=name, numbers=_numbers(shown), seconds=_seconds(shown), memory=render.size(memory)
        )
    ]
    # That is said of all of them, so it is the last of the first looks.
    since = max(one.since or world.now() for one in shown)
    if world.now() - since >= _WORTH_SAYING_S:
        parts.append(_("Not seen busy since {time}.").format(time=clock(since)))
    if at_work:
        parts.append(_("Programs of yours are at work there without them."))
    elif is_all and job.interactive:
        parts.append(_("Leave with exit, or: {line}").format(line=schedulers.here().cancel_line(name)))
    elif is_all:
        parts.append(_("To end the job: {line}").format(line=schedulers.here().cancel_line(name)))
    return " ".join(parts)


def _held(held: list[Doing], word: str) -> str:
    if word == "cpu":
        sentence = _(
            "GPU {numbers}: {memory} held, 0 % busy over the last {seconds} s; its program computes on the CPU."
        )
    else:
        sentence = _(
            "GPU {numbers}: {memory} held, 0 % busy over the last {seconds} s; its program waits in the kernel, "
            "for a disk most often."
        )
    memory = sum(one.gpu.memory_used or 0 for one in held)
    return sentence.format(numbers=_numbers(held), memory=render.size(memory), seconds=_seconds(held))


def _numbers(shown: list[Doing]) -> str:
    return ", ".join(str(one.gpu.index) for one in shown)


def _seconds(shown: list[Doing]) -> int:
    """All of them have done nothing for so long at least."""
    return int(min((one.over_s for one in shown if one.over_s is not None), default=0.0))


def clock(seconds: float) -> str:
    """The time of the day, with the day where it is not today's."""
    then, today = time.localtime(seconds), time.localtime(world.now())
    return time.strftime("%H:%M" if then[:3] == today[:3] else "%Y-%m-%d %H:%M", then)
