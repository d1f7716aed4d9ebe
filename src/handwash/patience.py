"""Asks one question after another in a thread of its own, and goes on without the answer of one that hangs in the kernel.

/proc/PID/cmdline and environ wait for the memory map of the process (mmap_lock), which one that hangs in a driver can hold for
ever: that is how `ps` comes to hang on a node with a wedged GPU. A thread that waits so ends with the look's own process.
"""

from __future__ import annotations

import _thread

from handwash.teardown import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    Item = TypeVar("Item")
    Answer = TypeVar("Answer")

# An answer takes a tenth of a millisecond.
_STALL_S = 0.1
_STALL_AGAIN_S = 0.05


def bounded(work: Callable[[], None], seconds: float | None) -> bool:
    """Whether `work` was done within so many seconds, None for as long as it takes; if not, it is left behind."""
    worker = _Worker(work)
    return worker.done.acquire(timeout=-1 if seconds is None else max(0.0, seconds))


def each(items: Sequence[Item], ask: Callable[[Item], Answer], instead: Callable[[Item], Answer]) -> list[Answer]:
    """The answers to all items in order; about one that hangs, `instead` is asked."""
    answers: list[Answer] = []
    stall = _STALL_S
    while len(answers) < len(items):
        part: list[Answer] = []
        worker = _Worker(_all_of(items[len(answers) :], ask, part))
        before = times = 0
        while not worker.done.acquire(timeout=stall):
            # Twice, because it also sleeps while it waits for the interpreter, which this loop has now.
            times = times + 1 if len(part) == before and worker.sleeps() else 0
            before = len(part)
            if times == 2:
                break
        else:
            if worker.fault:
                raise worker.fault[0]
        # A copy: a worker that is left behind may come back and add to its own.
        answers += part[: len(items) - len(answers)]
        if len(answers) < len(items):
            answers.append(instead(items[len(answers)]))
            stall = _STALL_AGAIN_S  # where one hangs, more do
    return answers


def _all_of(items: Sequence[Item], ask: Callable[[Item], Answer], answers: list[Answer]) -> Callable[[], None]:
    def work() -> None:
        for item in items:
            answers.append(ask(item))

    return work


class _Worker:
    """A thread at one piece of work; `done` is free when it has ended, with a `fault` in it if that was an exception."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work
        self.fault: list[BaseException] = []
        self.number: int | None = None
        self.done = _thread.allocate_lock()
        self.done.acquire()
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        self.number = _thread.get_native_id()
        try:
            self.work()
        except BaseException as error:
            self.fault.append(error)
        finally:
            self.done.release()

    def sleeps(self) -> bool:
        """Whether it waits for something; on a node that is out of breath it may only have had no turn."""
        stat = (
            identity.parse_stat(identity.slurp(f"/proc/self/task/{self.number}/stat") or b"") if self.number else None
        )
        return stat is not None and stat.state != "R"
