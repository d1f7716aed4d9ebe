"""The node's part of a session's record: one file per guardian, written under a new name and renamed.

It lies beside the session's main file in the person's state folder, so it reaches the submit host through the shared home.
Without such a home, or on a full disk, there is no record; nothing else depends on it.
"""

from __future__ import annotations

import posix
import time

from handwash.node import wire
from handwash.node.wire import job_and_step, node_name
from handwash.teardown import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SUFFIX = ".part"
# More living processes than this are counted, not listed; of those that have ended the first few hundred are enough.
LISTED = 5000
PAST_LISTED = 300


def step_cgroup(pid: int) -> bytes:
    """The step's cgroup by which Slurm holds this process (freezer in v1, the only hierarchy in v2); empty for none."""
    data = identity.slurp(f"/proc/{pid}/cgroup") or b""
    for line in data.split(b"\n"):
        number, _, rest = line.partition(b":")
        controllers, _, path = rest.partition(b":")
        if (number == b"0" or b"freezer" in controllers.split(b",")) and b"/step_" in path:
            before, step, name = path.partition(b"/step_")
            return before + step + name.partition(b"/")[0]
    return b""


class Part:
    """What is known on this node about one session."""

    def __init__(self, session: str, folder: str) -> None:
        self.session = session
        self.boot = identity.boot_id()
        self.node = node_name()
        self.me = (posix.getpid(), identity.start_of(posix.getpid()) or 0)
        self.path = f"{folder}/{session}.{self.node}.{self.me[0]}{SUFFIX}" if folder else ""
        # Empty also when something of the session is elsewhere (moved by `systemd-run --scope`, say): then Slurm's end of the
        # step says nothing about that.
        self.cgroup = step_cgroup(self.me[0])
        self.started = time.time()
        self.helpers: set[tuple[int, int]] = {self.me}
        self.processes: dict[tuple[int, int], str] = {}
        self.past: dict[tuple[int, int], str] = {}
        self.seen = 0
        self.ended = 0
        self.killed = 0
        self.left: dict[tuple[int, int], str] = {}
        self.took_over = False
        # Without a subreaper (no way to call prctl) nobody can say that nothing is left.
        self.complete = True
        self.finished = 0.0
        # The last word on GPUs that do nothing: fields as `idle_look` has them; empty where none is to be told.
        self.idle: list[str] = []
        self.changed = True

    def add(self, pid: int, began: int, name: str) -> bool:
        """A process that was not known yet; True if it was added."""
        if (pid, began) in self.processes:
            return False
        self.processes[pid, began] = name
        self.seen += 1
        self.changed = True
        return True

    def add_past(self, pid: int, name: str) -> None:
        """A process that has ended before it could be looked at."""
        self.seen += 1
        self.changed = True
        if len(self.past) < PAST_LISTED:
            self.past[pid, 0] = name

    def check_cgroup(self, pid: int) -> None:
        """Notices a process that has left the step's cgroup."""
        if not self.cgroup or step_cgroup(pid) == self.cgroup:
            return
        # One that is just ending is in no cgroup either.
        time.sleep(0.02)
        found = identity.read(pid)
        if found is not None and found.alive and step_cgroup(pid) != self.cgroup:
            self.cgroup = b""
            self.changed = True

    def add_hidden(self, count: int) -> bool:
        """Processes that can be counted but not written down; True if there are any."""
        self.seen += count
        self.changed |= count > 0
        return count > 0

    def add_end(self, ended: int, killed: int, left: Mapping[int, str]) -> None:
        """What a teardown has done; `left` is pid to reason."""
        self.ended += ended
        self.killed += killed
        for pid, why in left.items():
            self.left[pid, identity.start_of(pid) or 0] = why

    def supersede(self) -> None:
        """Takes over what a guardian of this step has written that has died since, and takes its file away."""
        where, _slash, me = self.path.rpartition("/")
        prefix = f"{self.session}.{self.node}."
        try:
            names = posix.listdir(where) if where else []
        except OSError:
            # A node without the shared home.
            return
        for name in names:
            if name != me and name.startswith(prefix) and name.endswith(SUFFIX):
                try:
                    self._take_in(f"{where}/{name}")
                except (OSError, KeyError, IndexError, ValueError):
                    pass

    def _take_in(self, path: str) -> None:
        rows = wire.unpack(identity.slurp(path) or b"") or []
        said = {row[0]: row[1:] for row in rows}
        if said["finished"] != [""] or any(said[key] != [value] for key, value in self.place()):
            return
        who = identity.same(int(said["guardian"][0]), int(said["guardian"][1]))
        if who is not None and who.alive:
            return
        for row in rows:
            if row[0] == "left":
                self.left[int(row[1]), int(row[2])] = row[3]
            elif row[0] == "process":
                self.processes[int(row[1]), int(row[2])] = row[3]
            elif row[0] == "was" and len(self.past) < PAST_LISTED:
                self.past[int(row[1]), 0] = row[2]
        self.seen += int(said["seen"][0])
        self.ended += int(said["ended"][0])
        self.killed += int(said["killed"][0])
        self.took_over |= said["took-over"] == ["1"]
        self.complete &= said["complete"] == ["1"]
        posix.unlink(path)

    def place(self) -> list[tuple[str, str]]:
        """Where this is: node, boot and step."""
        job, step = job_and_step()
        return [
            ("id", self.session),
            ("node", self.node),
            ("host", posix.uname().nodename),
            ("boot", self.boot),
            ("job", job),
            ("step", step),
        ]

    def rows(self) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = [
            *self.place(),
            ("guardian", *self.me),
            ("cgroup", int(bool(self.cgroup))),
            ("started", f"{self.started:.3f}"),
            ("finished", f"{self.finished:.3f}" if self.finished else ""),
            ("took-over", int(self.took_over)),
            ("complete", int(self.complete)),
            ("seen", self.seen),
            ("ended", self.ended),
            ("killed", self.killed),
        ]
        rows += [("idle", *self.idle)] if self.idle else []
        rows += [("helper", *pair) for pair in sorted(self.helpers)]
        rows += [("process", *pair, name) for pair, name in list(self.processes.items())[:LISTED]]
        rows += [("was", pair[0], name) for pair, name in self.past.items()]
        rows += [("left", *pair, why) for pair, why in self.left.items()]
        return rows

    def write(self) -> None:
        """Writes the file anew, without the processes that have ended. A failure costs the record only."""
        self.changed = False
        for pair in [pair for pair in self.processes if identity.same(*pair) is None]:
            name = self.processes.pop(pair)
            if len(self.past) < PAST_LISTED:
                self.past[pair] = name
        if not self.path:
            return
        scratch = f"{self.path}.new"
        try:
            fd = posix.open(
                scratch, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC | posix.O_CLOEXEC | posix.O_NOFOLLOW, 0o600
            )
            try:
                content = memoryview(wire.pack(self.rows()))
                while content:
                    content = content[posix.write(fd, content) :]
            finally:
                posix.close(fd)
            posix.rename(scratch, self.path)
        except OSError:
            try:
                posix.unlink(scratch)
            except OSError:
                pass

    def finish(self) -> None:
        """The last word: everything that was to be done here has been done."""
        if not self.finished:
            self.finished = time.time()
            self.write()

    def close(self) -> None:
        """The loop has ended; where no task ever came there is nothing to tell."""
        self.finish()
