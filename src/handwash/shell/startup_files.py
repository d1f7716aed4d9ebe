"""The shells that have a hook: one row each, with its file, its start-up files and the line that goes into them."""

from __future__ import annotations

import os
import re
import shlex
from typing import Callable, NamedTuple


class Shell(NamedTuple):
    """What install and init have to know of a shell."""

    name: str
    hook: str
    """The hook's file in shellhooks/."""
    files: Callable[[str], list[str]]
    """The start-up files, for a home folder, that have to hold the block, so that each interactive shell meets it."""
    candidates: tuple[str, ...]
    """All files below the home folder that may hold a block."""
    line: Callable[[str, str], str]
    """The line of the block, for an interpreter and a hook file. It stays silent where the hook is gone."""


_BASH_LOGIN = (".bash_profile", ".bash_login", ".profile")
# `. ~/.bashrc`, `source "$HOME/.bashrc"`, `[ -f ~/.bashrc ] && . ~/.bashrc`: not in a comment. What this misses only means
# a second block, and the hook lets itself in once.
_SOURCES_BASHRC = re.compile(rb"^[^#\n]*(?:^|[\s;&|({])(?:\.|source)[ \t]+[^\s;&|#]*\.bashrc(?![\w.-])", re.MULTILINE)


def _bash_files(home: str) -> list[str]:
    """`.bashrc`, and the file of login shells (as over ssh) unless that sources it. bash reads the first one there is."""
    files = [os.path.join(home, ".bashrc")]
    login = [os.path.join(home, name) for name in _BASH_LOGIN]
    # Where there is none, `.profile`: it never hides another one that comes later.
    first = next((path for path in login if os.access(path, os.R_OK)), login[-1])
    try:
        with open(first, "rb") as file:
            sourced = _SOURCES_BASHRC.search(file.read()) is not None
    except FileNotFoundError:
        sourced = False
    return files if sourced else [*files, first]


def _bash_line(python: str, hook: str) -> str:
    # `.profile` is read by other shells too.
    return (
        f'[ -n "${{BASH_VERSION-}}" ] && [ -r {shlex.quote(hook)} ]'
        f" && __handwash_python={shlex.quote(python)} && . {shlex.quote(hook)} || :"
    )


SHELLS: dict[str, Shell] = {
    shell.name: shell for shell in (Shell("bash", "handwash.bash", _bash_files, (".bashrc", *_BASH_LOGIN), _bash_line),)
}
