"""`handwash sessions`: what safe-srun recorded, newest first, with the processes and how each session ended."""

from __future__ import annotations

from handwash import answers, render
from handwash.config import Config
from handwash.exits import Exit
from handwash.messages import _, ngettext
from handwash.render import harmless
from handwash.srun import history

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# As many pids as fit on a line; --json has them all.
_SHOWN_PIDS = 8


def sessions(_settings: Config, as_json: bool) -> int:
    """0 every session ended clean or still runs · 1 one left something · 3 one could not be confirmed."""
    found = history.load()
    if as_json:
        answers.show({"items": [_json(session) for session in found]})
    elif not found:
        render.say(_("No session has been recorded yet. Run your work with safe-srun to have one."))
    for session in () if as_json else found:
        _tell(session)
    words = {session.outcome for session in found}
    if "leftover" in words:
        return Exit.FOUND
    return Exit.UNKNOWN if "unconfirmed" in words else Exit.CLEAN


def _tell(session: history.Session) -> None:
    render.say(f"{session.id}  {outcome(session)}  {harmless(session.command, 60)}")
    parts = []
    if session.job:
        number = f"{session.job}.{session.step}" if session.step else session.job
        parts.append(_("job {job}").format(job=harmless(number)))
    if session.nodes:
        parts.append(_("on {nodes}").format(nodes=harmless(",".join(session.nodes))))
    if session.started is not None:
        parts.append(_("started {time}").format(time=_time(session.started)))
    if session.ended is not None and session.started is not None:
        parts.append(_("took {time}").format(time=render.duration(session.ended - session.started)))
    render.say("    " + ", ".join(parts))
    seen = ngettext("{count} process seen", "{count} processes seen", session.processes)
    parts = [seen.format(count=session.processes)]
    if session.killed:
        parts.append(_("{count} ended by KILL").format(count=session.killed))
    if session.members:
        pids = ", ".join(f"{one.pid} {harmless(one.name, 20)}" for one in session.members[:_SHOWN_PIDS])
        if len(session.members) > _SHOWN_PIDS:
            pids += _(" and {count} more").format(count=len(session.members) - _SHOWN_PIDS)
        parts.append(pids)
    render.say("    " + ", ".join(parts))
    if session.left:
        _tell_left(session)
    if session.receipt:
        render.say("    " + harmless(session.receipt, 500))
    elif not session.closed and session.watched is False:
        sentence = _("It never closed; what is still there: handwash clean --dry-run --session {session}")
        render.say("    " + sentence.format(session=session.id))


def _tell_left(session: history.Session) -> None:
    from handwash.srun import stuck

    by_node: dict[str, list[tuple[int, str]]] = {}
    for item in session.left:
        by_node.setdefault(item["node"], []).append((item["pid"], item["why"]))
    for node, left in by_node.items():
        sentence = _("could not be ended on {node}: {stuck}")
        render.say("    " + sentence.format(node=harmless(node), stuck=harmless(stuck.reasons(left), 1000)))
    names = {(one.node, one.pid): one.name for one in session.members}
    rows = [
        (item["node"], item["pid"], names.get((item["node"], item["pid"]), ""), item["why"]) for item in session.left
    ]
    for line in stuck.for_administrator(rows, session.job or ""):
        render.say("    " + line)


def outcome(session: history.Session) -> str:
    """The outcome in a person's words."""
    if session.outcome == "running" and session.watched is None:
        return _("running, as far as can be seen from here (started on {host})").format(host=harmless(session.host))
    return {
        "running": _("running"),
        "clean": _("clean"),
        "leftover": _("left something"),
        "unconfirmed": _("not confirmed"),
    }[session.outcome]


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    from datetime import datetime

    try:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return None


def _json(session: history.Session) -> dict[str, Any]:
    return {
        "id": session.id,
        "job": session.job,
        "step": session.step,
        "nodes": list(session.nodes),
        "host": session.host,
        "command": session.command,
        "started": _time(session.started),
        "ended": _time(session.ended),
        "processes": session.processes,
        "killed": session.killed,
        "left": session.left,
        "members": [
            {"node": one.node, "pid": one.pid, "command": one.name, "alive": one.alive} for one in session.members
        ],
        "outcome": session.outcome,
        "closed": session.closed,
        "receipt": session.receipt,
    }
