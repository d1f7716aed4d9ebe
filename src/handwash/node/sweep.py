"""The supervisor's own teardown: end every descendant of this process, until the kernel says that there is none.

A subreaper without children has no descendants, so ECHILD from waitpid(-1) is the proof; no scan of /proc proves that.
"""

from __future__ import annotations

import posix
import time

from handwash.node import kernel
from handwash.teardown import identity, tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


HIDDEN = 0


class Sweep:
    """One teardown. Afterwards `ended` holds the (pid, start time) pairs that were found, `killed` those that needed KILL,
    `left` those that are still there with the reason; `complete`: the kernel has said that there is none.

    A start time of 0 stands for a child that /proc does not show: with hidepid=2 (proc(5)) that is one's own process that is
    not dumpable, as an ssh-agent. As long as we do not collect it, its pid is nobody else's, so kill(2) is safe.
    """

    def __init__(self) -> None:
        self.uid = posix.getuid()
        self.ended: set[tuple[int, int]] = set()
        self.killed: set[tuple[int, int]] = set()
        self.left: dict[tuple[int, int], str] = {}
        self.complete = False

    def alive(self) -> list[tuple[int, int]]:
        """Descendants that still run and may be ended."""
        found = []
        for pid, start in tree.descendants(posix.getpid()):
            who = identity.read(pid)
            if who is None or not who.alive or who.start_ticks != start:
                continue
            if who.uid != self.uid:
                self.left[pid, start] = "other-user"
                continue
            found.append((pid, start))
        hidden = [pid for pid in tree.children(posix.getpid()) or [] if identity.start_of(pid) is None]
        return found + [(pid, HIDDEN) for pid in hidden]

    def send(self, pairs: Iterable[tuple[int, int]], *numbers: int) -> None:
        """The signals to each of them, by identity."""
        for pair in pairs:
            handle = None
            try:
                if pair[1] == HIDDEN:
                    for number in numbers:
                        posix.kill(pair[0], number)
                    continue
                handle = identity.Handle(*pair)
                if handle.identity is not None:
                    for number in numbers:
                        handle.send(number)
            except PermissionError:
                self.left[pair] = "other-user"
            finally:
                if handle is not None:
                    handle.close()

    def run(self, grace: float) -> None:
        """TERM and CONT to all and to newcomers, until `grace` is over; then KILL in a loop; bounded."""
        deadline = time.monotonic() + grace
        asked: set[tuple[int, int]] = set()
        pause = 0.002
        while not kernel.reap():
            found = [pair for pair in self.alive() if pair not in self.left]
            fresh = [pair for pair in found if pair not in asked]
            left = deadline - time.monotonic()
            if left <= 0 or not found:
                break
            self.ended.update(fresh)
            asked.update(fresh)
            self.send(fresh, identity.SIGTERM, identity.SIGCONT)
            kernel.wait_child_signal(min(left, pause))
            pause = min(pause * 2, 0.1)
        self._insist()

    def _insist(self) -> None:
        deadline = time.monotonic() + identity.AFTER_KILL
        pause = 0.0005
        found: list[tuple[int, int]] = []
        while not kernel.reap():
            found = [pair for pair in self.alive() if pair not in self.left]
            if not found and self.left:
                break
            if time.monotonic() >= deadline:
                break
            fresh = [pair for pair in found if pair not in self.killed or pair[1] == HIDDEN]
            self.ended.update(fresh)
            self.killed.update(fresh)
            self.send(fresh, identity.SIGKILL)
            # What forks itself anew is chased without a pause; what only takes its time to vanish is waited for.
            kernel.wait_child_signal(0 if fresh else pause)
            pause = min(pause * 2, 0.05)
        else:
            found = []
            self.complete = True
        for pair in found:
            if pair[1] == HIDDEN:
                self.left[pair] = "alive"
                continue
            handle = identity.Handle(*pair)
            if handle.check() is not None:
                self.left[pair] = identity.why_left(handle)
            handle.close()
        self.ended -= self.left.keys()
        self.killed -= self.left.keys()
