"""Python's own mark on the environment, taken out again: in the C locale it sets LC_CTYPE (PEP 538), -I or not."""

from __future__ import annotations

import os

TARGETS = ("C.UTF-8", "C.utf8", "UTF-8")


def undo() -> None:
    """Takes LC_CTYPE out where this interpreter has set it. What a process was started with stays in /proc/self/environ."""
    if os.environ.get("LC_CTYPE") not in TARGETS:
        return
    try:
        with open("/proc/self/environ", "rb") as file:
            given = file.read()
    except OSError:
        return
    if not any(entry.startswith(b"LC_CTYPE=") for entry in given.split(b"\0")):
        del os.environ["LC_CTYPE"]
