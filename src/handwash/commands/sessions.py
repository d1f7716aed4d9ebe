"""`handwash sessions`: what safe-srun recorded, newest first."""

from __future__ import annotations

from handwash import answers, render
from handwash.config import Config
from handwash.exits import Exit
from handwash.messages import _
from handwash.srun import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def sessions(_settings: Config, as_json: bool) -> int:
    """0 every session ended clean or still runs · 1 one left something · 3 one could not be confirmed."""
    found = record.load_sessions()
    if as_json:
        answers.show({"items": [_json(session) for session in found]})
    elif not found:
        render.say(_("No session has been recorded yet. Run your work with safe-srun to have one."))
    else:
        render.table(
            [
                _("session"),
                _("job"),
                _("nodes"),
                _("command"),
                _("started"),
                _("processes"),
                _("killed"),
                _("left"),
                _("outcome"),
            ],
            [
                (
                    session.id,
                    f"{session.job}.{session.step}" if session.job and session.step else session.job or "-",
                    ",".join(session.nodes) or "-",
                    session.command,
                    _time(session.started) or "-",
                    str(session.processes),
                    str(session.killed),
                    str(len(session.left)),
                    outcome(session.outcome),
                )
                for session in found
            ],
            numeric="567",
        )
    words = {session.outcome for session in found}
    if "leftover" in words:
        return Exit.FOUND
    return Exit.UNKNOWN if "unconfirmed" in words else Exit.CLEAN


def outcome(word: str) -> str:
    return {
        "running": _("running"),
        "clean": _("clean"),
        "leftover": _("left something"),
        "unconfirmed": _("not confirmed"),
    }[word]


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    from datetime import datetime

    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")


def _json(session: record.Session) -> dict[str, Any]:
    return {
        "id": session.id,
        "job": session.job,
        "step": session.step,
        "nodes": list(session.nodes),
        "command": session.command,
        "started": _time(session.started),
        "ended": _time(session.ended),
        "processes": session.processes,
        "killed": session.killed,
        "left": session.left,
        "outcome": session.outcome,
    }
