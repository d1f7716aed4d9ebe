"""The survey and the verdict in a person's words."""

from __future__ import annotations

import sys

from handwash import render, tell_gpus
from handwash.messages import _, ngettext
from handwash.model import Job, Judged, Node, Survey, Unknown, Verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO, Union


def place(node: Union[Node, Unknown]) -> str:
    """One line: where this shell is."""
    if isinstance(node, Unknown):
        return _("Could not tell where this shell runs: {why}").format(why=render.harmless(node.why, 500))
    host = render.harmless(node.host)
    if node.kind == "compute" and node.job:
        line = _("{host}: compute node, inside your job {job}").format(host=host, job=render.harmless(node.job))
    elif node.kind == "compute":
        line = _("{host}: compute node, but this shell is not inside a job of yours").format(host=host)
    elif node.kind == "allocation-shell":
        sentence = _("{host}: shell of your allocation {job}, but still on the login node; run programs with srun")
        line = sentence.format(host=host, job=render.harmless(node.job or ""))
    elif node.kind == "login":
        line = _("{host}: login node, for editing and submitting; GPUs are on the compute nodes").format(host=host)
    else:
        line = _("{host}: workstation, no batch scheduler here").format(host=host)
    return line + _(" (in a container)") if node.container else line


def whose(word: str) -> str:
    return {
        "session": _("this session"),
        "living-job": _("a running job"),
        "ended-job": _("an ended job"),
        "no-job": _("no job"),
        "login-work": _("login node"),
        "service": _("service"),
        "other-user": _("another user"),
    }[word]


def fate(word: str) -> str:
    return {
        "survives": _("goes on"),
        "ends-with-job": _("ends with the job"),
        "unknown": _("unknown"),
    }[word]


def job_line(job: Job) -> str:
    """One job: id, state, GPUs, time, cost."""
    if job.gpus is None:
        gpus = _("GPUs unknown")
    else:
        gpus = ngettext("{count} GPU", "{count} GPUs", job.gpus).format(count=job.gpus)
    parts = [f"{job.id} {job.state}", gpus, render.harmless(job.name, 40) or "-"]
    if job.elapsed_s:
        parts.append(_("running for {time}").format(time=render.duration(job.elapsed_s)))
    if job.gpu_hours:
        parts.append(_("{hours} GPU-hours so far").format(hours=f"{job.gpu_hours:.2f}"))
    return ", ".join(parts)


def three_looks(survey: Survey, verdict: Verdict, stream: TextIO | None = None) -> None:
    """The triple check, a block per look: the queue, the GPUs, the processes."""
    jobs: list[str]
    if isinstance(survey.jobs, Unknown):
        jobs = [_("could not tell: {why}").format(why=render.harmless(survey.jobs.why, 500))]
    else:
        jobs = [job_line(job) for job in survey.jobs] or [_("none")]
    gpus = tell_gpus.gpu_lines(survey)
    if isinstance(survey.processes, Unknown):
        processes = [_("could not tell: {why}").format(why=render.harmless(survey.processes.why, 500))]
    else:
        left, own = len(verdict.leftovers), sum(1 for one in verdict.judged if one.whose != "other-user")
        processes = [
            _("{own} of yours here, {left} left over").format(left=left, own=own)
            if own
            else _("none of yours besides this shell")
        ]
    headings = [_("jobs"), _("GPUs"), _("processes")]
    cells = max(render.width(heading) for heading in headings) + 2
    for heading, lines in zip(headings, (jobs, gpus, processes)):
        for number, line in enumerate(lines):
            render.say("  " + render.pad(heading if number == 0 else "", cells) + line, stream)


def short_command(command: str) -> str:
    """A command line with the folders of the program and of its script left out: the names are what a person knows."""
    words = command.split(" ")
    return " ".join(word.rpartition("/")[2] or word if place < 2 else word for place, word in enumerate(words))


def process_table(rows: tuple[Judged, ...], survey: Survey, now: float, stream: TextIO | None = None) -> None:
    """The processes with what a person needs to recognise them, and what becomes of each."""
    render.table(
        [
            _("PID"),
            _("user"),
            _("command"),
            _("GPU"),
            _("GPU memory"),
            _("age"),
            _("CPU time"),
            _("job"),
            _("whose"),
            _("if you leave"),
        ],
        [
            (
                str(one.process.pid),
                one.process.user,
                render.harmless(short_command(one.process.command), 48),
                ",".join(str(index) for index in one.process.gpus) or "-",
                render.size(tell_gpus.gpu_memory(one, survey)),
                render.duration(now - one.process.started),
                render.duration(one.process.cpu_s),
                one.process.job or "-",
                whose(one.whose),
                fate(one.fate),
            )
            for one in rows
        ],
        stream,
        numeric="0456",
    )


def summary(verdict: Verdict, stream: TextIO | None = None) -> None:
    """The verdict in a sentence, with what to type next."""
    out = sys.stdout if stream is None else stream
    left = len(verdict.leftovers)
    if verdict.verdict == "leftover":
        sentence = ngettext("{count} process is left over.", "{count} processes are left over.", left)
        advice = _("To end what is left over: handwash clean")
        render.say(render.style(sentence.format(count=left), "yellow", out) + " " + advice, stream)
    elif verdict.verdict == "clean":
        render.say(render.style(_("Clean: nothing of yours is left over here."), "green", out), stream)
    else:
        render.say(render.style(_("Could not tell whether anything is left over."), "yellow", out), stream)
