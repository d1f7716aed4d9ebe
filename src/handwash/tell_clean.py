"""`clean` in a person's words: what will be ended, which GPUs come free by it, and what became of it all."""

from __future__ import annotations

from handwash import cleaning, groups, render, tell
from handwash.giveback import Done
from handwash.messages import _, ngettext
from handwash.model import Job, Judged, Survey
from handwash.render import harmless

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

    from handwash.schedulers.slurm_launchers import Step


# Of those whose children were ended.
_PARENTS = 3


def plan(targets: tuple[Judged, ...], seen: Survey, now: float, stream: TextIO | None = None) -> None:
    """What is to be ended, a line for each crowd; then the GPUs that come free by it, or who stays on them."""
    tell.process_table(targets, seen, now, stream)
    for group in groups.of(targets):
        if group.is_crowd:
            sentence = _("{count} × {name}: {pids}")
            name = harmless(group.first.process.name, 40)
            render.say(sentence.format(count=len(group.rows), name=name, pids=groups.ranges(group.pids)), stream)
    for freed in cleaning.frees(seen, targets):
        if freed.others:
            sentence = _("GPU {index} stays in use: {others}.")
            others = harmless(", ".join(freed.others[:3]) + (" …" if len(freed.others) > 3 else ""))
            render.say(sentence.format(index=freed.gpu.index, others=others), stream)
        else:
            render.say(_("GPU {index} comes free.").format(index=freed.gpu.index), stream)


def held_back(rows: tuple[tuple[Judged, str], ...], seen: Survey, stream: TextIO | None = None) -> None:
    """What is not ended, with the reason and what to type."""
    shared(tuple(one for one, word in rows if word == "mps"), seen, stream)
    for one, word in rows:
        if word == "mps":
            sentence = _("{pid} {name} stays, unless it is asked for by its number: handwash clean {pid}")
        else:
            sentence = _("{pid} {name} is a background service and stays. To end it: handwash clean {pid}")
        render.say(sentence.format(pid=one.process.pid, name=harmless(one.process.name, 40)), stream)


def shared(rows: tuple[Judged, ...], seen: Survey, stream: TextIO | None = None) -> None:
    """Which of them share their GPU through the multi-process service, with whom, and what that means."""
    partners = cleaning.mps_partners(seen, [one.process.pid for one in rows])
    for one in rows:
        pid = one.process.pid
        if pid in partners:
            sentence = _(
                "{pid} {name} shares its GPU through the multi-process service (MPS) with {others}: "
                "ending it with work queued can end those too."
            )
            others = ", ".join(str(other) for other in partners[pid][:5])
            render.say(sentence.format(pid=pid, name=harmless(one.process.name, 40), others=others), stream)


def zombies(judged: tuple[Judged, ...], stream: TextIO | None = None) -> None:
    """Those of one's own that have ended and wait for their parents: a line for each parent."""
    names = {one.process.pid: one.process.name for one in judged}
    by_parent: dict[int, list[Judged]] = {}
    for one in judged:
        if one.process.state in ("Z", "X") and one.whose != "other-user":
            by_parent.setdefault(one.process.ppid, []).append(one)
    for parent, rows in by_parent.items():
        sentence = ngettext(
            "{count} process has ended already and holds no GPU; its parent, {parent}, has not collected it.",
            "{count} processes have ended already and hold no GPU; their parent, {parent}, has not collected them.",
            len(rows),
        )
        name = harmless(f"{parent} {names[parent]}" if parent in names else str(parent), 60)
        render.say(sentence.format(count=len(rows), parent=name), stream)


def done(result: Done, seen: Survey, stream: TextIO | None = None) -> None:
    """What has gone, what memory came back, and what is still there, with the text for the administrator."""
    count = len(result.ended)
    sentence = ngettext("{count} process ended, {killed} by KILL.", "{count} processes ended, {killed} by KILL.", count)
    render.say(sentence.format(count=count, killed=len(result.killed)), stream)
    for row in result.memory:
        before, after = render.size(row.before), render.size(row.after)
        if row.before is None:
            continue  # known by its device file alone
        if row.back is None:
            sentence = _("GPU {index}: could not tell whether its memory came back ({before} before).")
        elif row.back:
            sentence = _("GPU {index}: memory in use went from {before} to {after}.")
        else:
            sentence = _("GPU {index}: memory in use went from {before} to {after}; not all of it came back.")
        render.say(sentence.format(index=row.index, before=before, after=after), stream)
    if result.driver_silent:
        sentence = _(
            "Could not tell whether GPU memory came back: the driver does not answer. Look again: handwash check"
        )
        render.say(sentence, stream)
    stuck = []
    agents = dict(result.agents)
    for one, why in result.left:
        if why == "new":
            continue  # in the summary that follows
        if one.process.pid in agents:
            render.say(_started_anew(one, agents[one.process.pid]), stream)
            continue
        render.say(_("Still there: {pid} ({why}).").format(pid=one.process.pid, why=why_left(why)), stream)
        if why.startswith("uninterruptible"):
            stuck.append((one, why))
    for parent in result.parents[:_PARENTS]:
        sentence = _(
            "{pid} {name}, which had started what was ended, is still there. "
            "To end it with all that it has started: handwash clean {pid}"
        )
        render.say(sentence.format(pid=parent.process.pid, name=harmless(parent.process.name, 40)), stream)
    if result.unchecked is not None:
        render.say(unchecked(result.unchecked), stream)
    if stuck:
        for_administrator(stuck, stream)


def interrupted(result: Done, stream: TextIO | None = None) -> None:
    """What had ended when the person broke off, and what lives."""
    count = len(result.ended)
    sentence = ngettext("Interrupted: {count} process has ended.", "Interrupted: {count} processes have ended.", count)
    render.say(sentence.format(count=count), stream)
    if result.left:
        pids = groups.ranges(one.process.pid for one, _why in result.left)
        render.say(_("These are still there, and may be about to end: {pids}").format(pids=pids), stream)


def unchecked(why: str) -> str:
    """That nobody has seen whether what was ended has been started anew."""
    sentence = _("Could not tell whether anything has been started anew: {why} Look again: handwash check")
    return sentence.format(why=harmless(why, 300))


def _started_anew(one: Judged, agent: Judged) -> str:
    """Who has started it, and how to end that; of a service (tmux, systemd --user) far more hangs on than this process."""
    if agent.whose == "service":
        sentence = _("Still there: {pid} {name}, started anew by the background service {agent} {agent_name}.")
    else:
        sentence = _(
            "Still there: {pid} {name}, started anew by {agent} {agent_name}. "
            "To end that with all that it has started: handwash clean {agent}"
        )
    return sentence.format(
        pid=one.process.pid, name=harmless(one.process.name, 40),
        agent=agent.process.pid, agent_name=harmless(agent.process.name, 40),
    )  # fmt: skip


def why_left(why: str) -> str:
    """The reason of the teardown in a person's words."""
    if why.startswith("uninterruptible"):
        return _("it hangs in the kernel and cannot be killed; tell the administrator: {why}").format(why=why)
    return {
        "other-user": _("it belongs to another user now"),
        "itself": _("it is this shell, or one that it runs in"),
        "restarted": _("something starts it again each time it is ended"),
        "mps": _("it shares its GPU through the multi-process service"),
        "service": _("it is a background service"),
        "interrupted": _("it was interrupted"),
    }.get(why, _("it did not end"))


def for_administrator(rows: list[tuple[Judged, str]], stream: TextIO | None = None) -> None:
    """The text to send: which processes on which node hang where in the kernel, and what they hold."""
    from handwash import world

    render.say(_("Send this to the administrator; only a reset of the device or a reboot helps:"), stream)
    for one, why in rows:
        process = one.process
        sentence = _(
            "node {host}: process {pid} ({name}, started {age} ago) of {user} is in state D, {why}, and does not go after "
            "KILL; job {job}; it holds {devices}"
        )
        text = sentence.format(
            host=world.host(), pid=process.pid, name=process.name, age=render.duration(world.now() - process.started),
            user=process.user, why=why, job=process.job or "-", devices=", ".join(process.devices) or "-",
        )  # fmt: skip
        render.say("  " + harmless(text, 600), stream)


def job_question(job: Job) -> str:
    """Whether a job that nobody sits in is to be cancelled."""
    sentence = ngettext(
        "Job {job} ({name}) holds {count} GPU, has run for {time}, and nobody is seen in it from here. Cancel it? [y/N] ",
        "Job {job} ({name}) holds {count} GPUs, has run for {time}, and nobody is seen in it from here. Cancel it? [y/N] ",
        job.gpus or 0,
    )
    return sentence.format(
        job=harmless(job.id), name=harmless(job.name, 40), count=job.gpus, time=render.duration(job.elapsed_s)
    )


def step_question(step: Step) -> str:
    """Whether a step that has lost its srun is to be cancelled."""
    sentence = _("Step {step} ({name}) runs on, but the srun that started it here is gone. Cancel it? [y/N] ")
    return sentence.format(step=harmless(step.id), name=harmless(step.name, 40))


def step_hint(step: Step) -> str:
    """The same without anybody to ask."""
    sentence = _("Step {step} ({name}) runs on, but the srun that started it here is gone. To end it: scancel {step}")
    return sentence.format(step=harmless(step.id), name=harmless(step.name, 40))
