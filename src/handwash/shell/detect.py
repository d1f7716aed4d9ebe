"""Which shell the person is in."""

from __future__ import annotations

import os

from handwash import world


def shell_name() -> str | None:
    """The shell among our ancestors, else the login shell; None where neither can be told."""
    import shellingham  # type: ignore[import-untyped]

    try:
        name, _path = shellingham.detect_shell()
    except (shellingham.ShellDetectionFailure, OSError):
        name = os.path.basename(world.env.get("SHELL", ""))
    return str(name).lstrip("-").lower() or None
