"""What was left with nobody to ask, for the next banner: by a terminal that closed, by a session that never did."""

from __future__ import annotations

import os

from handwash import paths, remarks, schedulers, world
from handwash.messages import _, ngettext
from handwash.model import Survey, Unknown, Verdict
from handwash.render import harmless
from handwash.teardown import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handwash.srun.history import Session

_CAP = 256 * 1024
# More of them are in `handwash sessions`.
_SESSIONS_SHOWN = 3


def _path() -> str:
    return os.path.join(paths.state_dir(), f"left-behind.{world.host()}")


def note(verdict: Verdict) -> None:
    """Records pid, start time and program name of each leftover. A disk that is full or read-only costs the note."""
    lines = [
        f"{identity.boot_id()} {one.process.pid} {one.process.start_ticks} {harmless(one.process.name, 64)}"
        for one in verdict.leftovers
    ]
    try:
        paths.write_whole(_path(), ("\n".join(lines) + "\n").encode("utf-8", "replace"))
    except OSError:
        pass


def collect(seen: Survey, verdict: Verdict) -> list[str]:
    """A sentence on what of the last note is still alive, and one for each session that never closed."""
    if isinstance(seen.processes, Unknown):
        return []  # the notes stay for a banner that can tell
    return [*_of_terminal(seen), *_of_sessions(seen, verdict)]


def _of_terminal(seen: Survey) -> list[str]:
    """One sentence on what of the last note is still alive; the note is taken away. Empty where there was none."""
    assert not isinstance(seen.processes, Unknown)
    try:
        with open(_path(), "rb") as file:
            content = file.read(_CAP)
        os.unlink(_path())
    except OSError:
        return []
    alive = {(process.pid, process.start_ticks) for process in seen.processes if process.state not in ("Z", "X")}
    names = []
    for line in content.decode("utf-8", "replace").splitlines():
        words = line.split(" ", 3)
        if len(words) == 4 and words[0] == identity.boot_id() and words[1].isdigit() and words[2].isdigit():
            if (int(words[1]), int(words[2])) in alive:
                names.append(f"{words[1]} {harmless(words[3], 64)}")
    if not names:
        return []
    sentence = ngettext(
        "Still running since your terminal closed: {names}.",
        "Still running since your terminal closed: {names}.",
        len(names),
    )
    return [sentence.format(names=", ".join(names))]


def _of_sessions(seen: Survey, verdict: Verdict) -> list[str]:
    """Sessions that nobody closed. One of which nothing is left is named once: its record is closed then."""
    from handwash.srun import history

    living = seen.living
    found = history.never_closed(history.load(closed=False), living)
    sentences = [_about(session, verdict, living) for session in found[:_SESSIONS_SHOWN]]
    for session in found[:_SESSIONS_SHOWN]:
        if (
            living is not None
            and not living & set(session.own_jobs)
            and not remarks.of_session(verdict, session.id, session.named_jobs)
        ):
            history.close(session, "unconfirmed")
    if len(found) > _SESSIONS_SHOWN:
        more = _("{count} more sessions never closed; see: handwash sessions")
        sentences.append(more.format(count=len(found) - _SESSIONS_SHOWN))
    return sentences


def _about(session: Session, verdict: Verdict, living: frozenset[str] | None) -> str:
    there = remarks.of_session(verdict, session.id, session.named_jobs)
    named = {"session": session.id, "command": harmless(session.command, 40)}
    queued = [job for job in session.own_jobs if living is not None and job in living]
    if there:
        sentence = ngettext(
            "Session {session} ({command}) never closed, and {count} process of it still runs here: {names}. "
            "To end it: handwash clean --session {session}",
            "Session {session} ({command}) never closed, and {count} processes of it still run here: {names}. "
            "To end them: handwash clean --session {session}",
            len(there),
        )
        names = ", ".join(f"{one.process.pid} {harmless(one.process.name, 20)}" for one in there[:5])
        return sentence.format(count=len(there), names=names + (" …" if len(there) > 5 else ""), **named)
    if queued:
        sentence = _("Session {session} ({command}) never closed, and its job is still in the queue: {line}")
        return sentence.format(line=schedulers.here().cancel_line(harmless(" ".join(queued))), **named)
    if living is None and session.own_jobs:
        sentence = _("Session {session} ({command}) never closed; whether its job {job} is over could not be told.")
        return sentence.format(job=harmless(" ".join(session.jobs)), **named)
    elsewhere = [node for node in session.nodes if node != world.host()]
    if elsewhere:
        sentence = _("Session {session} ({command}) never closed; nothing of it is here; not looked at: {nodes}.")
        return sentence.format(nodes=harmless(", ".join(elsewhere)), **named)
    return _("Session {session} ({command}) never closed; nothing of it is left here.").format(**named)
