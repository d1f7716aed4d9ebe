"""The guardian: one process per node and step, outside the step's process tree, that takes over when supervisors die.

Each task's supervisors hold a connection to it. While they live it watches who appears below them and writes that down
(the session's part file). A connection that ends without a goodbye means that both supervisors of that task are dead: it
then ends what it has seen of that task and what carries the session's cookie, newest first, until a dozen looks stay calm.
With proctrack/cgroup it dies with the step, which is then Slurm's to end.
"""

from __future__ import annotations

import posix
import select
import time

from handwash.node import hidden, kernel, part, traces, wire
from handwash.node.chain import peer
from handwash.node.search import Search, inner_supervisors
from handwash.node.wire import job_and_step, variable
from handwash.teardown import identity, tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket as _socket

    from handwash.node.idle import Watch
    from handwash.node.wire import Orders
else:
    # `socket` costs half a bare interpreter start; its C half is all that is needed.
    import _socket

FIRST_LOOK, SLOWEST_LOOK = 0.005, 2.0
# Where the processes could not be marked and something new was seen so shortly before the supervisors died, more may have
# started unseen: what then has neither parent nor cookie cannot be found, and "all gone" is not said.
SETTLED = 0.25
# A look may take this part of the time between looks, so that a hundred idle children cost under 0.1 % of a core.
SHARE = 0.0008
# While things start: with a cgroup, which can be left, and without one, where a look only serves the record.
FIRST_SHARE, FIRST_SHARE_FREE = 0.05, 0.02


class Task:
    """One task as the guardian knows it."""

    def __init__(self, connection: _socket.socket, pid: int) -> None:
        """`pid`: the supervisor that has come. The connection's end will tell of its death, so until then it is its own."""
        self.connection = connection
        self.root = (pid, identity.start_of(pid) or 0)
        self.slurmstepd = 0
        self.seen: set[tuple[int, int]] = set()
        # Those that /proc does not show, each with a pidfd (see `hidden`).
        self.hidden: dict[int, int] = {}
        self.buffer = b""
        self.said_goodbye = False


class Guardian:
    """The loop, and what it knows."""

    def __init__(self, listener: _socket.socket, orders: Orders, starter: int) -> None:
        """`starter`: the supervisor whose guardian died, 0 for a step's first one."""
        self.listener = listener
        self.poller = select.poll()
        self.orders = orders
        self.marked = True
        self.starter = starter
        # A pidfd.
        self.slurmstepd: int | None = None
        # It has died before its tasks.
        self.is_orphaned = False
        self.part = part.Part(orders.session, orders.folder)
        self.tasks: dict[int, Task] = {}
        self.pause = FIRST_LOOK
        self.next_look = self.not_before = time.monotonic()
        self.next_write = 0.0
        self.last_fresh = time.monotonic()
        self.idle: Watch | None = None

    def run(self) -> None:
        """Until the last task has ended. A task that never introduces itself is not waited for."""
        kernel.keep_pages()
        if self.starter:
            self.part.supersede()
        self.part.write()
        patience = time.monotonic() + 5.0
        served = False
        self.poller.register(self.listener.fileno(), select.POLLIN)
        self.watch_gpus()
        starter = hold(self.starter) if self.starter else None
        if starter is not None:
            self.poller.register(starter, select.POLLIN)
        while self.tasks or (not served and time.monotonic() < patience):
            events = self.poller.poll(max(0.0, self.next_look - time.monotonic()) * 1000)
            lost: list[Task] = []
            parting: list[Task] = []
            for fd, _event in events:
                if fd == self.listener.fileno():
                    served |= self.accept()
                elif fd == starter:
                    self.poller.unregister(fd)
                    # It may have come to us before it died: that is heard first.
                    patience = self.next_look = min(patience, time.monotonic() + SETTLED)
                elif not self.read(self.tasks[fd]):
                    self.part_from(fd, parting, lost)
            if lost:
                # The whole step usually dies at once: take those together whose connections end now.
                settle = time.monotonic() + 0.02
                while self.tasks and time.monotonic() < settle:
                    for fd, _event in self.poller.poll(5):
                        if fd in self.tasks and not self.read(self.tasks[fd]):
                            self.part_from(fd, parting, lost)
                self.take_over(lost)
                for task in lost:
                    # Its outer supervisor may be waiting for that (see `Chain.leave`).
                    task.connection.close()
            # The last farewell is the last word on all that was done here.
            for task in parting:
                self.farewell(task)
            if not lost and time.monotonic() >= self.next_look:
                self.look()
            if self.idle is not None and self.tasks:
                self.idle.turn()
        if self.starter and not served and not inner_supervisors(traces.with_mark(self.orders.mark())):
            self.take_over([])
        self.part.close()
        self.release()

    def watch_gpus(self) -> None:
        """Sees to it that GPUs which do nothing are told of, where somebody wants to know and there are any."""
        if self.orders.idle_s and self.part.path:
            try:
                from handwash.node import idle
            except ImportError:
                return
            if idle.has_gpus():
                self.idle = idle.Watch(self.orders, self.part)

    def release(self) -> None:
        """Ends the step for Slurm where its slurmstepd is dead: else srun would wait and hold the GPUs without end (22.05).

        On one of several nodes only if it died before its tasks: after them it has ended as it should, and others still run.
        """
        job, step = job_and_step()
        if self.slurmstepd is None or not job or not has_ended(self.slurmstepd):
            return
        if self.is_orphaned or (variable(b"SLURM_STEP_NUM_NODES") == "1" and not variable(b"SLURM_HET_SIZE")):
            try:
                from handwash import slurm_names
                from handwash.srun import confirm
            except ImportError:
                # Taken away meanwhile: a session may last for days.
                return
            slurm_names.choose(self.orders.slurm_names)
            confirm.ask(["scancel", job if self.orders.own else f"{job}.{step}"])

    def accept(self) -> bool:
        """Lets a task in; False where it is not this user's."""
        connection_fd, _address = self.listener._accept()  # type: ignore[attr-defined]
        connection = _socket.socket(fileno=connection_fd)
        pid, uid = peer(connection)
        if uid != posix.getuid():
            connection.close()
            return False
        task = self.tasks[connection.fileno()] = Task(connection, pid)
        self.part.helpers.add(task.root)
        self.poller.register(connection.fileno(), select.POLLIN)
        return True

    def part_from(self, fd: int, parting: list[Task], lost: list[Task]) -> None:
        """A task has said goodbye, or both its supervisors are dead."""
        self.poller.unregister(fd)
        task = self.tasks.pop(fd)
        (parting if task.said_goodbye else lost).append(task)

    def read(self, task: Task) -> bool:
        """Takes in what a task says. False when it has said goodbye or its last word."""
        try:
            data = task.connection.recv(65536)
        except OSError:
            data = b""
        task.buffer += data
        *whole, task.buffer = task.buffer.split(b"\n")
        for line in whole:
            word, *fields = wire.split(line.decode("utf-8", "surrogateescape"))
            if word == "task":
                task.slurmstepd = int(fields[0])
                if task.slurmstepd and self.slurmstepd is None:
                    self.slurmstepd = hold(task.slurmstepd)
                self.hurry()
            elif word == "orphaned":
                self.is_orphaned = True
            elif word == "main":
                self.see_main(task, int(fields[0]), int(fields[1]), fields[2])
                self.hurry()
            elif word == "ended":
                pair = (int(fields[0]), int(fields[1]))
                if pair not in task.seen:
                    task.seen.add(pair)
                    self.part.seen += 1
                self.part.ended += 1
                self.part.killed += int(fields[2])
            elif word == "left":
                self.part.left[int(fields[0]), int(fields[1])] = fields[2]
            elif word == "unmarked":
                self.marked = False
            elif word == "incomplete":
                self.part.complete = False
            elif word == "bye":
                task.said_goodbye = True
        return bool(data) and not task.said_goodbye

    def farewell(self, task: Task) -> None:
        """Answers a goodbye; the last one only when the part file says how it ended."""
        if not self.tasks:
            self.stop_watching()
            self.listener.close()
            self.part.finish()
        say(task, "bye" if self.tasks else wire.join(["leaving", *self.part.me]))
        task.connection.close()

    def hurry(self) -> None:
        """Something has just started: looks soon, but with many tasks not at the cost of their own start."""
        self.pause = FIRST_LOOK
        self.next_look = min(self.next_look, max(time.monotonic() + FIRST_LOOK, self.not_before))

    def see(self, task: Task, pid: int, began: int, name: str) -> bool:
        """Writes a process down; True when it is new."""
        if (pid, began) in task.seen:
            return False
        task.seen.add((pid, began))
        return self.part.add(pid, began, name)

    def see_main(self, task: Task, inner: int, pid: int, name: str) -> None:
        """The command itself, which may have ended already; its pid may then be anybody's who has another parent."""
        stat = identity.stat_of(pid)
        if stat is not None and stat.ppid == inner:
            self.see(task, pid, stat.start_ticks, name)
        else:
            self.part.add_past(pid, name)

    def look(self) -> None:
        """Who is below the supervisors now? Often at first, then ever more seldom while nothing changes."""
        begun = time.monotonic()
        fresh = False
        for task in self.tasks.values():
            if identity.same(*task.root) is None:
                # Its inner supervisor still lives; the pid may be anybody's by now.
                continue
            inner_lives = False
            unseen: list[int] = []
            for pid in tree.below([task.root[0]]):
                stat = identity.stat_of(pid)
                if stat is None:
                    unseen.append(pid)
                elif stat.ppid == task.root[0] and stat.name == b"handwash":
                    self.part.helpers.add((pid, stat.start_ticks))
                    inner_lives |= stat.state not in identity.DEAD_STATES
                else:
                    fresh |= self.see(task, pid, stat.start_ticks, stat.name.decode("utf-8", "surrogateescape"))
                    if stat.state not in identity.DEAD_STATES:
                        self.part.check_cgroup(pid)
            self.nudge(task, inner_lives)
            if unseen:
                fresh |= self.part.add_hidden(hidden.hold(task.hidden, task.root[0], unseen))
        now = time.monotonic()
        if fresh:
            self.last_fresh = now
        self.pause = FIRST_LOOK * 2 if fresh else min(self.pause * 2, SLOWEST_LOOK)
        first = FIRST_SHARE if self.part.cgroup else FIRST_SHARE_FREE
        share = SHARE if self.pause >= 0.5 else first
        self.not_before = now + (now - begun) / first
        self.next_look = now + max(self.pause, (now - begun) / share)
        if fresh or (self.part.changed and now >= self.next_write):
            self.part.changed = True
            if now >= self.next_write:
                self.part.write()
                self.next_write = now + 0.25
                for task in self.tasks.values():
                    task.seen.intersection_update(self.part.processes)

    def nudge(self, task: Task, inner_lives: bool) -> None:
        """An outer supervisor that has something to do and may not know it: somebody has stopped it and its inner one is
        dead, or its slurmstepd is."""
        stat = identity.stat_of(task.root[0])
        if stat is None:
            return
        needed = stat.state == "T" and not inner_lives
        orphaned = task.slurmstepd not in (0, stat.ppid)
        self.is_orphaned |= orphaned
        if needed or orphaned:
            handle = identity.Handle(*task.root)
            if handle.identity is not None:
                handle.send(identity.SIGCONT if needed else identity.SIGCHLD)
            handle.close()

    def take_over(self, lost: list[Task]) -> None:
        """Ends what is left of tasks whose supervisors are dead."""
        self.part.took_over = True
        if not self.tasks:
            self.stop_watching()
        if not self.marked and time.monotonic() - self.last_fresh < SETTLED:
            self.part.complete = False
        held = {fd: pid for task in lost for pid, fd in task.hidden.items()}
        if held:
            self.part.add_end(*hidden.end(held, self.orders.grace))
        search = Search(self.orders, {pair for task in lost for pair in task.seen}, self.roots)
        search.run()
        self.part.complete &= search.complete
        self.part.add_end(len(search.ended), len(search.killed), search.left)
        self.part.left.update((pair, "other-user") for pair in search.foreign)
        if not self.tasks:
            self.listener.close()
            self.part.finish()

    def stop_watching(self) -> None:
        """Its last task is over: nothing of ours may be left in the step."""
        if self.idle is not None:
            self.idle.close()
            self.part.idle = []

    def roots(self) -> list[int]:
        """The supervisors of all tasks, those who are waiting to be let in too."""
        waiting = select.poll()
        waiting.register(self.listener.fileno(), select.POLLIN)
        while waiting.poll(0):
            self.accept()
        return [task.root[0] for task in self.tasks.values()]


def say(task: Task, word: str) -> None:
    """A word to a task, both of whose supervisors may be dead before it is heard."""
    try:
        task.connection.send(f"{word}\n".encode())
    except OSError:
        pass


def hold(pid: int) -> int | None:
    """A pidfd; None where the kernel (before 5.3) or Python has none. Another user's process can be held too."""
    try:
        return posix.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


def has_ended(pidfd: int) -> bool:
    """Whether the process has: also where its parent has not collected it yet, or /proc does not show it."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))
