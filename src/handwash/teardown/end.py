"""TERM, grace, KILL for exactly the given processes, with the identity checked again before each signal."""

from __future__ import annotations

import posix
import time

from handwash.frozen import frozen
from handwash.teardown import identity, tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@frozen
class Outcome:
    """What became of the targets, as pids. `killed` is the part of `ended` that needed KILL; `gone` had ended before.

    `left` are still there, each with its reason: other-user, itself, alive, uninterruptible (with its wait channel).
    """

    ended: tuple[int, ...] = ()
    killed: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    left: tuple[tuple[int, str], ...] = ()


def wait_for(handles: list[identity.Handle], seconds: float) -> list[identity.Handle]:
    """Waits until all have ended or the time is up; answers those that still run."""
    import select

    deadline = time.monotonic() + seconds
    running = [handle for handle in handles if handle.check() is not None]
    while running:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        poller = select.poll()
        watched = [handle.fd for handle in running if handle.fd is not None]
        for fd in watched:
            poller.register(fd, select.POLLIN)
        # A pidfd wakes us; those without one are looked at every 20 ms.
        poller.poll(min(left, 1.0 if len(watched) == len(running) else 0.02) * 1000)
        running = [handle for handle in running if handle.check() is not None]
    return running


def signal_all(handles: list[identity.Handle], *numbers: int) -> set[int]:
    """Sends the signals to each; answers the pids that refused (another user's after all)."""
    refused: set[int] = set()
    for handle in handles:
        try:
            for number in numbers:
                handle.send(number)
        except PermissionError:
            refused.add(handle.pid)
    return refused


def end(
    targets: Iterable[tuple[int, int]],
    grace: float,
    uid: int,
    progress: Callable[[str, int], None] | None = None,
) -> Outcome:
    """Ends the (pid, start time) pairs that belong to `uid`; never this process, its ancestors or pid 1.

    Bounded: `grace` after TERM, `AFTER_KILL` after KILL. `progress` is told ("term"|"kill"|"done", how many still run).
    """
    tell = progress or (lambda _phase, _count: None)
    never = {0, 1, posix.getpid(), *tree.ancestors(posix.getpid())}
    handles: list[identity.Handle] = []
    gone: list[int] = []
    left: list[tuple[int, str]] = []
    try:
        for pid, start_ticks in targets:
            if pid in never:
                left.append((pid, "itself"))
                continue
            handle = identity.Handle(pid, start_ticks)
            if handle.identity is None or not handle.identity.alive:
                gone.append(pid)
                handle.close()
            elif handle.identity.uid != uid:
                left.append((pid, "other-user"))
                handle.close()
            else:
                handles.append(handle)
        tell("term", len(handles))
        refused = signal_all(handles, identity.SIGTERM, identity.SIGCONT)
        running = wait_for([handle for handle in handles if handle.pid not in refused], grace)
        killed: list[int] = []
        if running:
            tell("kill", len(running))
            refused |= signal_all(running, identity.SIGKILL)
            killed = [handle.pid for handle in running if handle.pid not in refused]
            running = wait_for([handle for handle in running if handle.pid not in refused], identity.AFTER_KILL)
        stuck = {handle.pid: identity.why_left(handle) for handle in running}
        left += [(pid, "other-user") for pid in sorted(refused)] + sorted(stuck.items())
        ended = tuple(handle.pid for handle in handles if handle.pid not in refused and handle.pid not in stuck)
        tell("done", len(stuck) + len(refused))
        return Outcome(ended, tuple(pid for pid in killed if pid not in stuck), tuple(gone), tuple(left))
    finally:
        for handle in handles:
            handle.close()
