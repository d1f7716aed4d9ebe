"""The record of sessions: one main file each, written on the submit host, and part files written on the nodes.

    ID.session          a session that has not ended: what was run, job and step, who watches over it
    ID.ended            the same with what became of it, and with what the part files said
    ID.NODE.PID.part    what the guardian on a node has seen (see `part`); kept after the end only where something is left

Files are read by anybody's later version and on any host: what is damaged, foreign or newer is passed over. What all of
them together say, and how long they are kept, is in `history`.
"""

from __future__ import annotations

import os

from handwash import paths, world
from handwash.frozen import frozen
from handwash.node import part, wire
from handwash.srun.sessions import folder
from handwash.teardown import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OPEN, ENDED = ".session", ".ended"
OUTCOMES = ("clean", "leftover", "unconfirmed")
_SIZE_CAP = 4 * 1024 * 1024


@frozen
class PartWord:
    """What one guardian said last. `finished`: it has done all it had to do. `cgroup`: Slurm holds the step by a cgroup.

    `complete`: its supervisors could see every descendant of the command. `past`: some of the processes that have ended.
    `idle`: the last word on GPUs that do nothing, see `idle_told`; empty where there is none.
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
    past: tuple[tuple[int, str], ...]
    left: tuple[tuple[int, int, str], ...]
    processes: tuple[tuple[int, int, str], ...]
    helpers: tuple[tuple[int, int], ...]
    idle: tuple[str, ...] = ()

    @property
    def stuck(self) -> list[tuple[str, int, str, str]]:
        """(node, pid, name or "", reason) of each that could not be ended."""
        names = {(pid, start): name for pid, start, name in self.processes}
        return [(self.node, pid, names.get((pid, start), ""), why) for pid, start, why in self.left]


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
        return write(self.where, self.session, suffix, [*self.fields.items(), *more])

    def finish(self, outcome: str, words: list[PartWord]) -> None:
        """Closes the record with what became of the session."""
        self.set(outcome=outcome, ended=f"{world.now():.3f}")
        self.set(seen=sum(word.seen for word in words), killed=sum(word.killed for word in words))
        more: list[tuple[object, ...]] = [("node", word.node) for word in words]
        more += [("was", word.node, pid, name) for word in words for pid, name in word.past]
        more += [("left", word.node, pid, why) for word in words for pid, _start, why in word.left]
        if self._write(ENDED, more):
            remove(self.where, self.session, parts=outcome == "clean")


def write(where: str, session: str, suffix: str, rows: list[tuple[object, ...]]) -> bool:
    """Writes one file of a session anew; False where that could not be done."""
    if not where:
        return False
    try:
        paths.write_whole(os.path.join(where, session + suffix), wire.pack(rows))
    except OSError:
        return False
    return True


def remove(where: str, session: str, *, parts: bool) -> None:
    """Takes away the file of the running session, and on request what the nodes have said."""
    try:
        names = os.listdir(where)
    except OSError:
        return
    for name in names:
        if name == session + OPEN or (parts and name.startswith(session + ".") and name.endswith(part.SUFFIX)):
            try:
                os.unlink(os.path.join(where, name))
            except OSError:
                pass


def read_rows(path: str) -> list[list[str]] | None:
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
    return wire.unpack(data)


def names_of(suffix: str) -> list[str]:
    """The files of one kind."""
    try:
        return sorted(name for name in os.listdir(folder()) if name.endswith(suffix))
    except OSError:
        return []


def value_of(rows: list[list[str]], name: str) -> str:
    """The first field of that name, or nothing."""
    return next((row[1] for row in rows if row[0] == name and len(row) > 1), "")


def read_part(path: str) -> PartWord | None:
    """One part file, or None."""
    rows = read_rows(path)
    if rows is None:
        return None
    try:
        return PartWord(
            node=value_of(rows, "node"),
            boot=value_of(rows, "boot"),
            job=value_of(rows, "job"),
            step=value_of(rows, "step"),
            cgroup=value_of(rows, "cgroup") == "1",
            finished=bool(value_of(rows, "finished")),
            took_over=value_of(rows, "took-over") == "1",
            complete=value_of(rows, "complete") == "1",
            seen=int(value_of(rows, "seen")),
            ended=int(value_of(rows, "ended")),
            killed=int(value_of(rows, "killed")),
            past=tuple((int(row[1]), row[2]) for row in rows if row[0] == "was"),
            left=tuple((int(row[1]), int(row[2]), row[3]) for row in rows if row[0] == "left"),
            processes=tuple((int(row[1]), int(row[2]), row[3]) for row in rows if row[0] == "process"),
            helpers=tuple((int(row[1]), int(row[2])) for row in rows if row[0] == "helper"),
            idle=next((tuple(row[1:]) for row in rows if row[0] == "idle"), ()),
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


def all_parts() -> Iterator[tuple[str, PartWord]]:
    """Each part file that makes sense, with its session."""
    where = folder()
    for name in names_of(part.SUFFIX):
        word = read_part(os.path.join(where, name))
        if word is not None:
            yield name.split(".", 1)[0], word


def recorded() -> dict[tuple[int, int], tuple[str, str, str]]:
    """(pid, start time) of every process recorded in this boot, to (session, job, step)."""
    boot = identity.boot_id()
    found: dict[tuple[int, int], tuple[str, str, str]] = {}
    for session, word in all_parts():
        if word.boot == boot:
            for pid, start, _name in word.processes + word.left:
                found[pid, start] = (session, word.job, word.step)
    return found


def main_rows(suffix: str) -> Iterator[tuple[str, list[list[str]]]]:
    """The id and the rows of each main file of one kind that makes sense."""
    where = folder()
    for name in names_of(suffix):
        rows = read_rows(os.path.join(where, name))
        session = name[: -len(suffix)]
        if rows is not None and value_of(rows, "id") == session:
            yield session, rows


def helpers_in(rows: Iterable[list[str]]) -> list[tuple[int, int]]:
    """Who watched over a session: safe-srun and its keeper, as (pid, start time)."""
    pairs = []
    for row in rows:
        if row[0] == "helper" and len(row) == 3 and row[1].isdigit() and row[2].isdigit():
            pairs.append((int(row[1]), int(row[2])))
    return pairs


def alive(pairs: Iterable[tuple[int, int]]) -> list[int]:
    """The pids of those (pid, start time) pairs that still run."""
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
    for _session, word in all_parts():
        if word.boot == boot and not word.finished:
            pairs += word.helpers
    for _session, rows in main_rows(OPEN):
        if value_of(rows, "boot") == boot:
            pairs += helpers_in(rows)
    return sorted(set(alive(pairs)))


def is_running(rows: list[list[str]]) -> bool | None:
    """Whether somebody on this host still watches over it; None where it was started on another one: not to be seen here."""
    if value_of(rows, "host") != os.uname().nodename:
        return None
    return value_of(rows, "boot") == identity.boot_id() and bool(alive(helpers_in(rows)))


def running() -> list[str]:
    """The ids of sessions that have not ended."""
    return [session for session, rows in main_rows(OPEN) if is_running(rows) is not False]
