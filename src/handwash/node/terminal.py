"""The terminal's settings, which a command that is killed leaves behind as it had them."""

import termios


def settings(fd: int) -> "tuple[int, list[object]] | None":
    """The terminal that this is, and its settings."""
    try:
        return fd, termios.tcgetattr(fd)
    except (termios.error, OSError):
        return None


def restore(saved: "tuple[int, list[object]]") -> None:
    """Puts the settings back, only where the command changed them. SIGTTOU is blocked here, so the background may."""
    try:
        if termios.tcgetattr(saved[0]) != saved[1]:
            termios.tcsetattr(saved[0], termios.TCSADRAIN, saved[1])  # type: ignore[arg-type]
    except (termios.error, OSError):
        pass
