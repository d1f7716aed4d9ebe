"""The survey and the verdict in a person's words."""

from __future__ import annotations

import sys

from handwash import groups, render, schedulers, services, tell_gpus
from handwash.messages import _, ngettext
from handwash.model import Job, Judged, Node, Process, Survey, Unknown, Verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO, Union

    from handwash.limits import Excess

# Names that fit into a line.
_NAMED_NODES = 4
_NAMED_JOBS = 10
_NAMED_PROCESSES = 5


# Of more parents of defunct processes than these the rest is left out.
_MOST_PARENTS = 3


def place(node: Union[Node, Unknown]) -> str:
    """One line: where this shell is."""
    if isinstance(node, Unknown):
        return _("Could not tell where this shell runs: {why}").format(why=render.harmless(node.why, 500))
    host = render.harmless(node.host)
    if node.kind == "compute" and node.job:
        line = _("{host}: compute node, inside your job {job}").format(host=host, job=render.harmless(node.job))
    elif node.kind == "compute":
        line = _("{host}: compute node, but this shell is not inside a job of yours").format(host=host)
    elif node.kind == "allocation-shell" and not schedulers.here().launcher:
        sentence = _("{host}: shell of your allocation {job}, but still on the login node")
        line = sentence.format(host=host, job=render.harmless(node.job or ""))
    elif node.kind == "allocation-shell" and node.held:
        sentence = ngettext(
            "{host}: you hold {count} GPU in job {job}, but this shell is on the login node; run programs with srun",
            "{host}: you hold {count} GPUs in job {job}, but this shell is on the login node; run programs with srun",
            node.held,
        )
        line = sentence.format(host=host, count=node.held, job=render.harmless(node.job or ""))
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


def three_looks(survey: Survey, verdict: Verdict, stream: TextIO | None = None, batch: tuple[str, ...] = ()) -> None:
    """The triple check, a block per look: the queue, the GPUs, the processes. `batch`: jobs of which it says how to end one."""
    jobs: list[str]
    if isinstance(survey.jobs, Unknown):
        jobs = [_("could not tell: {why}").format(why=render.harmless(survey.jobs.why, 500))]
    else:
        jobs = [job_line(job) for job in survey.jobs] or [_("none")]
    if batch:
        jobs.append(batch_hint(batch))
    gpus = tell_gpus.gpu_lines(survey)
    if isinstance(survey.processes, Unknown):
        processes = [_("could not tell: {why}").format(why=render.harmless(survey.processes.why, 500))]
    else:
        processes = [_own_processes(survey.processes, verdict)]
    headings = [_("jobs"), _("GPUs"), _("processes")]
    cells = max(render.width(heading) for heading in headings) + 2
    for heading, lines in zip(headings, (jobs, gpus, processes)):
        for number, line in enumerate(lines):
            render.say("  " + render.pad(heading if number == 0 else "", cells) + line, stream)


def _own_processes(processes: tuple[Process, ...], verdict: Verdict) -> str:
    """How many of one's own are here and left over, and how many are only names of what has ended, for which parents."""
    own = [one.process for one in verdict.judged if one.whose != "other-user"]
    left = len(verdict.leftovers)
    if not own:
        return _("none of yours besides this shell")
    by_parent = [one.ppid for one in own if one.state in ("Z", "X")]
    if not by_parent:
        return _("{own} of yours here, {left} left over").format(own=len(own), left=left)
    names = {one.pid: render.harmless(one.name, 30) for one in processes}
    # Those with the most first: the parent is what is wrong.
    parents = sorted(set(by_parent), key=lambda pid: (-by_parent.count(pid), pid))
    named = [f"{pid} {names.get(pid, '')}".strip() for pid in parents[:_MOST_PARENTS]]
    sentence = ngettext(
        "{own} of yours here, {left} left over; {count} of them is defunct and holds no GPU (parent: {parents})",
        "{own} of yours here, {left} left over; {count} of them are defunct and hold no GPU (parent: {parents})",
        len(by_parent),
    )
    parents_text = ", ".join(named + ["…"] * (len(parents) > _MOST_PARENTS))
    return sentence.format(own=len(own), left=left, count=len(by_parent), parents=parents_text)


def short_command(command: str) -> str:
    """A command line with the folders of the program and of its script left out: the names are what a person knows."""
    words = command.split(" ")
    return " ".join(word.rpartition("/")[2] or word if place < 2 else word for place, word in enumerate(words))


def process_table(rows: tuple[Judged, ...], survey: Survey, now: float, stream: TextIO | None = None) -> None:
    """The processes with what a person needs to recognise them, and what becomes of each; a line for each crowd."""
    lines = groups.lines(rows)
    # A column of its own would cost the others their width, which a terminal of 80 does not have.
    with_session = any(group.first.process.session for group in lines)
    columns: list[tuple[str, Callable[[groups.Group], str]]] = [
        (_("PID"), _pid),
        (_("user"), lambda group: group.first.process.user),
        (_("command"), _command),
        (_("GPU"), lambda group: ",".join(str(index) for index in group.gpus) or "-"),
        (_("GPU memory"), lambda group: _memory(group, survey)),
        (_("age"), lambda group: render.duration(now - group.first.process.started)),
        (_("CPU time"), lambda group: render.duration(sum(one.process.cpu_s for one in group.rows))),
        (_("job, session") if with_session else _("job"), lambda group: _job(group, with_session)),
        (_("whose"), lambda group: whose(group.first.whose)),
        (_("if you leave"), lambda group: fate(group.first.fate)),
    ]
    render.table(
        [heading for heading, _cell in columns],
        [[cell(group) for _heading, cell in columns] for group in lines],
        stream,
        numeric="0456",
    )


def _pid(group: groups.Group) -> str:
    pid = str(group.first.process.pid)
    return pid if len(group.rows) == 1 else f"{pid} …"


def _command(group: groups.Group) -> str:
    first, count = group.first.process, len(group.rows)
    command = render.harmless(short_command(first.command) if count == 1 else first.name, 48)
    if services.is_kernel(first):
        command += " " + _("(a notebook's kernel)")
    return command if count == 1 else f"{count} × {command}"


def _memory(group: groups.Group, survey: Survey) -> str:
    memory = [tell_gpus.gpu_memory(one, survey) for one in group.rows]
    known = [amount for amount in memory if amount is not None]
    return render.size(sum(known) if known else None)


def _job(group: groups.Group, with_session: bool) -> str:
    job = group.first.process.job or "-"
    return f"{job} {short_session(group.first.process.session or '-')}" if with_session else job


def short_session(session: str) -> str:
    """`20260101-101500-0a0b0c0d0e0f` as `0a0b0c`, which `handwash clean --session` takes too: the age tells the time."""
    return render.harmless(session.rpartition("-")[2][:6] or session, 6)


def over_limits(excesses: tuple[Excess, ...], stream: TextIO | None = None) -> None:
    """The login node's limits that are passed, a line each."""
    for excess in excesses:
        render.say(render.style(over_limit(excess), "yellow", sys.stdout if stream is None else stream), stream)


def over_limit(excess: Excess) -> str:
    """One limit that is passed, by how much, and the largest who pass it."""
    if excess.kind == "cores":
        sentence = _("Over this login node's limits: {measured} cores kept busy, {limit} are allowed: {by}")
        measured, limit = f"{excess.measured:.1f}", f"{excess.limit:g}"
    elif excess.kind == "memory":
        sentence = _("Over this login node's limits: {measured} of memory, {limit} are allowed: {by}")
        measured, limit = render.size(int(excess.measured)), render.size(int(excess.limit))
    elif excess.kind == "threads":
        sentence = _("Over this login node's limits: {measured} threads, {limit} are allowed: {by}")
        measured, limit = f"{excess.measured:.0f}", f"{excess.limit:g}"
    else:
        sentence = _("A login node is not for GPU work: {by}")
        measured = limit = ""
    by = ", ".join(f"{process.pid} {render.harmless(process.name, 30)}" for process in excess.by)
    return sentence.format(measured=measured, limit=limit, by=by)


def outlived(job: str | None, stream: TextIO | None = None) -> None:
    """That this shell was started in a job that is over."""
    if job is not None:
        sentence = _("This shell outlives its job {job}, which is no longer in the queue: leave it.")
        render.say(sentence.format(job=render.harmless(job)), stream)


def could_not_tell(unknown: tuple[str, ...], stream: TextIO | None = None) -> None:
    """What could not be told, a line each."""
    for why in unknown:
        render.say("  " + render.harmless(why, 500), stream)


def opened_beside(job: str | None, stream: TextIO | None = None) -> None:
    """That a job which ran here when this shell was opened, in none, is over."""
    if job is not None:
        sentence = _(
            "This shell outlives your job {job}, which ran on this node when it was opened; no job of yours is here any more."
        )
        render.say(sentence.format(job=render.harmless(job)), stream)


def not_looked_at(nodes: tuple[str, ...], stream: TextIO | None = None) -> None:
    """The other nodes of this job: one line, however many there are."""
    if nodes:
        names = ", ".join(nodes if len(nodes) <= _NAMED_NODES else (*nodes[: _NAMED_NODES - 1], "…", nodes[-1]))
        if schedulers.here().reaches_nodes:
            sentence = _("Not looked at: {nodes}, of the same job. To look there: handwash clean --all-nodes --dry-run")
        else:
            sentence = _("Not looked at: {nodes}, of the same job. To look, log in there and type: handwash check")
        render.say(sentence.format(nodes=render.harmless(names)), stream)


def keeps_job(processes: tuple[Process, ...], node: Union[Node, Unknown], stream: TextIO | None = None) -> None:
    """What keeps the job and its GPUs when the shell has gone, and what to do about it (PBS waits for the terminal)."""
    if not processes or isinstance(node, Unknown):
        return
    sentence = ngettext(
        "Process {names} holds this terminal: after you leave, job {job} and the GPUs it holds stay allocated until it ends. "
        "End it first, or start it without the terminal: nohup COMMAND >FILE 2>&1 </dev/null &",
        "Processes {names} hold this terminal: after you leave, job {job} and the GPUs it holds stay allocated until they end. "
        "End them first, or start them without the terminal: nohup COMMAND >FILE 2>&1 </dev/null &",
        len(processes),
    )
    names = ", ".join(f"{one.pid} ({render.harmless(one.name, 30)})" for one in processes[:_NAMED_PROCESSES])
    if len(processes) > _NAMED_PROCESSES:
        names += ", …"
    out = sys.stdout if stream is None else stream
    said = sentence.format(names=names, job=render.harmless(node.job or ""))
    render.say(render.style(said, "yellow", out), stream)


def job_hint(job: Job) -> str:
    """An interactive job with GPUs that may have nobody in it."""
    sentence = _("Job {job} is interactive and still runs. If nobody works in it, end it with: {line}")
    name = render.harmless(job.id)
    return sentence.format(job=name, line=schedulers.here().cancel_line(name))


def batch_hint(jobs: tuple[str, ...]) -> str:
    """How to end a batch job: one line for all of them, and never one that ends them all when it is copied."""
    names = render.harmless(", ".join(jobs if len(jobs) <= _NAMED_JOBS else (*jobs[: _NAMED_JOBS - 1], "…")))
    if len(jobs) == 1:
        sentence = _("To end batch job {job} if you no longer want it: {line}")
        return sentence.format(job=names, line=schedulers.here().cancel_line(names))
    sentence = _("To end a batch job that you no longer want ({jobs}): {line}")
    return sentence.format(jobs=names, line=schedulers.here().cancel_line(_("JOB")))


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
