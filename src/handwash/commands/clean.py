"""`handwash clean`: shows what it will end and asks; TERM, grace, KILL; then shows what is gone and what memory came back."""

from __future__ import annotations

import sys

from handwash import answers, judge, render, survey, tell, world
from handwash.config import Config
from handwash.exits import Exit
from handwash.frozen import replace
from handwash.messages import _, ngettext
from handwash.model import Judged, Survey, Unknown, Verdict
from handwash.render import harmless
from handwash.srun import record
from handwash.teardown import end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO

# How long the driver may take to give memory back after a process has gone.
_MEMORY_BACK_S = 3.0


def clean(
    settings: Config,
    pids: list[int],
    yes: bool = False,
    dry_run: bool = False,
    session: str | None = None,
    as_json: bool = False,
) -> int:
    """0 nothing is left · 1 something is, or would have been ended (--dry-run), or the person said no · 3 could not tell."""
    seen = survey.take(settings.deadline)
    verdict = judge.judge(seen, world.uid(), world.now())
    if isinstance(seen.processes, Unknown):
        return _refuse(seen.processes.why, as_json, Exit.UNKNOWN)
    if pids:
        targets, complaint = _picked(pids, seen, verdict.judged)
        if complaint:
            return _refuse(complaint, as_json, Exit.FOUND)
    elif session is not None:
        targets, complaint = _of_session(session, verdict.judged)
        if complaint:
            return _refuse(complaint, as_json, Exit.FOUND)
    else:
        targets = verdict.leftovers
    if not targets:
        if as_json:
            answers.show(_json(None, seen, seen))
        else:
            tell.summary(verdict)
        return Exit.UNKNOWN if verdict.verdict == "unknown" and not pids else Exit.CLEAN
    if not as_json:
        tell.process_table(targets, seen, world.now())
    if dry_run:
        if as_json:
            answers.show({**_json(None, seen, seen), "would_end": [answers.process(one) for one in targets]})
        else:
            sentence = ngettext("{count} process would be ended.", "{count} processes would be ended.", len(targets))
            render.say(sentence.format(count=len(targets)))
        return Exit.FOUND
    if not yes and not _agreed(len(targets), sys.stderr if as_json else sys.stdout):
        if as_json:
            answers.show(_json(None, seen, seen))
        return Exit.FOUND
    outcome, after = _end(settings, seen, targets)
    if not pids and session is None:
        verdict = judge.judge(survey.take(settings.deadline), world.uid(), world.now())
        outcome = _with_newcomers(outcome, verdict)
    if as_json:
        answers.show(_json(outcome, seen, after))
    else:
        _report(outcome, seen, after, sys.stdout)
        if any(why == "new" for _pid, why in outcome.left):
            tell.summary(verdict)
    if outcome.left:
        return Exit.FOUND
    return Exit.UNKNOWN if verdict.unknown and not pids and session is None else Exit.CLEAN


def end_all(settings: Config, seen: Survey, targets: tuple[Judged, ...], stream: TextIO | None) -> None:
    """Ends `targets` without a question (it has been answered); tells on `stream`, where somebody is there to read."""
    outcome, after = _end(settings, seen, targets)
    if stream is not None:
        verdict = judge.judge(survey.take(settings.deadline), world.uid(), world.now())
        _report(_with_newcomers(outcome, verdict), seen, after, stream)


def _with_newcomers(outcome: end.Outcome, verdict: Verdict) -> end.Outcome:
    """An agent can have started new workers while its old ones ended: those nobody has agreed to, so they are told."""
    known = {pid for pid, _why in outcome.left}
    new = tuple((one.process.pid, "new") for one in verdict.leftovers if one.process.pid not in known)
    return replace(outcome, left=outcome.left + new)


def _refuse(why: str, as_json: bool, code: int) -> int:
    if as_json:
        answers.show({"ended": [], "killed": [], "left": [], "memory": [], "why": why})
    else:
        render.warn("handwash: " + harmless(why, 500))
    return code


def _picked(pids: list[int], seen: Survey, judged: tuple[Judged, ...]) -> tuple[tuple[Judged, ...], str | None]:
    """The processes a person named, or why one of them is out of bounds. Nothing is ended where one is."""
    known = {one.process.pid: one for one in judged}
    for pid in pids:
        if pid in seen.chain or pid == 1:
            return (), _("{pid} is this shell, or one that it runs in: nothing was ended.").format(pid=pid)
        one = known.get(pid)
        if one is None:
            return (), _("{pid} is not a process of yours on this node: nothing was ended.").format(pid=pid)
        if one.process.uid != world.uid():
            sentence = _("{pid} belongs to {user}: handwash never ends other people's processes. Nothing was ended.")
            return (), sentence.format(pid=pid, user=one.process.user)
    return tuple(known[pid] for pid in dict.fromkeys(pids)), None


def _of_session(session: str, judged: tuple[Judged, ...]) -> tuple[tuple[Judged, ...], str | None]:
    """What a session on record has left here. Its cookie goes on into jobs that were submitted from it: those are not its."""
    on_record = next((one for one in record.load_sessions() if one.id == session), None)
    if on_record is None:
        return (), _("There is no session {session} on record; see: handwash sessions").format(session=repr(session))
    return tuple(
        one
        for one in judged
        if one.process.session == session
        and one.process.uid == world.uid()
        and one.process.job in (None, on_record.job)
        and one.whose != "service"
    ), None


def _agreed(count: int, stream: TextIO) -> bool:
    if not sys.stdin.isatty():
        render.warn(_("handwash: nobody is there to ask; to end without a question: handwash clean --yes"))
        return False
    question = ngettext("End this process? [y/N] ", "End these {count} processes? [y/N] ", count)
    stream.write(question.format(count=count))
    stream.flush()
    # The Chinese catalogue translates the question; both y and 是 agree.
    return sys.stdin.readline().strip().lower()[:1] in ("y", "是")


def _end(settings: Config, seen: Survey, targets: tuple[Judged, ...]) -> tuple[end.Outcome, Survey]:
    """Ends them, and looks at the GPUs again until the memory that they held is back, or it has waited long enough."""
    outcome = end.end([(one.process.pid, one.process.start_ticks) for one in targets], settings.grace, world.uid())
    limit = world.monotonic() + _MEMORY_BACK_S
    held = {index for one in targets for index in one.process.gpus}
    gone = {*outcome.ended, *outcome.gone}
    while True:
        after = survey.take(settings.deadline, only=("gpus",))
        if not held or isinstance(after.gpus, Unknown) or world.monotonic() > limit:
            return outcome, after
        if not any(use.pid in gone for gpu in after.gpus if gpu.index in held for use in gpu.uses):
            return outcome, after
        world.pause(0.1)


def _memory(before: Survey, after: Survey) -> list[dict[str, Any]]:
    """GPU memory in use before and after, in bytes, for each GPU whose use changed."""
    if isinstance(before.gpus, Unknown) or isinstance(after.gpus, Unknown):
        return []
    later = {gpu.uuid or gpu.index: gpu for gpu in after.gpus}
    rows = []
    for gpu in before.gpus:
        now = later.get(gpu.uuid or gpu.index)
        if now is not None and gpu.memory_used is not None and now.memory_used is not None:
            if gpu.memory_used != now.memory_used:
                rows.append({"index": gpu.index, "before": gpu.memory_used, "after": now.memory_used})
    return rows


def _json(outcome: end.Outcome | None, before: Survey, after: Survey) -> dict[str, Any]:
    done = outcome or end.Outcome()
    return {
        "ended": sorted({*done.ended, *done.gone}),
        "killed": list(done.killed),
        "left": [{"pid": pid, "why": why} for pid, why in done.left],
        "memory": _memory(before, after),
    }


def _report(outcome: end.Outcome, before: Survey, after: Survey, stream: TextIO) -> None:
    count = len(outcome.ended) + len(outcome.gone)
    sentence = ngettext("{count} process ended, {killed} by KILL.", "{count} processes ended, {killed} by KILL.", count)
    render.say(sentence.format(count=count, killed=len(outcome.killed)), stream)
    for row in _memory(before, after):
        memory = _("GPU {index}: memory in use went from {before} to {after}.")
        render.say(
            memory.format(index=row["index"], before=render.size(row["before"]), after=render.size(row["after"])),
            stream,
        )
    for pid, why in outcome.left:
        if why == "new":
            continue  # in the summary that follows
        render.say(_("Still there: {pid} ({why}).").format(pid=pid, why=_why_left(why)), stream)


def _why_left(why: str) -> str:
    if why.startswith("uninterruptible"):
        return _("it hangs in the kernel and cannot be killed; tell the administrator: {why}").format(why=why)
    return {
        "other-user": _("it belongs to another user now"),
        "itself": _("it is this shell, or one that it runs in"),
    }.get(why, _("it did not end"))
