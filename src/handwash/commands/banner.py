"""`handwash banner`: what a login shows after the first line that the shell itself has printed. Goes to standard error."""

from __future__ import annotations

import sys

from handwash import judge, left_behind, survey, tell, world
from handwash.config import Config
from handwash.exits import Exit
from handwash.messages import _
from handwash.render import harmless, warn


def banner(settings: Config) -> int:
    """Always 0: a banner is for reading. It takes half of the check's deadline at most, so that no login waits for it."""
    if settings.disable or settings.banner != "full":
        return Exit.CLEAN
    for complaint in settings.complaints:
        warn("handwash: " + harmless(complaint, 500))
    seen = survey.take(settings.deadline / 2)
    now = world.now()
    verdict = judge.judge(seen, world.uid(), now)
    warn("  " + tell.place(seen.node))
    tell.three_looks(seen, verdict, sys.stderr)
    for note in left_behind.collect(seen):
        warn("  " + note)
    if verdict.leftovers:
        tell.process_table(verdict.leftovers, seen, now, sys.stderr)
        tell.summary(verdict, sys.stderr)
    for job in judge.unattended_jobs(seen):
        sentence = _("Job {job} is interactive and still runs. If nobody works in it, end it with: scancel {job}")
        warn("  " + sentence.format(job=harmless(job.id)))
    return Exit.CLEAN
