"""The terminal's settings, which a command that is killed leaves behind as it had them."""

import posix
import termios


def settings(fd: int) -> "tuple[int, list[object]] | None":
    """The terminal that this is, and its settings."""
    try:
        return fd, termios.tcgetattr(fd)
    except (termios.error, OSError):
        return None


def restore(saved: "tuple[int, list[object]]") -> None:
    """Puts the settings back, only where the command changed them, and not below another program that is in the foreground
    now. SIGTTOU is blocked here, so the background may."""
    try:
        foreground = posix.tcgetpgrp(saved[0])
        if foreground != posix.getpgrp() and has_members(foreground):
            return
        if termios.tcgetattr(saved[0]) != saved[1]:
            termios.tcsetattr(saved[0], termios.TCSADRAIN, saved[1])  # type: ignore[arg-type]
    except (termios.error, OSError):
        pass


def has_members(group: int) -> bool:
    """Whether a process group is not empty."""
    try:
        posix.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
