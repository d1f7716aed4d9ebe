"""The guardian's watch over GPUs that do nothing: seldom, a short child of its own looks at them and says a word.

The guardian itself loads nothing for it. First after `Orders.idle_s`, then ever more seldom while there is work, a little
more often while there seems to be none: one look covers twenty seconds, so nothing is told before several agree. Where the
look cannot tell (no driver, MIG, a driver that hangs) there is no other one in this session.
"""

from __future__ import annotations

import posix
import sys
import time

from handwash.node import wire
from handwash.teardown import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal

    from handwash.node.part import Part
    from handwash.node.wire import Orders
else:
    import _signal

# Seconds. A little more than `idle_s` before the first look: a program that came with the task is old enough then.
AFTERWARDS = 1.1
SHORTEST, LONGEST = 1.0, 3600.0
# Longer than a look may take (`commands.idle_look`) by far: what takes so long hangs.
PATIENCE = 60.0
ANSWER_CAP = 4096
# Linux numbers (signal(7)): INT, PIPE, XFSZ.
RESET_SIGNALS = (2, 13, 25)


def has_gpus() -> bool:
    """Whether Slurm names GPUs of this node that the step or its job has (srun(1), "OUTPUT ENVIRONMENT VARIABLES")."""
    return bool(wire.variable(b"SLURM_STEP_GPUS") or wire.variable(b"SLURM_JOB_GPUS"))


def environment() -> dict[str, str]:
    """For the child: not the session's own, nor what somebody had loaded into it; where its libraries are it is told."""
    kept = {wire.decode(name): wire.decode(value) for name, value in posix.environ.items()}
    libraries = kept.get("LD_LIBRARY_PATH")
    found = {
        name: value
        for name, value in kept.items()
        if not name.startswith(("LD_", "PYTHON")) and name != "HANDWASH_SESSION"
    }
    if libraries:
        found["HANDWASH_LD_LIBRARY_PATH"] = libraries
    return found


class Watch:
    """One guardian's. `turn` is called again and again, and never waits."""

    def __init__(self, orders: Orders, part: Part) -> None:
        self.idle_s = orders.idle_s
        self.part = part
        self.begun = time.monotonic()
        self.pause = max(self.idle_s, SHORTEST)
        self.next: float | None = self.begun + max(self.idle_s * AFTERWARDS, SHORTEST)
        self.child = 0
        self.output = -1
        self.answer = b""
        self.helper = (0, 0)

    def turn(self) -> None:
        """Starts a look when one is due, takes in its word when it has come."""
        now = time.monotonic()
        if self.child:
            if self.has_answered():
                self.take_in(now)
            elif self.next is not None and now > self.next + PATIENCE:
                self.close()
        elif self.next is not None and now >= self.next:
            self.start()

    def start(self) -> None:
        main = f"{__file__.rpartition('/')[0].rpartition('/')[0]}/__main__.py"
        age = time.monotonic() - self.begun
        argv = [sys.executable, "-I", "-S", main, "idle-look", f"{self.idle_s:g}", f"{age:.0f}"]
        self.answer = b""
        try:
            self.output, other = posix.pipe()
            try:
                actions = [(posix.POSIX_SPAWN_DUP2, other, 1)]
                self.child = posix.posix_spawn(
                    sys.executable, argv, environment(), file_actions=actions, setpgroup=0, setsigdef=RESET_SIGNALS
                )
            finally:
                posix.close(other)
            posix.set_blocking(self.output, False)
        except OSError:
            self.next = None
            return
        # A check beside it must not take it for somebody's work.
        self.helper = (self.child, identity.start_of(self.child) or 0)
        self.part.helpers.add(self.helper)
        self.part.write()

    def has_answered(self) -> bool:
        """Whether all has been read."""
        try:
            while chunk := posix.read(self.output, ANSWER_CAP):
                self.answer = (self.answer + chunk)[:ANSWER_CAP]
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def take_in(self, now: float) -> None:
        """Notes what the look has found: nothing but idle GPUs is told."""
        self.collect()
        word, *fields = wire.split(self.answer.decode("utf-8", "replace").rstrip("\n"))
        told = fields if word == "idle" else []
        if told != self.part.idle:
            self.part.idle = told
            self.part.changed = True
        if word == "quiet":
            self.next = now + max(self.idle_s / 2, SHORTEST)
        elif word in ("idle", "busy"):
            self.pause = min(self.pause * 2, max(LONGEST, self.idle_s))
            self.next = now + self.pause
        else:
            self.next = None

    def collect(self) -> None:
        """The child has closed its output, which it does at its end."""
        posix.close(self.output)
        try:
            done, _status = posix.waitpid(self.child, posix.WNOHANG)
            if not done:
                time.sleep(0.01)
                done, _status = posix.waitpid(self.child, posix.WNOHANG)
            if not done:
                posix.kill(self.child, _signal.SIGKILL)
        except (ChildProcessError, ProcessLookupError):
            pass
        self.part.helpers.discard(self.helper)
        self.part.changed = True
        self.child = 0

    def close(self) -> None:
        """No look any more. One that goes on is interrupted, and ends what it has started; it is given a moment for that."""
        self.next = None
        if not self.child:
            return
        try:
            posix.kill(self.child, _signal.SIGINT)
            for _moment in range(20):
                if posix.waitpid(self.child, posix.WNOHANG)[0]:
                    break
                time.sleep(0.01)
            else:
                posix.kill(self.child, _signal.SIGKILL)
        except (ChildProcessError, ProcessLookupError):
            pass
        posix.close(self.output)
        self.part.helpers.discard(self.helper)
        self.child = 0
