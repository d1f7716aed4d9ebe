"""`handwash clean --session ID`: what a session on record has left on this node, and its record closed afterwards."""

from __future__ import annotations

from handwash import cleaning, remarks, schedulers
from handwash.commands import elsewhere
from handwash.giveback import Done
from handwash.messages import _, ngettext
from handwash.model import Survey, Verdict
from handwash.run import CouldNotTell
from handwash.srun import history

# Of the sessions that one short name fits.
_SHOWN = 5


def plan(session: str, seen: Survey, verdict: Verdict, seconds: float) -> cleaning.Plan:
    """What is left of it here. One that still runs, or may, is never ended: the complaint says how its owner ends it."""
    found = _find(session)
    if found is None:
        several = _called(session)
        if several:
            sentence = _("{session} is the beginning of more than one session: {names}. Nothing was ended.")
            return cleaning.Plan(complaint=sentence.format(session=repr(session), names=_names(several)))
        sentence = _("There is no session {session} on record; see: handwash sessions")
        return cleaning.Plan(complaint=sentence.format(session=repr(session)))
    living = seen.living
    if not found.closed:
        if found.watched:
            sentence = _(
                "Session {session} still runs on {host}: end it where it was started, with exit or Ctrl-C. "
                "Nothing was ended."
            )
            return cleaning.Plan(complaint=sentence.format(session=session, host=found.host))
        queued = [job for job in found.own_jobs if living is not None and job in living]
        if queued and found.step is not None:
            # In an allocation of one's own only the step is the session's.
            try:
                queued = [job for job in queued if found.step in elsewhere.living_steps(job, seconds)]
            except CouldNotTell as reason:
                return cleaning.Plan(complaint=str(reason), unsure=True)
        if queued:
            sentence = _(
                "Session {session} has never closed and what it started is still in the queue; "
                "end that first: {line}. Nothing was ended."
            )
            names = [f"{job}.{found.step}" if found.step else job for job in queued]
            line = schedulers.here().cancel_line(" ".join(names))
            return cleaning.Plan(complaint=sentence.format(session=session, line=line))
        if found.watched is None and living is not None and living & set(found.own_jobs):
            pass  # its step is over
        elif found not in history.never_closed([found], living):
            sentence = _("Whether session {session} still runs on {host} cannot be told from here. Nothing was ended.")
            return cleaning.Plan(complaint=sentence.format(session=session, host=found.host), unsure=True)
        if living is None and found.own_jobs:
            sentence = _("Whether job {job} of session {session} is over could not be told. Nothing was ended.")
            return cleaning.Plan(complaint=sentence.format(session=session, job="+".join(found.jobs)), unsure=True)
    there = remarks.of_session(verdict, session, found.named_jobs)
    services = tuple(
        (one, "service") for one in verdict.judged if one.process.session == session and one.whose == "service"
    )
    agreed = cleaning.without_mps(seen, there)
    return cleaning.Plan(agreed.targets, (*agreed.held_back, *services))


def close(session: str, result: Done | None) -> None:
    """Closes the record of one that never closed. Not "clean": what its watchers missed while dead nobody has seen."""
    found = _find(session)
    if found is None or found.closed:
        return
    count = len(result.ended) if result is not None else 0
    sentence = ngettext(
        "closed by `handwash clean`: {count} process ended",
        "closed by `handwash clean`: {count} processes ended",
        count,
    )
    killed = len(result.killed) if result is not None else 0
    history.close(found, "unconfirmed", killed=killed, receipt=sentence.format(count=count))


def whole(session: str) -> str:
    """The whole name of the one session on record that is called so, in full or with the beginning of its last part."""
    if _find(session) is not None:
        return session
    found = _called(session)
    return found[0] if len(found) == 1 else session


def _called(beginning: str) -> list[str]:
    """The sessions whose last part begins so, if that is as long as tables show it."""
    if len(beginning) < len("0a0b0c"):
        return []
    return [one.id for one in history.load() if one.id.rpartition("-")[2].startswith(beginning)]


def _names(sessions: list[str]) -> str:
    return ", ".join(sessions[:_SHOWN]) + (", …" if len(sessions) > _SHOWN else "")


def _find(session: str) -> history.Session | None:
    return next((one for one in history.load() if one.id == session), None)
