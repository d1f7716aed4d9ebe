"""The exit codes of the contract. Plain numbers: the import of `enum` costs a third of a bare interpreter start."""

from __future__ import annotations


class Exit:
    """What a command's exit code says. 75 comes from `leave` alone."""

    CLEAN = 0
    FOUND = 1
    USAGE = 2
    UNKNOWN = 3
    FAULT = 70
    STAY = 75
    INTERRUPTED = 130
