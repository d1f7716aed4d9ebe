"""The record of sessions: one main file each, written on the submit host, and part files written on the nodes.

    ID.session          a session that has not ended: what was run, job and step, who watches over it
    ID.ended            the same with what became of it, and with what the part files said
    ID.NODE.PID.part    what the guardian on a node has seen (see `part`); kept after the end only where something is left

Files are read by anybody's later version and on any host: what is damaged, foreign or newer is passed over.
"""

from __future__ import annotations

import os

from handwash import paths, world
from handwash.frozen import frozen
from handwash.srun import lines, part
from handwash.srun.sessions import folder
from handwash.teardown import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

OPEN, ENDED = ".session", ".ended"
KEPT_SESSIONS = 200
KEPT_SECONDS = 30 * 86400.0
OUTCOMES = ("clean", "leftover", "unconfirmed")
_SIZE_CAP = 4 * 1024 * 1024


@frozen
class PartWord:
    """What one guardian said last. `finished`: it has done all it had to do. `cgroup`: Slurm holds the step by a cgroup.

    `complete`: its supervisors could see every descendant of the command.
    """

    node: str
    boot: str
    job: str
    step: str
    cgroup: bool
    finished: bool
    took_over: bool
    complete: bool
    seen: int
    ended: int
    killed: int
    left: tuple[tuple[int, int, str], ...]
    processes: tuple[tuple[int, int, str], ...]
    helpers: tuple[tuple[int, int], ...]


@frozen
class Session:
    """One session as the contract shows it. `left`: processes that could not be ended, with node, pid and reason."""

    id: str
    job: str | None
    step: str | None
    nodes: tuple[str, ...]
    command: str
    started: float | None
    ended: float | None
    processes: int
    killed: int
    left: list[dict[str, Any]]
    outcome: str


class Main:
    """The main file of one session, as its owner writes it."""

    def __init__(self, session: str, command: str, where: str) -> None:
        self.session = session
        self.where = where
        me = os.getpid()
        self.fields: dict[str, str] = {
            "id": session,
            "command": command,
            "host": os.uname().nodename,
            "boot": identity.boot_id(),
            "started": f"{world.now():.3f}",
        }
        self.helpers: list[tuple[int, int]] = [(me, identity.start_of(me) or 0)]

    def set(self, **fields: object) -> None:
        """Sets fields; None takes one out."""
        for name, value in fields.items():
            if value is None:
                self.fields.pop(name, None)
            else:
                self.fields[name] = str(value)

    def write(self) -> bool:
        """Writes the file anew. A full or read-only disk costs the record only."""
        return self._write(OPEN, [("helper", *pair) for pair in self.helpers])

    def _write(self, suffix: str, more: list[tuple[object, ...]]) -> bool:
        if not self.where:
            return False
        try:
            paths.write_whole(
                os.path.join(self.where, self.session + suffix), lines.pack([*self.fields.items(), *more])
            )
        except OSError:
            return False
        return True

    def finish(self, outcome: str, words: list[PartWord]) -> None:
        """Closes the record with what became of the session."""
        self.set(outcome=outcome, ended=f"{world.now():.3f}")
        self.set(seen=sum(word.seen for word in words), killed=sum(word.killed for word in words))
        more: list[tuple[object, ...]] = [("node", word.node) for word in words]
        more += [("left", word.node, pid, why) for word in words for pid, _start, why in word.left]
        if not self._write(ENDED, more):
            return
        for name in os.listdir(self.where):
            if name == self.session + OPEN or (
                outcome == "clean" and name.startswith(self.session + ".") and name.endswith(part.SUFFIX)
            ):
                try:
                    os.unlink(os.path.join(self.where, name))
                except OSError:
                    pass


def _read(path: str) -> list[list[str]] | None:
    """The rows of a file that belongs to this user; None where there is no making sense of it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if status.st_uid != world.uid() or status.st_size > _SIZE_CAP or status.st_mode & 0o170000 != 0o100000:
            return None
        data = b""
        while chunk := os.read(fd, 1024 * 1024):
            data += chunk
    except OSError:
        return None
    finally:
        os.close(fd)
    return lines.unpack(data)


def _names(suffix: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder()) if name.endswith(suffix))
    except OSError:
        return []


def _value(rows: list[list[str]], name: str) -> str:
    return next((row[1] for row in rows if row[0] == name and len(row) > 1), "")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def read_part(path: str) -> PartWord | None:
    """One part file, or None."""
    rows = _read(path)
    if rows is None:
        return None
    try:
        return PartWord(
            node=_value(rows, "node"),
            boot=_value(rows, "boot"),
            job=_value(rows, "job"),
            step=_value(rows, "step"),
            cgroup=_value(rows, "cgroup") == "1",
            finished=bool(_value(rows, "finished")),
            took_over=_value(rows, "took-over") == "1",
            complete=_value(rows, "complete") == "1",
            seen=int(_value(rows, "seen")),
            ended=int(_value(rows, "ended")),
            killed=int(_value(rows, "killed")),
            left=tuple((int(row[1]), int(row[2]), row[3]) for row in rows if row[0] == "left"),
            processes=tuple((int(row[1]), int(row[2]), row[3]) for row in rows if row[0] == "process"),
            helpers=tuple((int(row[1]), int(row[2])) for row in rows if row[0] == "helper"),
        )
    except (ValueError, IndexError):
        return None


def parts_of(session: str, where: str) -> list[PartWord]:
    """What the guardians of one session have said so far."""
    try:
        names = os.listdir(where)
    except OSError:
        return []
    found = []
    for name in names:
        if name.startswith(session + ".") and name.endswith(part.SUFFIX):
            word = read_part(os.path.join(where, name))
            if word is not None:
                found.append(word)
    return found


def _all_parts() -> Iterator[tuple[str, PartWord]]:
    where = folder()
    for name in _names(part.SUFFIX):
        word = read_part(os.path.join(where, name))
        if word is not None:
            yield name.split(".", 1)[0], word


def recorded() -> dict[tuple[int, int], tuple[str, str, str]]:
    """(pid, start time) of every process recorded in this boot, to (session, job, step)."""
    boot = identity.boot_id()
    found: dict[tuple[int, int], tuple[str, str, str]] = {}
    for session, word in _all_parts():
        if word.boot == boot:
            for pid, start, _name in word.processes + word.left:
                found[pid, start] = (session, word.job, word.step)
    return found


def _main_rows(suffix: str) -> Iterator[tuple[str, list[list[str]]]]:
    where = folder()
    for name in _names(suffix):
        rows = _read(os.path.join(where, name))
        session = name[: -len(suffix)]
        if rows is not None and _value(rows, "id") == session:
            yield session, rows


def _helpers(rows: Iterable[list[str]]) -> list[tuple[int, int]]:
    pairs = []
    for row in rows:
        if row[0] == "helper" and len(row) == 3 and row[1].isdigit() and row[2].isdigit():
            pairs.append((int(row[1]), int(row[2])))
    return pairs


def _alive(pairs: Iterable[tuple[int, int]]) -> list[int]:
    found = []
    for pid, start in pairs:
        who = identity.same(pid, start)
        if who is not None and who.alive:
            found.append(pid)
    return found


def helper_pids() -> list[int]:
    """handwash's own processes on this host: safe-srun, its keeper, supervisors and guardians. Never anybody's leftovers."""
    boot = identity.boot_id()
    pairs: list[tuple[int, int]] = []
    for _session, word in _all_parts():
        if word.boot == boot and not word.finished:
            pairs += word.helpers
    for _session, rows in _main_rows(OPEN):
        if _value(rows, "boot") == boot:
            pairs += _helpers(rows)
    return sorted(set(_alive(pairs)))


def _is_running(rows: list[list[str]]) -> bool:
    """Whether somebody still watches over it; on another host that cannot be seen, and it counts as running."""
    if _value(rows, "host") != os.uname().nodename:
        return True
    return _value(rows, "boot") == identity.boot_id() and bool(_alive(_helpers(rows)))


def running() -> list[str]:
    """The ids of sessions that have not ended."""
    return [session for session, rows in _main_rows(OPEN) if _is_running(rows)]


def _is_left(row: list[str]) -> bool:
    return row[0] == "left" and len(row) == 4 and row[2].isdigit()


def _count(rows: list[list[str]], name: str) -> int:
    text = _value(rows, name)
    return int(text) if text.isdigit() else 0


def _session(
    rows: list[list[str]], nodes: list[str], counts: tuple[int, int], left: list[dict[str, Any]], outcome: str
) -> Session:
    return Session(
        id=_value(rows, "id"),
        job=_value(rows, "job") or None,
        step=_value(rows, "step") or None,
        nodes=tuple(sorted(set(nodes))),
        command=_value(rows, "command"),
        started=_number(_value(rows, "started")),
        ended=_number(_value(rows, "ended")),
        processes=counts[0],
        killed=counts[1],
        left=left,
        outcome=outcome,
    )


def load_sessions() -> list[Session]:
    """Every session on record, newest first."""
    words: dict[str, list[PartWord]] = {}
    for session, word in _all_parts():
        words.setdefault(session, []).append(word)
    found = []
    done = set()
    for session, rows in _main_rows(ENDED):
        done.add(session)
        left = [{"node": row[1], "pid": int(row[2]), "why": row[3]} for row in rows if _is_left(row)]
        nodes = [row[1] for row in rows if row[0] == "node" and len(row) > 1]
        outcome = _value(rows, "outcome")
        counts = (_count(rows, "seen"), _count(rows, "killed"))
        found.append(_session(rows, nodes, counts, left, outcome if outcome in OUTCOMES else "unconfirmed"))
    for session, rows in _main_rows(OPEN):
        if session in done:
            continue
        parts = words.get(session, [])
        left = [{"node": word.node, "pid": pid, "why": why} for word in parts for pid, _start, why in word.left]
        counts = (sum(word.seen for word in parts), sum(word.killed for word in parts))
        outcome = "running" if _is_running(rows) else "unconfirmed"
        found.append(_session(rows, [word.node for word in parts], counts, left, outcome))
    found.sort(key=lambda session: (session.started or 0.0, session.id), reverse=True)
    return found


def prune() -> None:
    """Takes away the files of old sessions. Looks at the ages only; does nothing while there are few."""
    where = folder()
    try:
        names = os.listdir(where)
    except OSError:
        return
    ids = sorted({name.split(".", 1)[0] for name in names if name.endswith((OPEN, ENDED))})
    if len(ids) <= KEPT_SESSIONS // 2:
        return
    oldest = world.now() - KEPT_SECONDS
    gone = set(ids[:-KEPT_SESSIONS])
    for session in ids[-KEPT_SESSIONS:]:
        try:
            if os.stat(os.path.join(where, session + ENDED)).st_mtime < oldest:
                gone.add(session)
        except OSError:
            pass
    still = set(running()) if gone else set()
    for name in names:
        if name.split(".", 1)[0] in gone - still:
            try:
                os.unlink(os.path.join(where, name))
            except OSError:
                pass
