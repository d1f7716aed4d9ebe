"""`handwash status`, `where` and `check`: they look and tell, and change nothing."""

from __future__ import annotations

from handwash import answers, judge, limits, opened, remarks, render, survey, tell, world
from handwash.config import Config
from handwash.exits import Exit
from handwash.model import Judged, Survey, Unknown, Verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from handwash.idle import Doing

_CODES = {"clean": Exit.CLEAN, "leftover": Exit.FOUND, "unknown": Exit.UNKNOWN}


def where(settings: Config, as_json: bool) -> int:
    """Where am I: 0 if it could be told, 3 if not."""
    seen = survey.take(settings.deadline, only=("node", "jobs"))
    if as_json:
        answers.show(answers.where(seen))
    else:
        render.say(tell.place(seen.node))
        if not isinstance(seen.node, Unknown):
            for why in seen.node.why:
                render.say("  " + render.harmless(why, 500))
    return Exit.UNKNOWN if isinstance(seen.node, Unknown) else Exit.CLEAN


def check(settings: Config, as_json: bool) -> int:
    """The triple check. Exit code by the verdict."""
    return _look(settings, as_json, with_others=False)


def status(settings: Config, as_json: bool) -> int:
    """The triple check with all that is known of it: others' processes on the GPUs, allocations nobody may sit in."""
    return _look(settings, as_json, with_others=True)


def _look(settings: Config, as_json: bool, with_others: bool) -> int:
    seen = survey.take(settings.deadline)
    now = world.now()
    verdict = judge.judge(seen, world.uid(), now, settings.policy)
    excesses = limits.over(seen, verdict, settings.policy, now)
    doing: tuple[tuple[Doing, ...], bool] = ((), False)
    if remarks.has_gpus_here(seen):
        from handwash import idle_looks

        doing = idle_looks.take(seen, settings.idle_after)
    if as_json:
        answers.show({**answers.check(seen, verdict, doing[0]), **_more(seen, excesses)})
        return _CODES[verdict.verdict]
    render.say(tell.place(seen.node))
    tell.outlived(remarks.outlived_job(seen))
    tell.opened_beside(opened.over(seen))
    tell.three_looks(seen, verdict, batch=remarks.batch_jobs(seen) if with_others else ())
    rows = shown(verdict, with_others)
    if rows:
        tell.process_table(rows, seen, now)
    tell.keeps_job(judge.keeping(seen, world.uid()), seen.node)
    tell.over_limits(excesses)
    tell.not_looked_at(remarks.other_nodes(seen))
    tell.summary(verdict)
    if doing[0]:
        from handwash import tell_idle

        for line in tell_idle.say(doing, remarks.own_job(seen), remarks.job_gpus(seen)):
            render.say(line)
    if with_others:
        for job in remarks.unattended_jobs(seen, world.host()):
            render.say(tell.job_hint(job))
    return _CODES[verdict.verdict]


def _more(seen: Survey, excesses: tuple[limits.Excess, ...]) -> dict[str, Any]:
    """What the contract's object does not have: limits of a login node, and the nodes of this job that nobody looked at."""
    return {
        "over_limits": [
            {
                "kind": excess.kind,
                "measured": round(excess.measured, 2),
                "limit": excess.limit,
                "pids": [process.pid for process in excess.by],
            }
            for excess in excesses
        ],
        "other_nodes": list(remarks.other_nodes(seen)),
    }


def shown(verdict: Verdict, with_others: bool) -> tuple[Judged, ...]:
    """The rows worth a table: what is left over; with others, whoever else is on a GPU, and what holds one."""
    return tuple(one for one in verdict.judged if one.leftover or (with_others and one.process.gpus))
