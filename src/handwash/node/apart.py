"""What a process does that is to outlive the one that started it."""

from __future__ import annotations

import os


def live_apart(*kept: int) -> None:
    """Lets go of all inherited files but these: whoever waits for the end of the session's output must see it."""
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                pass
    os.chdir("/")
