"""A task's side of the guardian: how the supervisors start it, connect to it and take leave of it."""

import posix
import select
import sys
import time

from handwash.node import kernel, wire
from handwash.node.wire import job_and_step, node_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    import socket as _socket
    from collections.abc import Iterable, Sequence

    from handwash.node.sweep import Sweep
    from handwash.node.wire import Orders
else:
    # `socket` and `signal` each cost half a bare interpreter start; their C halves are all that is needed.
    import _signal
    import _socket

SO_PEERCRED = 17
REPLY_LIMIT = 1.0
# How long a guardian may search and end, beyond the grace that it gives.
SEARCH_LIMIT = 15.0
# A guardian that dies within so many seconds of its start, and how many of them in a row are made anew: what ends each of them
# (its code was taken away, say) will end the next one too.
SHORT_LIFE = 1.0
SHORT_LIVES = 5


def peer(connection: "_socket.socket") -> "tuple[int, int]":
    """Process and user at the other end: names of abstract sockets can be taken by anybody on the node."""
    data = connection.getsockopt(_socket.SOL_SOCKET, SO_PEERCRED, 12)
    return int.from_bytes(data[:4], sys.byteorder), int.from_bytes(data[4:8], sys.byteorder)


class Chain:
    """A task's connection to the guardian, shared by its two supervisors: its end tells that both are dead.

    The outer one (`be_first`) is told by the kernel when the guardian has died, starts another one and hands the new connection
    to the inner one (`be_second`), which holds it from that moment on and takes it up when it has something to say.
    """

    def __init__(self, connection: "_socket.socket", orders: "Orders") -> None:
        self.connection = connection
        self.orders = orders
        self.heard = b""
        self.ends: tuple[_socket.socket, _socket.socket] | None = None
        self.is_second = False
        # Whether this one was started for this connection, when, and how many before it in a row did not live long.
        self.has_started = False
        self.since = time.monotonic()
        self.short_lives = 0
        # Orphans may have gone to init while a guardian was made (see `renew`): another one's search has to find them.
        self.leaked = False

    def open(self) -> None:
        """Before the second one is made: the way between the two. From now on SIGIO comes when the guardian says something or
        dies, to this process, which has it blocked."""
        try:
            self.ends = _socket.socketpair()
        except OSError:
            pass
        self.watch()
        self.renew()

    def be_first(self) -> None:
        """The outer one's part of the way between the two."""
        if self.ends is not None:
            self.ends[1].close()

    def be_second(self) -> None:
        """From now on a connection that is handed over is used."""
        self.is_second = True
        if self.ends is not None:
            self.ends[0].close()

    def watch(self) -> None:
        """Has the kernel send SIGIO."""
        import fcntl

        fd = self.connection.fileno()
        fcntl.fcntl(fd, fcntl.F_SETOWN, posix.getpid())
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | posix.O_ASYNC)

    def renew(self) -> None:
        """Another guardian where this one has died; where none can be had the session goes on without."""
        for attempt in range(20):
            if self.is_alive() or self.short_lives > SHORT_LIVES:
                return
            # The end of a connection can come before that of the name: then we have come to the dying one again.
            time.sleep(0.005 if attempt else 0)
            # It is to fall to init, not to us: see `start`.
            kernel.become_subreaper(False)
            try:
                other = join(self.orders, again=True)
            finally:
                kernel.become_subreaper()
            if other is None:
                return
            if other.has_started:
                soon = self.has_started and time.monotonic() - self.since < SHORT_LIFE
                self.short_lives = self.short_lives + 1 if soon else 0
                self.has_started, self.since = True, time.monotonic()
            self.connection.close()
            self.connection, self.heard = other.connection, other.heard
            if self.ends is not None:
                fd = self.connection.fileno().to_bytes(4, sys.byteorder)
                try:
                    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fd)]
                    self.ends[0].sendmsg([b"c"], rights, _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL)
                except OSError:
                    pass
            self.watch()

    def is_alive(self) -> bool:
        """Takes in what the guardian has said; whether it lives."""
        try:
            while data := self.connection.recv(4096, _socket.MSG_DONTWAIT):
                self.heard += data
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def take_newest(self) -> None:
        """The second one's way to what `renew` has handed over."""
        while self.is_second and self.ends is not None:
            try:
                data, more, _flags, _address = self.ends[1].recvmsg(1, 64, _socket.MSG_DONTWAIT)
            except OSError:
                return
            if not data or not more:
                return
            self.connection.close()
            self.connection = _socket.socket(fileno=int.from_bytes(more[0][2][:4], sys.byteorder))

    def tell(self, *fields: object) -> None:
        """One line; a guardian that is gone is done without."""
        self.tell_all([fields])

    def tell_all(self, rows: "Iterable[Sequence[object]]") -> None:
        """Several lines at once."""
        self.take_newest()
        text = "".join(wire.join(fields) + "\n" for fields in rows)
        try:
            # A SIGPIPE would wait, blocked, although it is ignored, and be taken for one that is meant for the command.
            self.connection.sendall(text.encode("utf-8", "surrogateescape"), _socket.MSG_NOSIGNAL)
        except OSError:
            pass

    def tell_ended(self, teardown: "Sweep") -> None:
        """What the inner supervisor's teardown did."""
        self.tell_all([("ended", *pair, int(pair in teardown.killed)) for pair in teardown.ended])
        self.tell_all([("left", *pair, why) for pair, why in teardown.left.items()])
        if not teardown.complete:
            self.tell("incomplete")

    def hear(self, seconds: float) -> bytes:
        """The guardian's next words; empty where it has gone or does not answer in time."""
        poller = select.poll()
        poller.register(self.connection.fileno(), select.POLLIN)
        try:
            return self.connection.recv(64) if poller.poll(seconds * 1000) else b""
        except OSError:
            return b""

    def leave(self) -> None:
        """At the task's end: says goodbye; without one the guardian looks for what may be left."""
        # A guardian that has died just now has written no last word, and looks for nobody.
        self.short_lives = 0
        self.renew()
        if not self.leaked:
            self.goodbye()
            return
        try:
            self.connection.shutdown(_socket.SHUT_WR)
        except OSError:
            return
        while self.hear(self.orders.grace + SEARCH_LIMIT):
            pass
        self.connection.close()

    def goodbye(self) -> None:
        """The clean end. Returns when the guardian has written down what it knows, and has gone if it goes (bounded).

        proctrack/cgroup finds it in the step's cgroup: a guardian still on its way out costs a second there (22.05).
        """
        self.tell("bye")
        while words := self.hear(REPLY_LIMIT):
            self.heard += words
        for line in self.heard.decode().split("\n"):
            word, *fields = wire.split(line)
            if word == "leaving":
                wait_for_end(int(fields[0]), int(fields[1]))
        self.connection.close()


def wait_for_end(pid: int, start_ticks: int) -> None:
    """Until this process has ended (bounded)."""
    from handwash.teardown import identity

    handle = identity.Handle(pid, start_ticks)
    deadline = time.monotonic() + REPLY_LIMIT
    while handle.check() is not None and time.monotonic() < deadline:
        poller = select.poll()
        if handle.fd is not None:
            poller.register(handle.fd, select.POLLIN)
        # A pidfd wakes us; without one we look every 5 ms.
        poller.poll(5 if handle.fd is None else REPLY_LIMIT * 1000)
    handle.close()


def join(orders: "Orders", again: bool = False) -> "Chain | None":
    """Connects this task with its node's guardian, starting one where there is none. None where that cannot be.

    `again`: there was one, and it has died.
    """
    step = ".".join(job_and_step())
    address = f"\0handwash-{posix.getuid()}-{orders.session}-{step}-{node_name()}"
    has_started = False
    for _attempt in range(20):
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            connection.connect(address)
        except OSError:
            connection.close()
            if start(address, orders, again):
                has_started = True
            else:
                # Somebody else has just taken the name and does not listen yet.
                time.sleep(0.005)
            continue
        chain = Chain(connection, orders)
        chain.has_started = has_started
        if peer(connection)[1] != posix.getuid():
            connection.close()
            return None
        # Should it be about to leave, with the last task before us, the connection ends and `renew` comes to another one.
        chain.tell("task", orders.slurmstepd)
        return chain
    return None


def start(address: str, orders: "Orders", again: bool) -> bool:
    """Starts a guardian that listens at `address`. False where the name is taken or no process can be made.

    Called before this process becomes a subreaper, so that the guardian falls to init: proctrack/linuxproc, which follows
    parents, keeps a job running as long as it sees any process below slurmstepd.
    """
    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    starter = posix.getpid()
    try:
        listener.bind(address)
        listener.listen(128)
        child = posix.fork()
    except OSError:
        listener.close()
        return False
    if child == 0:
        try:
            posix.setsid()
            if posix.fork() == 0:
                _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
                from handwash.node.apart import live_apart

                live_apart(listener.fileno())
                # Loaded only where it runs, beside the task that starts.
                from handwash.node.guardian import Guardian

                Guardian(listener, orders, starter if again else 0).run()
        finally:
            posix._exit(0)
    listener.close()
    try:
        posix.waitpid(child, 0)
    except ChildProcessError:
        # Whoever started us has SIGCHLD ignored: it has been collected then.
        pass
    return True
