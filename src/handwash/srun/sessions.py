"""Where the records of sessions are, and what a session is called."""

from __future__ import annotations

import os
import time

from handwash import paths, world


def folder() -> str:
    """Where the files are. It may not exist."""
    return os.path.join(paths.state_dir(), "sessions")


def make() -> str:
    """The folder, made if need be; empty where it cannot be had, which costs the record only."""
    where = folder()
    try:
        paths.make_private(where)
    except OSError:
        return ""
    return where


def new_id() -> str:
    """Sorts by time, and cannot be guessed: it is the name of the guardian's socket and the processes' cookie."""
    return time.strftime("%Y%m%d-%H%M%S-", time.localtime(world.now())) + os.urandom(6).hex()
