"""The guardian: one process per node and step, outside the step's process tree, that takes over when supervisors die.

Each task's supervisors hold a connection to it. While they live it watches who appears below them and writes that down
(the session's part file). A connection that ends without a goodbye means that both supervisors of that task are dead: it
then ends what it has seen of that task and what carries the session's cookie, newest first, until a dozen looks stay calm.
With proctrack/cgroup it dies with the step, which is then Slurm's to end.
"""

from __future__ import annotations

import os
import select
import sys
import time

from handwash.srun import lines, part
from handwash.teardown import end, identity, tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket as _socket

    from handwash.srun.orders import Orders
    from handwash.srun.sweep import Sweep
else:
    # `socket` is as dear as `signal`; its C half is all that is needed.
    import _socket

SO_PEERCRED = 17
REPLY_LIMIT = 1.0
CALM_LOOKS = 12
FIRST_LOOK, SLOWEST_LOOK = 0.01, 2.0
# A look may take this part of the time between looks, so that a hundred idle children cost under 0.1 % of a core.
SHARE = 0.0008


def peer_uid(connection: _socket.socket) -> int:
    """The user at the other end: names of abstract sockets can be taken by anybody on the node."""
    data = connection.getsockopt(_socket.SOL_SOCKET, SO_PEERCRED, 12)
    return int.from_bytes(data[4:8], sys.byteorder)


class Chain:
    """A task's connection to the guardian, shared by its two supervisors."""

    def __init__(self, connection: _socket.socket) -> None:
        self.connection = connection
        self.heard = b""

    def tell(self, *fields: object) -> None:
        """One line; a guardian that is gone is done without."""
        try:
            self.connection.send(lines.join(fields).encode("utf-8", "surrogateescape") + b"\n")
        except OSError:
            pass

    def tell_ended(self, teardown: Sweep) -> None:
        """What the inner supervisor's teardown did."""
        self.tell("ended", len(teardown.ended), len(teardown.killed))
        for (pid, start), why in teardown.left.items():
            self.tell("left", pid, start, why)

    def hear(self, seconds: float) -> bytes:
        """The guardian's next words; empty where it has gone or does not answer in time."""
        poller = select.poll()
        poller.register(self.connection.fileno(), select.POLLIN)
        try:
            return self.connection.recv(64) if poller.poll(seconds * 1000) else b""
        except OSError:
            return b""

    def goodbye(self) -> None:
        """The clean end. Returns when the guardian has written down what it knows, and has gone if it goes (bounded).

        proctrack/cgroup finds it in the step's cgroup: a guardian still on its way out costs a second there (22.05).
        """
        self.tell("bye")
        while words := self.hear(REPLY_LIMIT):
            self.heard += words
        for line in self.heard.decode().split("\n"):
            word, *fields = lines.split(line)
            if word == "leaving":
                gone = identity.Handle(int(fields[0]), int(fields[1]))
                end.wait_for([gone], REPLY_LIMIT)
                gone.close()
        self.connection.close()


def join(orders: Orders) -> Chain | None:
    """Connects this task with its node's guardian, starting one where there is none. None where that cannot be."""
    step = f"{os.environ.get('SLURM_JOB_ID', '')}.{os.environ.get('SLURM_STEP_ID', '')}"
    address = f"\0handwash-{os.getuid()}-{orders.session}-{step}-{part.node_name()}"
    ours = False
    for _attempt in range(20):
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            connection.connect(address)
        except OSError:
            connection.close()
            ours = start(address, orders)
            if not ours:
                # Somebody else has just taken the name and does not listen yet.
                time.sleep(0.005)
            continue
        chain = Chain(connection)
        if peer_uid(connection) != os.getuid():
            connection.close()
            return None
        chain.tell("task", os.getpid(), identity.start_of(os.getpid()) or 0)
        # One that we have just started cannot be about to leave; its `ok` is heard with its goodbye.
        if ours or chain.hear(REPLY_LIMIT):
            return chain
        # It was about to leave, with the last task before us.
        connection.close()
    return None


def start(address: str, orders: Orders) -> bool:
    """Starts a guardian that listens at `address`. False where the name is taken or no process can be made.

    Called before this process becomes a subreaper, so that the guardian falls to init: proctrack/linuxproc, which follows
    parents, keeps a job running as long as it sees any process below slurmstepd.
    """
    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        listener.bind(address)
        listener.listen(128)
        child = os.fork()
    except OSError:
        listener.close()
        return False
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                leave_everything(listener.fileno())
                Guardian(listener, orders).run()
        finally:
            os._exit(0)
    listener.close()
    os.waitpid(child, 0)
    return True


def leave_everything(kept: int) -> None:
    """Lets go of the step's files: slurmstepd waits for the end of the tasks' output."""
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            try:
                os.close(int(name))
            except OSError:
                pass
    os.chdir("/")
    # Whatever the terminal or the step was signalled with is not for the guardian.
    import _signal as signals  # type: ignore[import-not-found, unused-ignore]

    signals.signal(signals.SIGINT, signals.SIG_DFL)


class Task:
    """One task as the guardian knows it."""

    def __init__(self, connection: _socket.socket) -> None:
        self.connection = connection
        self.root: tuple[int, int] | None = None
        self.seen: set[tuple[int, int]] = set()
        self.buffer = b""
        self.said_goodbye = False


class Guardian:
    """The loop, and what it knows."""

    def __init__(self, listener: _socket.socket, orders: Orders) -> None:
        self.listener = listener
        self.session = orders.session
        self.grace = orders.grace
        self.part = part.Part(orders.session, orders.folder)
        self.tasks: dict[int, Task] = {}
        self.pause = FIRST_LOOK
        self.next_look = time.monotonic()
        self.next_write = 0.0

    def run(self) -> None:
        """Until the last task has ended. A task that never introduces itself is not waited for."""
        self.part.write()
        patience = time.monotonic() + 5.0
        served = False
        poller = select.poll()
        poller.register(self.listener.fileno(), select.POLLIN)
        while self.tasks or (not served and time.monotonic() < patience):
            events = poller.poll(max(0.0, self.next_look - time.monotonic()) * 1000)
            lost: list[Task] = []
            for fd, _event in events:
                if fd == self.listener.fileno():
                    task = self.accept()
                    if task is not None:
                        served = True
                        poller.register(task.connection.fileno(), select.POLLIN)
                elif not self.read(self.tasks[fd]):
                    poller.unregister(fd)
                    task = self.tasks.pop(fd)
                    if task.said_goodbye:
                        self.farewell(task)
                    else:
                        lost.append(task)
            if lost:
                # The whole step usually dies at once: take those together whose connections end now.
                settle = time.monotonic() + 0.02
                while self.tasks and time.monotonic() < settle:
                    for fd, _event in poller.poll(5):
                        if fd in self.tasks and not self.read(self.tasks[fd]):
                            poller.unregister(fd)
                            task = self.tasks.pop(fd)
                            lost.append(task)
                self.take_over(lost)
                for task in lost:
                    task.connection.close()
            elif time.monotonic() >= self.next_look:
                self.look()
        self.part.close()

    def accept(self) -> Task | None:
        connection_fd, _address = self.listener._accept()  # type: ignore[attr-defined]
        connection = _socket.socket(fileno=connection_fd)
        if peer_uid(connection) != os.getuid():
            connection.close()
            return None
        task = Task(connection)
        self.tasks[connection.fileno()] = task
        return task

    def read(self, task: Task) -> bool:
        """Takes in what a task says. False when it has said goodbye or its last word."""
        try:
            data = task.connection.recv(65536)
        except OSError:
            data = b""
        task.buffer += data
        *whole, task.buffer = task.buffer.split(b"\n")
        for line in whole:
            word, *fields = lines.split(line.decode("utf-8", "surrogateescape"))
            if word == "task":
                task.root = (int(fields[0]), int(fields[1]))
                self.part.helpers.add(task.root)
                task.connection.send(b"ok\n")
                self.hurry()
            elif word == "main":
                self.see(task, int(fields[0]), int(fields[1]), fields[2])
                self.hurry()
            elif word == "ended":
                self.part.ended += int(fields[0])
                self.part.killed += int(fields[1])
            elif word == "left":
                self.part.left[int(fields[0]), int(fields[1])] = fields[2]
            elif word == "bye":
                task.said_goodbye = True
        return bool(data) and not task.said_goodbye

    def farewell(self, task: Task) -> None:
        """Answers a goodbye; the last one only when the part file says how it ended."""
        if not self.tasks:
            self.listener.close()
            self.part.finish()
        word = "bye" if self.tasks else lines.join(["leaving", *self.part.me])
        try:
            task.connection.send(f"{word}\n".encode())
        except OSError:
            pass
        task.connection.close()

    def hurry(self) -> None:
        self.pause = FIRST_LOOK
        self.next_look = min(self.next_look, time.monotonic() + FIRST_LOOK)

    def see(self, task: Task, pid: int, began: int, name: str = "") -> bool:
        """Writes a process down; True when it is new."""
        if (pid, began) in task.seen:
            return False
        task.seen.add((pid, began))
        return self.part.add(pid, began, name)

    def look(self) -> None:
        """Who is below the supervisors now? Often at first, then ever more seldom while nothing changes."""
        begun = time.monotonic()
        fresh = False
        for task in self.tasks.values():
            if task.root is None:
                continue
            for pid, began in tree.descendants(task.root[0]):
                parent = identity.slurp(f"/proc/{pid}/stat")
                stat = identity.parse_stat(parent) if parent else None
                if stat is not None and stat.ppid == task.root[0] and stat.name == b"handwash":
                    self.part.helpers.add((pid, began))
                elif self.see(task, pid, began):
                    fresh = True
        now = time.monotonic()
        self.pause = FIRST_LOOK * 2 if fresh else min(self.pause * 2, SLOWEST_LOOK)
        self.next_look = now + max(self.pause, (now - begun) / SHARE if self.pause >= 0.5 else 0.0)
        if fresh or (self.part.changed and now >= self.next_write):
            self.part.changed = True
            if now >= self.next_write:
                self.part.write()
                self.next_write = now + 0.25
                for task in self.tasks.values():
                    task.seen.intersection_update(self.part.processes)

    def take_over(self, lost: list[Task]) -> None:
        """Ends what is left of tasks whose supervisors are dead."""
        self.part.took_over = True
        calm = 0
        ended: set[int] = set()
        killed: set[int] = set()
        left: dict[int, str] = {}
        deadline = time.monotonic() + self.grace + end.AFTER_KILL + 5.0
        while calm < CALM_LOOKS and time.monotonic() < deadline:
            targets = [pair for pair in self.targets(lost) if pair[0] not in left]
            if not targets:
                calm += 1
                time.sleep(0.02)
                continue
            calm = 0
            outcome = end.end(targets, self.grace, os.getuid())
            ended.update(outcome.ended)
            killed.update(outcome.killed)
            left.update(outcome.left)
        self.part.ended += len(ended)
        self.part.killed += len(killed)
        for pid, why in left.items():
            self.part.left[pid, identity.start_of(pid) or 0] = why
        if not self.tasks:
            self.listener.close()
            self.part.finish()

    def targets(self, lost: list[Task]) -> list[tuple[int, int]]:
        """What is left of the lost tasks: seen, below what was seen, or with the cookie; nothing of the other tasks."""
        spared = {os.getpid()}
        roots = [task.root[0] for task in self.tasks.values() if task.root is not None]
        spared.update(roots, tree.below(roots))
        seen = {pair for task in lost for pair in task.seen}
        found = {pair for pair in seen if identity.same(*pair) is not None}
        found.update(tree.descendants(*(pid for pid, _began in found)))
        found.update(with_cookie(self.session))
        alive = []
        for pid, began in found:
            who = identity.same(pid, began)
            if who is not None and who.alive and who.uid == os.getuid() and pid not in spared:
                alive.append((pid, began))
        return sorted(alive, key=lambda pair: (pair[1], pair[0]), reverse=True)


def with_cookie(session: str) -> set[tuple[int, int]]:
    """Processes of this user that were started with the session's cookie in their environment."""
    wanted = f"HANDWASH_SESSION={session}".encode()
    found = set()
    for pid in tree.pids():
        data = identity.slurp(f"/proc/{pid}/environ")
        if data and wanted in data.split(b"\0"):
            began = identity.start_of(pid)
            if began is not None:
                found.add((pid, began))
    return found
