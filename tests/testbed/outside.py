"""What only root can do to a process from outside: put it into another cgroup, freeze it there, or have its pid anew."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Callable, TypeVar

from tests.testbed import configuration
from tests.testbed.processes import wait_until

LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
# The escapees of the zoo that are moved to a cgroup of their own.
MOVED = ("moved", "frozen")
PATIENCE = 15.0
Started = TypeVar("Started")


def can_move() -> bool:
    """Whether there is a freezer of cgroup v1 to move processes to."""
    return configuration.freezer() is not None


class Cgroup:
    """A new freezer cgroup, removed at the end of the context.

    A frozen process is in state D, and no signal reaches it (cgroup v1).
    """

    def __init__(self, name: str) -> None:
        top = configuration.freezer()
        assert top is not None
        self.folder = top / name

    def __enter__(self) -> Cgroup:
        self.folder.mkdir()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.thaw()
        wait_until(lambda: not (self.folder / "cgroup.procs").read_text(), 10)
        self.folder.rmdir()

    def move(self, pid: int) -> None:
        """Moves a process here."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def freeze(self) -> None:
        """Freezes all that is here."""
        state = self.folder / "freezer.state"
        state.write_text("FROZEN")
        assert wait_until(lambda: state.read_text() == "FROZEN\n", 5), "does not freeze"

    def thaw(self) -> None:
        """Lets all go on; signals that came in the meantime take effect."""
        (self.folder / "freezer.state").write_text("THAWED")


def can_choose_pids() -> bool:
    """Whether the kernel lets us say which pid comes next (CONFIG_CHECKPOINT_RESTORE, and the capability for it)."""
    try:
        LAST_PID.write_text(LAST_PID.read_text())
    except OSError:
        return False
    return True


def start_as(pids: Iterable[int], start: Callable[[], tuple[int, Started]], drop: Callable[[Started], None]) -> Started:
    """Starts a process under one of these pids, which were free a moment ago. *start* starts it and tells the pid that it got;
    *drop* ends a wrong one.

    Others start processes and threads in between, so this is tried again and again; OSError where it does not come out in time.
    """
    choices = list(pids)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for pid in choices:
            LAST_PID.write_text(str(pid - 1))
            got, started = start()
            if got == pid:
                return started
            drop(started)
    raise OSError(errno.EAGAIN, f"none of the pids {choices} is to be had")
