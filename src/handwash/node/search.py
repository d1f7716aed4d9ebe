"""The guardian's search: what is left of tasks whose supervisors are dead, and its end; nothing of the other tasks."""

from __future__ import annotations

import posix
import time

from handwash.node import traces
from handwash.node.wire import job_and_step
from handwash.teardown import end, identity, tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from handwash.node.wire import Orders

CALM_LOOKS = 12
PAUSE = 0.02
# Seconds that it may take, beyond the grace.
LIMIT = identity.AFTER_KILL + 5.0
# `python -I -S task.py ORDERS`: what all supervisors of a step have in common.
WORDS_IN_COMMON = 5


class Search:
    """One search. Afterwards `ended` and `killed` hold pids, `left` pids with the reason, `foreign` what is of the session and
    another user's by now; `complete`: it has come to rest."""

    def __init__(self, orders: Orders, seen: set[tuple[int, int]], roots: Callable[[], list[int]]) -> None:
        """`seen`: of the lost tasks, as (pid, start time); `roots`: asked at each look for the supervisors of the others."""
        self.orders = orders
        self.seen = seen
        self.roots = roots
        self.ended: set[int] = set()
        self.killed: set[int] = set()
        self.left: dict[int, str] = {}
        self.foreign: set[tuple[int, int]] = set()
        self.zombies: set[tuple[int, int]] = set()
        self.complete = False

    def run(self) -> None:
        """Ends what is found, newest first, until a dozen looks stay calm (bounded)."""
        calm = 0
        deadline = time.monotonic() + self.orders.grace + LIMIT
        while calm < CALM_LOOKS and time.monotonic() < deadline:
            found, sure = self.look()
            targets = [pair for pair in found if pair[0] not in self.left]
            if targets:
                calm = 0
                outcome = end.end(targets, self.orders.grace, posix.getuid())
                self.ended.update(outcome.ended)
                self.killed.update(outcome.killed)
                self.left.update(outcome.left)
            else:
                calm = calm + 1 if sure else 0
                time.sleep(PAUSE)
        self.complete = calm >= CALM_LOOKS

    def look(self) -> tuple[list[tuple[int, int]], bool]:
        """What is left: seen or below that, with the cookie, with the mark. False where that is not the last word: somebody
        ended while it went on and may have started another one, or just lost the parent that tells whose it is."""
        found = {pair for pair in self.seen if identity.same(*pair) is not None}
        found.update(tree.descendants(*(pid for pid, _began in found)))
        _job, step = job_and_step()
        cookies = traces.with_cookie(self.orders.session, traces.own_job_here(self.orders.variables))
        # Right before the signals: what forks itself anew is not there for long.
        marked = traces.with_mark(self.orders.mark())
        found.update(marked)
        # Looked at last: what a living task has started meanwhile is among those found, and below its supervisors.
        living = {*self.roots(), *inner_supervisors(marked)}
        # Another step may be a living task's: its processes are below slurmstepd, not below those supervisors.
        found.update(pair for pair, other in cookies.items() if not living or other in ("", step))
        spared = {posix.getpid(), *living, *tree.below(living)}
        alive = []
        sure = True
        self.foreign.clear()
        for pid, began in found - {pair for pair in found if pair[0] in spared}:
            who = identity.same(pid, began)
            if who is None or not who.alive:
                sure &= (pid, began) in self.zombies
                self.zombies.add((pid, began))
                continue
            above = tree.ancestors(pid)
            if not living.isdisjoint(above):
                continue
            if living and is_cut_short(who.ppid, above):
                sure = False
            elif who.uid == posix.getuid():
                alive.append((pid, began))
            else:
                self.foreign.add((pid, began))
        return sorted(alive, key=lambda pair: (pair[1], pair[0]), reverse=True), sure


def is_cut_short(parent: int, above: list[int]) -> bool:
    """Whether a chain of ancestors ends at one that has ended while it was read. One that /proc hides has not."""
    if not above:
        return parent != 0
    if identity.stat_of(above[-1]) is not None:
        return False
    try:
        posix.kill(above[-1], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def inner_supervisors(marked: Collection[tuple[int, int]]) -> set[int]:
    """Which of the marked processes are inner supervisors, stopped perhaps. The outer ones have no mark."""
    ours = common_words(posix.getpid())
    found = set()
    for pid, _began in marked:
        stat = identity.stat_of(pid)
        named = stat is not None and stat.name == b"handwash" and stat.state not in identity.DEAD_STATES
        if named and pid != posix.getpid() and common_words(pid) == ours:
            found.add(pid)
    return found


def common_words(pid: int) -> list[bytes]:
    """The words of a process that all supervisors of a step share, if it is one."""
    return (identity.slurp(f"/proc/{pid}/cmdline") or b"").split(b"\0")[:WORDS_IN_COMMON]
