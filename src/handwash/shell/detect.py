"""Which shell the person is in."""

from __future__ import annotations

import os

from handwash import world
from handwash.shell import startup_files


def shell_name() -> str | None:
    """The shell among our ancestors, else the login shell; None where neither can be told."""
    # shellingham knows neither mksh nor ksh93 by that name, and would go on to the shell above.
    parent = _name_of(os.getppid())
    if startup_files.find(parent) is not None:
        return parent
    import shellingham  # type: ignore[import-untyped]

    try:
        name, _path = shellingham.detect_shell()
    except (shellingham.ShellDetectionFailure, OSError):
        name = os.path.basename(world.env.get("SHELL", ""))
    return str(name).lstrip("-").lower() or None


def _name_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip().lstrip("-")
    except OSError:
        return ""
