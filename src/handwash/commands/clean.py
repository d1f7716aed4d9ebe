"""`handwash clean`: shows what it will end and asks; TERM, grace, KILL; then shows what is gone and what memory came back."""

from __future__ import annotations

import sys

from handwash import answers, cleaning, giveback, groups, judge, render, survey, tell, tell_clean, world
from handwash.commands import elsewhere, offers
from handwash.commands.elsewhere import Elsewhere
from handwash.config import Config
from handwash.exits import Exit
from handwash.frozen import frozen, replace
from handwash.messages import _, ngettext
from handwash.model import Judged, Survey, Unknown, Verdict
from handwash.render import harmless
from handwash.survey import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO


@frozen
class Options:
    """The words after `clean`. `steps`, `exactly`: said by another node's handwash, see `elsewhere`."""

    pids: tuple[int, ...] = ()
    yes: bool = False
    dry_run: bool = False
    session: str | None = None
    as_json: bool = False
    all_nodes: bool = False
    steps: tuple[str, ...] | None = None
    exactly: tuple[tuple[int, int], ...] | None = None

    @property
    def named(self) -> bool:
        """Whether a person has named what is to be ended."""
        return bool(self.pids) or self.session is not None or self.exactly is not None


def clean(settings: Config, options: Options) -> int:
    """0 nothing is left · 1 something is, or would have been ended (--dry-run), or the person said no · 3 could not tell."""
    if options.session is not None:
        options = _whole(options, options.session)
    seen = replace(survey.take(settings.deadline), living_steps=options.steps)
    other = elsewhere.ask(seen, settings, options.session) if options.all_nodes else None
    if other:
        seen = replace(seen, living_steps=other.steps)
    verdict = judge.judge(seen, world.uid(), world.now(), settings.policy)
    if not options.named and giveback.may_have_started(verdict.leftovers, seen):
        seen = giveback.with_new_jobs(settings, seen)
        verdict = judge.judge(seen, world.uid(), world.now(), settings.policy)
    plan = _plan(settings, options, seen, verdict)
    if plan.complaint:
        return _refuse(plan, options.as_json)
    # What is named is ended whatever else could not be looked at.
    unknown = () if options.named else verdict.unknown
    out = sys.stderr if options.as_json else sys.stdout
    agreed = options.yes
    if not plan.targets and not (other and other.targets):
        if not options.dry_run and _may_ask_of_mps(options, plan):
            tell_clean.held_back(plan.held_back, seen, out)
            plan = _with_mps(options, plan, out)
            agreed = bool(plan.targets)
        if not agreed or not plan.targets:
            return _nothing(settings, options, seen, verdict, plan, other)
    elif not options.as_json:
        if plan.targets:
            tell_clean.plan(plan.targets, seen, world.now())
            tell_clean.shared(plan.targets, seen)
        if other:
            other.show_targets(out)
        tell_clean.held_back(plan.held_back, seen)
    count = len(plan.targets) + (len(other.targets) if other else 0)
    if options.dry_run:
        if options.as_json:
            answers.show({**_json(None, plan, other, unknown), **_would(plan, seen)})
        else:
            sentence = ngettext("{count} process would be ended.", "{count} processes would be ended.", count)
            render.say(sentence.format(count=count))
            tell.could_not_tell(unknown)
        return Exit.FOUND
    if not agreed:
        if not _agreed(count, out):
            if options.as_json:
                answers.show(_json(None, plan, other, unknown))
            return Exit.FOUND
        plan = _with_mps(options, plan, out)
    try:
        result = giveback.end_all(settings, seen, plan.targets, only_leftovers=not options.named)
        if other:
            other.end(settings)
    except KeyboardInterrupt:
        return _interrupted(options, giveback.interrupted(plan.targets, seen), plan, other)
    if options.session is not None:
        _close(options.session, result, plan, other)
    unsure = unknown
    if options.as_json:
        answers.show(_json(result, plan, other, unknown))
    else:
        tell_clean.done(result, seen)
        tell.could_not_tell(unknown)
        if other:
            other.show_results(out)
        _tell_new(result)
        if not options.named:
            found = offers.look(settings, seen)
            tell.could_not_tell(found.unknown)
            unsure = (*unknown, *found.unknown)
            _offer(settings, seen, options.yes, found)
    return _code(result, plan, unsure, other)


def _interrupted(options: Options, result: giveback.Done, plan: cleaning.Plan, other: Elsewhere | None) -> int:
    """What has ended, and what lives. Of another node that has not answered nobody knows."""
    if other:
        other.break_off()
    if options.as_json:
        answers.show(_json(result, plan, other, ()))
    else:
        tell_clean.interrupted(result)
        if other:
            other.show_results(sys.stdout)
    return Exit.INTERRUPTED


def _whole(options: Options, session: str) -> Options:
    """The session by its whole name, where it was asked for as tables show it."""
    from handwash.commands import of_session

    return replace(options, session=of_session.whole(session))


def _plan(settings: Config, options: Options, seen: Survey, verdict: Verdict) -> cleaning.Plan:
    if isinstance(seen.processes, Unknown):
        return cleaning.Plan(complaint=seen.processes.why, unsure=True)
    if options.exactly is not None:
        wanted = set(options.exactly)
        there = tuple(one for one in verdict.judged if (one.process.pid, one.process.start_ticks) in wanted)
        return cleaning.Plan(tuple(one for one in there if one.process.uid == world.uid()))
    if options.pids:
        owners = {pid: procfs.owner(pid) for pid in options.pids}
        strangers = {pid: world.user_name(uid) for pid, uid in owners.items() if uid is not None and uid != world.uid()}
        return cleaning.picked(list(options.pids), seen, verdict.judged, world.uid(), strangers)
    if options.session is not None:
        from handwash.commands import of_session

        return of_session.plan(options.session, seen, verdict, settings.deadline)
    return cleaning.without_mps(seen, verdict.leftovers)


def _nothing(
    settings: Config, options: Options, seen: Survey, verdict: Verdict, plan: cleaning.Plan, other: Elsewhere | None
) -> int:
    """Nothing is to be ended: what is held back, what has ended already, and jobs that may have nobody in them."""
    unknown = () if options.named else verdict.unknown
    if options.session is not None and not options.dry_run:
        _close(options.session, None, plan, other)
    if options.as_json:
        answers.show(_json(None, plan, other, unknown))
    else:
        if options.dry_run or not _may_ask_of_mps(options, plan):  # else they have just been shown
            tell_clean.held_back(plan.held_back, seen)
        if other:
            other.show_results(sys.stdout)
        found = offers.Found() if options.named or options.dry_run else offers.look(settings, seen)
        unknown = (*unknown, *found.unknown)
        if found.unknown and verdict.verdict == "clean":
            verdict = replace(verdict, verdict="unknown")
        _say_nothing(options, seen, replace(verdict, unknown=(*verdict.unknown, *found.unknown)), plan, other)
        if not options.named and not options.dry_run:
            _offer(settings, seen, options.yes, found)
    if plan.held_back or (other is not None and other.stays):
        return Exit.FOUND
    return Exit.UNKNOWN if unknown or (other is not None and other.unsure) else Exit.CLEAN


def _say_nothing(
    options: Options, seen: Survey, verdict: Verdict, plan: cleaning.Plan, other: Elsewhere | None
) -> None:
    """That there is nothing here; "clean" only where nothing stays on the other nodes either, as far as anybody knows."""
    if options.session is not None:
        if not plan.held_back:
            render.say(_("Nothing of session {session} is left here.").format(session=harmless(options.session)))
        return
    if other and (other.stays or other.unsure) and verdict.verdict == "clean" and not isinstance(seen.node, Unknown):
        other.say_clean((seen.node.host,), sys.stdout)
    else:
        tell.could_not_tell(verdict.unknown)
        tell.summary(verdict)
    tell_clean.zombies(verdict.judged)


def _code(result: giveback.Done, plan: cleaning.Plan, unknown: tuple[str, ...], other: Elsewhere | None) -> int:
    """1 where a process is left or memory is known not to be back; 3 where that, or another look, could not be told."""
    held = any(word == "mps" for _one, word in plan.held_back)
    if result.left or held or result.returned is False or (other is not None and other.stays):
        return Exit.FOUND
    unsure = result.returned is None or result.unchecked is not None or unknown or (other is not None and other.unsure)
    return Exit.UNKNOWN if unsure else Exit.CLEAN


def end_all(settings: Config, seen: Survey, targets: tuple[Judged, ...], stream: TextIO | None) -> None:
    """Ends `targets` without a question (it has been answered); tells on `stream`, where somebody is there to read."""
    if giveback.may_have_started(targets, seen):
        seen = giveback.with_new_jobs(settings, seen)
        verdict = judge.judge(seen, world.uid(), world.now(), settings.policy)
        targets = tuple(one for one in verdict.leftovers if one.process in {before.process for before in targets})
        if stream is not None and isinstance(seen.jobs, Unknown):
            tell.could_not_tell(verdict.unknown, stream)
    plan = cleaning.without_mps(seen, targets)
    try:
        result = giveback.end_all(settings, seen, plan.targets)
    except KeyboardInterrupt:
        if stream is not None:
            tell_clean.interrupted(giveback.interrupted(plan.targets, seen), stream)
        raise
    if stream is not None:
        tell_clean.done(result, seen, stream)
        tell_clean.held_back(plan.held_back, seen, stream)


def _refuse(plan: cleaning.Plan, as_json: bool) -> int:
    if as_json:
        answers.show({**_json(None, plan, None, ()), "why": plan.complaint})
    else:
        render.warn("handwash: " + harmless(plan.complaint or "", 500))
    return Exit.UNKNOWN if plan.unsure else Exit.FOUND


def _agreed(count: int, stream: TextIO) -> bool:
    if not sys.stdin.isatty():
        render.warn(_("handwash: nobody is there to ask; to end without a question: handwash clean --yes"))
        return False
    question = ngettext("End this process? [y/N] ", "End these {count} processes? [y/N] ", count)
    return offers.is_yes(question.format(count=count), stream)


def _may_ask_of_mps(options: Options, plan: cleaning.Plan) -> bool:
    return not options.yes and sys.stdin.isatty() and any(word == "mps" for _one, word in plan.held_back)


def _with_mps(options: Options, plan: cleaning.Plan, stream: TextIO) -> cleaning.Plan:
    """Clients of the multi-process service are asked about apart, and never ended by --yes alone."""
    if not _may_ask_of_mps(options, plan):
        return plan
    clients = tuple(one for one, word in plan.held_back if word == "mps")
    question = ngettext("End the MPS client too? [y/N] ", "End the {count} MPS clients too? [y/N] ", len(clients))
    if not offers.is_yes(question.format(count=len(clients)), stream):
        return plan
    rest = tuple((one, word) for one, word in plan.held_back if word != "mps")
    return cleaning.Plan((*plan.targets, *clients), rest)


def _close(session: str, result: giveback.Done | None, plan: cleaning.Plan, other: Elsewhere | None) -> None:
    """Its record, unless something of it stays, or may: then the next login names it again."""
    from handwash.commands import of_session

    stays = any(word == "mps" for _one, word in plan.held_back) or (other and (other.stays or other.unsure))
    if not stays and (result is None or (not result.left and result.unchecked is None)):
        of_session.close(session, result)


def _tell_new(result: giveback.Done) -> None:
    new = [one for one, why in result.left if why == "new"]
    if new:
        tell.summary(Verdict("leftover", tuple(new), ()))


def _offer(settings: Config, seen: Survey, yes: bool, found: offers.Found) -> None:
    def end(seen: Survey, rest: tuple[Judged, ...]) -> None:
        tell_clean.plan(rest, seen, world.now())
        if _agreed(len(rest), sys.stdout):
            end_all(settings, seen, rest, sys.stdout)

    offers.make(settings, seen, found, not yes and sys.stdin.isatty(), end)


def _would(plan: cleaning.Plan, seen: Survey) -> dict[str, Any]:
    return {
        "would_end": [
            {**answers.process(one), "start_ticks": one.process.start_ticks, "step": one.process.step}
            for one in plan.targets
        ],
        "groups": [
            {
                "command": group.first.process.name,
                "job": group.first.process.job,
                "session": group.first.process.session,
                "pids": list(group.pids),
                "gpus": list(group.gpus),
            }
            for group in groups.of(plan.targets)
        ],
        "frees": [freed.gpu.index for freed in cleaning.frees(seen, plan.targets) if not freed.others],
    }  # fmt: skip


def _json(
    result: giveback.Done | None, plan: cleaning.Plan, other: Elsewhere | None, unknown: tuple[str, ...]
) -> dict[str, Any]:
    held = [{"pid": one.process.pid, "why": word} for one, word in plan.held_back]
    if result is not None and result.unchecked is not None:
        unknown = (*unknown, tell_clean.unchecked(result.unchecked))
    agents = dict(result.agents) if result else {}
    found: dict[str, Any] = {
        "ended": sorted(result.ended) if result else [],
        "killed": list(result.killed) if result else [],
        "left": [_left(one, why, agents.get(one.process.pid)) for one, why in result.left] if result else [],
        "memory": [
            {"index": row.index, "before": row.before, "after": row.after, "back": row.back} for row in result.memory
        ]
        if result
        else [],
        "returned": result.returned if result else None,
        "parents": [one.process.pid for one in result.parents] if result else [],
        "held_back": held,
        "unknown": list(unknown),
    }
    if other:
        found["nodes"] = other.json()
    return found


def _left(one: Judged, why: str, agent: Judged | None) -> dict[str, Any]:
    row: dict[str, Any] = {"pid": one.process.pid, "why": why}
    return row if agent is None else {**row, "agent": agent.process.pid}
