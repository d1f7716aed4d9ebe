"""`handwash banner`: what a login shows after the first line that the shell itself has printed. Goes to standard error."""

from __future__ import annotations

import sys

from handwash import judge, left_behind, limits, opened, remarks, survey, tell, world
from handwash.config import Config
from handwash.exits import Exit
from handwash.render import harmless, warn


def banner(settings: Config) -> int:
    """Always 0: a banner is for reading. It takes half of the check's deadline at most, so that no login waits for it."""
    if settings.disable or settings.banner != "full":
        return Exit.CLEAN
    for complaint in settings.complaints:
        warn("handwash: " + harmless(complaint, 500))
    seen = survey.take(settings.deadline / 2)
    now = world.now()
    verdict = judge.judge(seen, world.uid(), now, settings.policy)
    warn("  " + tell.place(seen.node))
    tell.outlived(remarks.outlived_job(seen), sys.stderr)
    tell.opened_beside(opened.over(seen), sys.stderr)
    tell.three_looks(seen, verdict, sys.stderr)
    for note in left_behind.collect(seen, verdict):
        warn("  " + note)
    if verdict.leftovers:
        tell.process_table(verdict.leftovers, seen, now, sys.stderr)
        tell.summary(verdict, sys.stderr)
    tell.keeps_job(judge.keeping(seen, world.uid()), seen.node, sys.stderr)
    tell.not_looked_at(remarks.other_nodes(seen), sys.stderr)
    tell.over_limits(limits.over(seen, verdict, settings.policy, now), sys.stderr)
    for job in remarks.unattended_jobs(seen, world.host()):
        warn("  " + tell.job_hint(job))
    if remarks.has_gpus_here(seen):
        # One line: there is more of it in `handwash`.
        from handwash import tell_idle

        for line in tell_idle.lines(seen, settings.idle_after)[:1]:
            warn("  " + line)
    opened.note(seen)
    return Exit.CLEAN
