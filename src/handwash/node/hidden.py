"""Descendants that /proc does not show: with hidepid=2 (proc(5)) one's own process that is not dumpable, as an ssh-agent.

Their parent's list of children shows them all the same, and a pidfd taken then keeps the identity.
"""

from __future__ import annotations

import posix
import select
import time

from handwash.teardown import identity, tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Iterable
else:
    # `signal` costs half a bare interpreter start; its C half is all that is needed.
    import _signal

# No more pidfds than this of processes that have ended meanwhile.
KEPT = 64


def hold(known: dict[int, int], root: int, pids: Iterable[int]) -> int:
    """Adds those of `pids` that are hidden descendants of `root`, each with a pidfd; answers how many are new."""
    if len(known) > KEPT:
        still = running(known.values(), 0.0)
        for pid in [pid for pid, fd in known.items() if fd not in still]:
            posix.close(known.pop(pid))
    held: dict[int, int] = {}
    for pid in pids:
        try:
            if pid not in known:
                held[pid] = posix.pidfd_open(pid)
        except (OSError, AttributeError):
            # It has ended, or the kernel is older than 5.3.
            pass
    # Who is still in the list has not made room for another one before it was taken hold of.
    listed = set(tree.below([root])) if held else set()
    new = 0
    for pid, fd in held.items():
        if pid in listed and identity.start_of(pid) is None:
            known[pid] = fd
            new += 1
        else:
            posix.close(fd)
    return new


def end(handles: dict[int, int], grace: float) -> tuple[int, int, dict[int, str]]:
    """TERM, grace, KILL for (pidfd, pid) pairs: how many have ended, how many of them by KILL, and who is left and why."""
    refused: set[int] = set()
    killed: set[int] = set()
    for numbers, seconds in (
        ((identity.SIGTERM, identity.SIGCONT), grace),
        ((identity.SIGKILL,), identity.AFTER_KILL),
    ):
        for fd in running(handles, 0.0) - refused:
            try:
                for number in numbers:
                    _signal.pidfd_send_signal(fd, number)
                if identity.SIGKILL in numbers:
                    killed.add(fd)
            except ProcessLookupError:
                pass
            except PermissionError:
                refused.add(fd)
        running(handles.keys() - refused, seconds)
    left = running(handles, 0.0)
    reasons = {handles[fd]: "other-user" if fd in refused else "alive" for fd in left}
    return len(handles) - len(left), len(killed - left), reasons


def running(handles: Iterable[int], seconds: float) -> set[int]:
    """Which of these pidfds stand for a process that runs, asked until none does or the time is up."""
    deadline = time.monotonic() + seconds
    still = set(handles)
    while still:
        poller = select.poll()
        for fd in still:
            poller.register(fd, select.POLLIN)
        left = deadline - time.monotonic()
        still -= {fd for fd, _event in poller.poll(max(left, 0.0) * 1000)}
        if left <= 0:
            break
    return still
