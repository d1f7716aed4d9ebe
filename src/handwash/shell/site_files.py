"""Where the hook goes for everybody on a machine: files in /etc, as the distribution's shells read them."""

from __future__ import annotations

import os
from typing import NamedTuple

_PROGRAMS = ("bin", "usr/bin", "usr/local/bin")


class Place(NamedTuple):
    """A file, and the shells whose lines it holds."""

    path: str
    shells: tuple[str, ...]


def places(root: str) -> list[Place]:
    """The files for the shells that are set up below `root` (`/`, but for a test)."""

    def there(name: str) -> bool:
        return os.path.exists(os.path.join(root, name))

    def says(name: str, word: bytes) -> bool:
        try:
            with open(os.path.join(root, name), "rb") as file:
                return word in file.read()
        except OSError:
            return False

    def has(program: str) -> bool:
        return any(there(f"{folder}/{program}") for folder in _PROGRAMS)

    found = []
    if there("etc/profile.d"):
        # Login shells of bash, ksh, mksh, dash and busybox ash; those of zsh where it is told to read /etc/profile.
        found += [("etc/profile.d/handwash.sh", ("bash", "dash")), ("etc/profile.d/handwash.csh", ("tcsh",))]
    # Shells of bash that are no login shells: Debian's and SUSE's file, else the one that Red Hat's ~/.bashrc reads.
    if there("etc/bash.bashrc"):
        found.append(("etc/bash.bashrc", ("bash",)))
    elif there("etc/bashrc") and not says("etc/bashrc", b"profile.d"):
        found.append(("etc/bashrc", ("bash",)))
    if there("etc/zsh"):
        found.append(("etc/zsh/zshrc", ("zsh",)))
    elif there("etc/zshrc") or has("zsh"):
        found.append(("etc/zshrc", ("zsh",)))
    if there("etc/fish") or has("fish"):
        found.append(("etc/fish/conf.d/handwash.fish", ("fish",)))
    # Debian's tcsh does not read profile.d.
    if says("etc/csh.cshrc", b"cshrc.d"):
        found.append(("etc/csh/cshrc.d/handwash.csh", ("tcsh",)))
    elif there("etc/csh.cshrc") and not says("etc/csh.cshrc", b"profile.d"):
        found.append(("etc/csh.cshrc", ("tcsh",)))
    # ksh93 may be built to read this one before a person's own; Debian's and SUSE's is.
    if there("etc/ksh.kshrc") or has("ksh93"):
        found.append(("etc/ksh.kshrc", ("ksh",)))
    # Read by the .kshrc and .mkshrc that new accounts get.
    found += [
        (f"etc/{name}", (shell,)) for name, shell in (("kshrc", "ksh"), ("mkshrc", "mksh")) if there(f"etc/{name}")
    ]
    return [Place(os.path.join(root, name), shells) for name, shells in found]


def candidates(root: str) -> list[str]:
    """All files below `root` that may hold a block."""
    names = (
        *("profile.d/handwash.sh", "profile.d/handwash.csh", "bash.bashrc", "bashrc", "zsh/zshrc", "zshrc"),
        *(
            "fish/conf.d/handwash.fish",
            "csh/cshrc.d/handwash.csh",
            "csh.cshrc",
            "csh.logout",
            "ksh.kshrc",
            "kshrc",
            "mkshrc",
        ),
    )
    return [os.path.join(root, "etc", name) for name in names]


def barrier(path: str) -> str | None:
    """The first part of `path` that others may not enter or read; None where there is none."""
    parts = os.path.realpath(path).split("/")
    for count in range(2, len(parts) + 1):
        part = "/".join(parts[:count])
        wanted = 0o001 if count < len(parts) else 0o004
        if not os.stat(part).st_mode & wanted:
            return part
    return None
