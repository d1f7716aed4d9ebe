"""What a process does that is to outlive the one that started it."""

from __future__ import annotations

import posix


def live_apart(*kept: int) -> None:
    """Lets go of all inherited files but these: whoever waits for the end of the session's output must see it."""
    null = posix.open("/dev/null", posix.O_RDWR)
    for fd in (0, 1, 2):
        posix.dup2(null, fd)
    for name in posix.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            try:
                posix.close(int(name))
            except OSError:
                pass
    posix.chdir("/")
