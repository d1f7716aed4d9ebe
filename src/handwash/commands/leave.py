"""`handwash leave HOW`: the check at exit. Only exit code 75 holds the person back; everything else lets go."""

from __future__ import annotations

import os
import sys

from handwash import judge, left_behind, limits, remarks, survey, tell, world
from handwash.config import Config
from handwash.exits import Exit
from handwash.messages import _
from handwash.model import Survey, Verdict
from handwash.render import warn
from handwash.services import SHELLS
from handwash.survey import procfs


def leave(settings: Config, how: str, again: bool) -> int:
    """`how`: exit or logout (can be held back), eof (the shell is going, its terminal is there), hup (nobody is there)."""
    if settings.disable or settings.on_exit == "off" or not _outermost():
        return Exit.CLEAN
    if again and settings.on_exit != "clean":
        return Exit.CLEAN
    # The hook's `timeout` sends TERM against an interpreter that hangs. This one has started; its looks are bounded by our
    # own deadline, which may be longer than the hook knows, and a person may think about the question as long as they like.
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    seen = survey.take(settings.deadline)
    verdict = judge.judge(seen, world.uid(), world.now(), settings.policy)
    excesses = limits.over(seen, verdict, settings.policy, world.now())
    if verdict.verdict == "clean":
        if how != "hup":
            # Work that somebody attends in another window is no leftover, but the login node has to bear it all the same.
            tell.keeps_job(judge.keeping(seen, world.uid()), seen.node, sys.stderr)
            tell.over_limits(excesses, sys.stderr)
            tell.not_looked_at(remarks.other_nodes(seen), sys.stderr)
        return Exit.CLEAN
    if how == "hup":
        return _nobody_there(settings, seen, verdict)
    if not verdict.leftovers:
        warn(_("handwash: could not tell whether anything of yours goes on here:"))
        tell.could_not_tell(verdict.unknown, sys.stderr)
        tell.keeps_job(judge.keeping(seen, world.uid()), seen.node, sys.stderr)
        tell.not_looked_at(remarks.other_nodes(seen), sys.stderr)
        return Exit.CLEAN
    if settings.on_exit == "clean":
        from handwash.commands import clean

        clean.end_all(settings, seen, verdict.leftovers, sys.stderr)
        # A service is no leftover, and keeps the job all the same.
        ended = {one.process for one in verdict.leftovers}
        rest = tuple(one for one in judge.keeping(seen, world.uid()) if one not in ended)
        tell.keeps_job(rest, seen.node, sys.stderr)
        tell.not_looked_at(remarks.other_nodes(seen), sys.stderr)
        return Exit.CLEAN
    _warn(seen, verdict)
    tell.over_limits(excesses, sys.stderr)
    tell.not_looked_at(remarks.other_nodes(seen), sys.stderr)
    if settings.on_exit == "warn":
        return Exit.CLEAN
    return _ask(settings, seen, verdict, can_stay=how in ("exit", "logout"))


def _nobody_there(settings: Config, seen: Survey, verdict: Verdict) -> int:
    if verdict.leftovers:
        if settings.on_exit == "clean":
            from handwash.commands import clean

            clean.end_all(settings, seen, verdict.leftovers, None)
        else:
            left_behind.note(verdict)
    return Exit.CLEAN


def _warn(seen: Survey, verdict: Verdict) -> None:
    warn(_("handwash: before you leave {place}").format(place=tell.place(seen.node)))
    tell.process_table(verdict.leftovers, seen, world.now(), sys.stderr)
    goes_on = [one for one in verdict.leftovers if one.fate == "survives"]
    ends = [one for one in verdict.leftovers if one.fate == "ends-with-job"]
    if goes_on:
        pids = ", ".join(str(one.process.pid) for one in goes_on)
        warn(_("These go on after you leave and may cost GPU-hours: {pids}").format(pids=pids))
    if ends:
        pids = ", ".join(str(one.process.pid) for one in ends)
        warn(_("These end with this session: {pids}").format(pids=pids))
    tell.keeps_job(judge.keeping(seen, world.uid()), seen.node, sys.stderr)
    tell.could_not_tell(verdict.unknown, sys.stderr)


def _ask(settings: Config, seen: Survey, verdict: Verdict, can_stay: bool) -> int:
    """The question. No answer, end of file and a terminal that cannot be read let go where staying is not possible."""
    if can_stay:
        question = _("[c] clean up and leave   [l] leave as it is   [s] stay (default): ")
        default = "s"
    else:
        question = _("[c] clean up and leave   [l] leave as it is (default): ")
        default = "l"
    answer = _read_answer(question)
    if answer is None:
        return Exit.CLEAN
    choice = answer.strip().lower()[:1] or default
    if choice == "c":
        from handwash.commands import clean

        clean.end_all(settings, seen, verdict.leftovers, sys.stderr)
        return Exit.CLEAN
    if choice == "l" or not can_stay:
        return Exit.CLEAN
    warn(_("Staying. A second exit in a row leaves without a question."))
    return Exit.STAY


def _read_answer(question: str) -> str | None:
    """A line from the controlling terminal; None where there is nobody to answer. Ctrl-C goes through: it cancels."""
    try:
        with open("/dev/tty", "r+b", buffering=0) as terminal:
            terminal.write(question.encode("utf-8", "replace"))
            line = b""
            while not line.endswith(b"\n"):
                part = terminal.read(256)
                if not part:
                    # Ctrl-D on the question is an answer (the default), on a closed terminal there is none.
                    return "" if os.isatty(terminal.fileno()) and line == b"" else line.decode("utf-8", "replace")
                line += part
            return line.decode("utf-8", "replace")
    except OSError:
        return None


def _outermost() -> bool:
    """Whether the asking shell is the outermost of its terminal: no other shell of the same job above it there.

    The shell that salloc gives sits on the terminal of the login shell, but leaving it ends an allocation: it counts.
    """
    chain = procfs.ancestors(os.getpid())
    shells: list[tuple[int, int]] = []
    for pid, name in chain:
        stat = procfs.stat_fields(pid)
        if stat is not None and name.lstrip("-") in SHELLS:
            shells.append((pid, int(stat[1][4])))
    if not shells:
        return True
    asking, terminal = shells[0]
    job = _job_of(asking)
    return not any(tty == terminal and tty != 0 and _job_of(pid) == job for pid, tty in shells[1:])


def _job_of(pid: int) -> str | None:
    """The job that a process was started in, as the hooks tell it. PBS sets both variables in all of a job."""
    found = procfs.environment(pid, (b"SLURM_JOB_ID", b"PBS_JOBID", b"PBS_ENVIRONMENT"))
    return found.get("SLURM_JOB_ID") or (found.get("PBS_JOBID") if found.get("PBS_ENVIRONMENT") else None)
