"""What all records together say: every session, those that never closed, and which of them are old enough to go."""

from __future__ import annotations

import os

from handwash import world
from handwash.frozen import frozen
from handwash.node import part
from handwash.srun import record
from handwash.srun.sessions import folder
from handwash.teardown import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEPT_SESSIONS = 200
KEPT_SECONDS = 30 * 86400.0
# Half of a write that was cut off by a crash; no write takes this long.
_SCRATCH_SECONDS = 86400.0


@frozen
class Member:
    """One process on record. `alive`: None where it was on another node, or in another boot of it."""

    node: str
    pid: int
    start_ticks: int
    name: str
    alive: bool | None


@frozen
class Session:
    """One session as the contract shows it. `left`: processes that could not be ended, with node, pid and reason.

    `members`: the processes that were on record last. `watched`: whether somebody still watches over it on this host; None
    where it was started on another. A session that has ended is not watched; one that never closed has no `ended`. `local`: it
    ran its command itself (`--local`), so that its job, if any, is what it was in, and not what it has made; `allocation`: the
    one that the environment of such a session names although it is in none (salloc's shell).
    """

    id: str
    job: str | None
    step: str | None
    nodes: tuple[str, ...]
    command: str
    host: str
    started: float | None
    ended: float | None
    processes: int
    killed: int
    left: list[dict[str, Any]]
    members: tuple[Member, ...]
    outcome: str
    receipt: str | None
    watched: bool | None
    local: bool
    allocation: str | None

    @property
    def closed(self) -> bool:
        return self.ended is not None

    @property
    def jobs(self) -> tuple[str, ...]:
        """Those that its processes are in: more than one for a heterogeneous job."""
        return tuple(self.job.split("+")) if self.job else ()

    @property
    def named_jobs(self) -> tuple[str, ...]:
        """Those that the environment of its processes names."""
        return (*self.jobs, self.allocation) if self.allocation else self.jobs

    @property
    def own_jobs(self) -> tuple[str, ...]:
        """Those that it has made, or has made a step of: the session goes on as long as that does."""
        return () if self.local else self.jobs

    @property
    def alive(self) -> tuple[Member, ...]:
        """The processes on record that still run on this host."""
        return tuple(member for member in self.members if member.alive)


def load(closed: bool = True) -> list[Session]:
    """Every session on record, newest first; without the `closed` ones only few files are read."""
    words: dict[str, list[record.PartWord]] = {}
    if closed or record.names_of(record.OPEN):
        for session, word in record.all_parts():
            words.setdefault(session, []).append(word)
    found = {}
    # The running ones first: one that closes meanwhile is then met again among the ended.
    for session, rows in record.main_rows(record.OPEN):
        found[session] = _open(rows, words.get(session, []))
    for session, rows in record.main_rows(record.ENDED) if closed else ():
        found[session] = _ended(rows, words.get(session, []))
    return sorted(found.values(), key=lambda session: (session.started or 0.0, session.id), reverse=True)


def _open(rows: list[list[str]], parts: list[record.PartWord]) -> Session:
    boot = identity.boot_id()
    watched = record.is_running(rows)
    # A guardian on this node that still works will close its part, whoever else is dead.
    if watched is False and any(word.boot == boot and record.alive(word.helpers) for word in parts):
        watched = True
    left = [{"node": word.node, "pid": pid, "why": why} for word in parts for pid, _start, why in word.left]
    return _session(
        rows,
        nodes=[word.node for word in parts],
        processes=sum(word.seen for word in parts),
        killed=sum(word.killed for word in parts),
        left=left,
        members=_members(parts),
        outcome="unconfirmed" if watched is False else "running",
        ended=None,
        watched=watched,
    )


def _ended(rows: list[list[str]], parts: list[record.PartWord]) -> Session:
    left = [{"node": row[1], "pid": int(row[2]), "why": row[3]} for row in rows if _is_left(row)]
    past = [Member(row[1], int(row[2]), 0, row[3], False) for row in rows if row[0] == "was" and _is_whole(row)]
    outcome = record.value_of(rows, "outcome")
    return _session(
        rows,
        nodes=[row[1] for row in rows if row[0] == "node" and len(row) > 1],
        processes=_count(rows, "seen"),
        killed=_count(rows, "killed"),
        left=left,
        members=(*past, *_members(parts, with_past=False)),
        outcome=outcome if outcome in record.OUTCOMES else "unconfirmed",
        ended=_number(record.value_of(rows, "ended")) or 0.0,
        watched=False,
    )


def _members(parts: list[record.PartWord], with_past: bool = True) -> tuple[Member, ...]:
    boot = identity.boot_id()
    found = []
    for word in parts:
        here = word.boot == boot
        if with_past:
            found += [Member(word.node, pid, 0, name, False) for pid, name in word.past]
        for pid, start, name in word.processes:
            found.append(Member(word.node, pid, start, name, bool(record.alive([(pid, start)])) if here else None))
    return tuple(found)


def _session(rows: list[list[str]], *, nodes: list[str], **known: Any) -> Session:
    return Session(
        id=record.value_of(rows, "id"),
        job=record.value_of(rows, "job") or None,
        step=record.value_of(rows, "step") or None,
        nodes=tuple(sorted(set(nodes))),
        command=record.value_of(rows, "command"),
        host=record.value_of(rows, "host"),
        started=_number(record.value_of(rows, "started")),
        receipt=record.value_of(rows, "receipt") or None,
        local=bool(record.value_of(rows, "local")),
        allocation=record.value_of(rows, "allocation") or None,
        **known,
    )


def _is_whole(row: list[str]) -> bool:
    return len(row) == 4 and row[2].isdigit()


def _is_left(row: list[str]) -> bool:
    return row[0] == "left" and _is_whole(row)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _count(rows: list[list[str]], name: str) -> int:
    text = record.value_of(rows, name)
    return int(text) if text.isdigit() else 0


def never_closed(sessions: list[Session], living: frozenset[str] | None) -> list[Session]:
    """Those that nobody watches over any more and nobody has closed: the node crashed, the power was cut.

    One that was started on another host counts where it has made its job, or a step of it, and that is no longer in the queue
    (`living`: the jobs that are not over, None where that could not be told); else it may still run there.
    """

    def is_over(session: Session) -> bool:
        if session.watched is None:
            return living is not None and bool(session.own_jobs) and not living & set(session.own_jobs)
        return not session.watched

    return [session for session in sessions if not session.closed and is_over(session)]


def close(session: Session, outcome: str, killed: int = 0, receipt: str = "") -> bool:
    """Closes the record of a session that never did. False where it has been closed meanwhile, or cannot be written."""
    where = folder()
    rows = record.read_rows(os.path.join(where, session.id + record.OPEN))
    if rows is None or os.path.exists(os.path.join(where, session.id + record.ENDED)):
        return False
    kept: list[tuple[object, ...]] = [tuple(row) for row in rows if row[0] != "helper"]
    kept += [("receipt", receipt)] if receipt else []
    kept += [("outcome", outcome), ("ended", f"{world.now():.3f}")]
    kept += [("seen", session.processes), ("killed", session.killed + killed)]
    kept += [("node", node) for node in session.nodes]
    kept += [("was", member.node, member.pid, member.name) for member in session.members if not member.alive]
    kept += [("left", item["node"], item["pid"], item["why"]) for item in session.left]
    if not record.write(where, session.id, record.ENDED, kept):
        return False
    record.remove(where, session.id, parts=not session.alive)
    return True


def prune() -> None:
    """Takes away the files of old sessions. Looks at names and ages only; does nothing while there are few.

    What still runs, and what has processes on record that live here, stays however old it is.
    """
    where = folder()
    try:
        names = os.listdir(where)
    except OSError:
        return
    kinds = (record.OPEN, record.ENDED)
    ids = sorted({name.split(".", 1)[0] for name in names if name.endswith(kinds)})
    strays = [name for name in names if not name.endswith(kinds) and name.split(".", 1)[0] not in ids]
    if len(ids) <= KEPT_SESSIONS // 2 and len(strays) <= KEPT_SESSIONS // 2:
        return
    gone = set(ids[:-KEPT_SESSIONS])
    gone |= {session for session in ids[-KEPT_SESSIONS:] if _age(where, session + record.ENDED) > KEPT_SECONDS}
    if gone:
        gone -= set(record.running()) | {session for session, _job, _step in _living().values()}
    old = [
        name
        for name in strays
        if _age(where, name) > (KEPT_SECONDS if name.endswith(part.SUFFIX) else _SCRATCH_SECONDS)
    ]
    for name in [*(name for name in names if name.split(".", 1)[0] in gone), *old]:
        try:
            os.unlink(os.path.join(where, name))
        except OSError:
            pass


def _living() -> dict[tuple[int, int], tuple[str, str, str]]:
    return {pair: whose for pair, whose in record.recorded().items() if record.alive([pair])}


def _age(where: str, name: str) -> float:
    """Seconds since the file was written; 0 where there is none."""
    try:
        return world.now() - os.stat(os.path.join(where, name)).st_mtime
    except OSError:
        return 0.0
