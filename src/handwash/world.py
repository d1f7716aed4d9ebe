"""The one place that knows the clock, the environment and who asks. Tests replace the names here."""

from __future__ import annotations

import os
import sys
import time

env = os.environ


def now() -> float:
    """Seconds since the epoch (UTC)."""
    return time.time()


def monotonic() -> float:
    """Seconds on a clock that never steps back."""
    return time.monotonic()


def pause(seconds: float) -> None:
    """Waits."""
    time.sleep(seconds)


def boot_time() -> float:
    """Seconds since the epoch at which this kernel started (clock_gettime(2), CLOCK_BOOTTIME)."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def disabled() -> bool:
    """Whether HANDWASH_DISABLE switches handwash off. The hooks know the same words for no."""
    return env.get("HANDWASH_DISABLE", "") not in ("", "0", "false", "no")


def uid() -> int:
    """The person whose processes and jobs are looked at. handwash never acts for anybody else."""
    return os.getuid()


def host() -> str:
    """This node's name without its domain, as Slurm and the prompt show it."""
    return os.uname().nodename.split(".")[0]


def on_path(program: str, search: str | None = None) -> str | None:
    """The path of a program on PATH, or None. An empty or relative PATH entry is passed over: nobody else's file is run.

    `search`: another value of PATH.
    """
    for folder in (env.get("PATH", "") if search is None else search).split(":"):
        path = os.path.join(folder, program)
        if os.path.isabs(folder) and os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    return None


def hold_closed_streams() -> None:
    """Fills the place of standard streams that are closed, as daemons start things: else a pipe of ours gets their number.

    Closed again by exec, so a program that is started finds them as they were.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open("/dev/null", os.O_RDWR)  # takes the lowest free number: this one; never inherited (PEP 446)


_user_names: dict[int, str] = {}


def user_name(of: int) -> str:
    """The name of a uid, or the number where the directory does not know it. Asked once: the directory can be far away."""
    if of not in _user_names:
        import pwd

        try:
            _user_names[of] = pwd.getpwuid(of).pw_name
        except (KeyError, OSError):
            _user_names[of] = str(of)
    return _user_names[of]


_site_packages_added = False


def add_site_packages() -> None:
    """Makes the third-party packages importable. The fast path starts with `-S`, which leaves them out (saves 1 to 5 ms)."""
    global _site_packages_added
    if _site_packages_added or not sys.flags.no_site:
        return
    import site

    site.main()
    _site_packages_added = True
