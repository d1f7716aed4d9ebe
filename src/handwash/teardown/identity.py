"""Who a process is: (pid, start time) within one boot, read from /proc, and a handle (pidfd) that cannot change hands.

Imports nothing beyond builtin modules: this runs under every task of every session.
"""

from __future__ import annotations

import posix

from handwash.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    # `signal` costs half a bare interpreter start (it builds enums); its C half, builtin in every CPython, does not.
    import _signal

SIGTERM: int = _signal.SIGTERM
SIGKILL: int = _signal.SIGKILL
SIGCONT: int = _signal.SIGCONT
SIGCHLD: int = _signal.SIGCHLD

DEAD_STATES = "ZXx"

# How long a process may take to vanish after KILL before it is reported: only the kernel can hold it then.
AFTER_KILL = 2.0


@frozen
class Identity:
    """One process as /proc shows it. `uid` is the real user id; `state` is the letter of proc(5)."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    tty: int
    state: str
    start_ticks: int
    uid: int

    @property
    def alive(self) -> bool:
        """Whether it still runs: a zombie has ended and only waits for its parent to ask."""
        return self.state not in DEAD_STATES


@frozen
class Stat:
    """The fields of /proc/PID/stat that are used here."""

    ppid: int
    pgid: int
    sid: int
    tty: int
    state: str
    start_ticks: int
    name: bytes


def slurp(path: str) -> bytes | None:
    """The content of a /proc file; None where it is gone or not ours to read."""
    try:
        fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts: list[bytes] = []
        while True:
            part = posix.read(fd, 65536)
            if not part:
                return b"".join(parts)
            parts.append(part)
    except OSError:
        # A process that ends between open and read answers ESRCH.
        return None
    finally:
        posix.close(fd)


def parse_stat(data: bytes) -> Stat | None:
    """The name may hold spaces, newlines and `)`: it ends at the last `)`, and everything after is numbers."""
    opening, closing = data.find(b"("), data.rfind(b")")
    if opening < 0 or closing < opening:
        return None
    rest = data[closing + 1 :].split()
    try:
        return Stat(
            ppid=int(rest[1]),
            pgid=int(rest[2]),
            sid=int(rest[3]),
            tty=int(rest[4]),
            state=rest[0].decode("ascii"),
            start_ticks=int(rest[19]),
            name=data[opening + 1 : closing],
        )
    except (IndexError, ValueError):
        return None


def stat_of(pid: int) -> Stat | None:
    """Its /proc/PID/stat, also of a zombie; None where there is no such process."""
    data = slurp(f"/proc/{pid}/stat")
    return parse_stat(data) if data else None


def start_of(pid: int) -> int | None:
    """The start time in clock ticks since boot, also of a zombie; None where there is no such process."""
    stat = stat_of(pid)
    return stat.start_ticks if stat else None


def real_uid(pid: int) -> int | None:
    """From status: the directory /proc/PID belongs to the effective user, which a set-uid program changes."""
    data = slurp(f"/proc/{pid}/status")
    if data is None:
        return None
    at = data.find(b"\nUid:")
    try:
        return int(data[at + 5 : data.index(b"\n", at + 1)].split()[0]) if at >= 0 else None
    except (IndexError, ValueError):
        return None


def read(pid: int) -> Identity | None:
    """The process with this pid now; None where there is none."""
    stat = stat_of(pid)
    uid = real_uid(pid) if stat else None
    if stat is None or uid is None:
        return None
    return Identity(pid, stat.ppid, stat.pgid, stat.sid, stat.tty, stat.state, stat.start_ticks, uid)


def same(pid: int, start_ticks: int) -> Identity | None:
    """The process if it is still the one that started then (zombies too), else None."""
    found = read(pid)
    return found if found is not None and found.start_ticks == start_ticks else None


def boot_id() -> str:
    """The id of this boot: a (pid, start time) pair means nothing in another one. Empty where the kernel hides it."""
    data = slurp("/proc/sys/kernel/random/boot_id")
    return data.decode("ascii", "replace").strip() if data else ""


def wait_channel(pid: int) -> str:
    """Where in the kernel it sleeps; empty where that is not shown."""
    data = slurp(f"/proc/{pid}/wchan")
    text = data.decode("ascii", "replace").strip() if data else ""
    return "" if text == "0" else text


class Handle:
    """A process held by identity. With a pidfd nothing can slip in between check and signal.

    Without one (kernel before 5.3, too many open files) a check of the start time precedes each signal (grain: 10 ms).
    """

    def __init__(self, pid: int, start_ticks: int) -> None:
        self.pid = pid
        self.start_ticks = start_ticks
        self.fd: int | None = None
        try:
            self.fd = posix.pidfd_open(pid)
        except AttributeError:
            pass
        except ProcessLookupError:
            self.identity: Identity | None = None
            return
        except OSError:
            pass
        self.identity = same(pid, start_ticks)
        if self.identity is None:
            self.close()

    def check(self) -> Identity | None:
        """The process if it is still there and running."""
        found = same(self.pid, self.start_ticks)
        return found if found is not None and found.alive else None

    def send(self, number: int) -> bool:
        """Sends the signal to exactly this process. False where it has ended. PermissionError goes through."""
        try:
            if self.fd is not None:
                _signal.pidfd_send_signal(self.fd, number)
            elif self.check() is None:
                return False
            else:
                posix.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        """Gives the pidfd back."""
        if self.fd is not None:
            posix.close(self.fd)
            self.fd = None


def why_left(handle: Handle) -> str:
    """The reason for a process that outlived KILL."""
    found = handle.check()
    if found is not None and found.state == "D":
        channel = wait_channel(handle.pid)
        return f"uninterruptible ({channel})" if channel else "uninterruptible"
    return "alive"
