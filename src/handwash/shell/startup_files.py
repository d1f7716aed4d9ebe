"""The shells that have a hook: one row each, with its file, its start-up files and the line that goes into them."""

from __future__ import annotations

import os
import re
import shlex
from typing import Callable, NamedTuple

from handwash import run, world
from handwash.messages import N_


class Farewell(NamedTuple):
    """What a shell reads when it ends, where a hook has no other way to hear of it."""

    file: str
    """Below the home folder."""
    site_file: str
    """The same for everybody, below `/`."""
    line: str
    """The line of the block. It changes nothing where the hook is gone."""
    guard: str
    """How that line starts."""


class Shell(NamedTuple):
    """What install and init have to know of a shell."""

    name: str
    hook: str
    """The hook's file in shellhooks/."""
    files: Callable[[str], list[str]]
    """The start-up files, for a home folder, that have to hold the block, so that each interactive shell meets it."""
    candidates: Callable[[str], list[str]]
    """All files, for a home folder, that may hold a block."""
    line: Callable[[str, str], str]
    """The line of the block, for an interpreter and a hook file. It stays silent where the hook is gone."""
    guard: str
    """How that line starts: it tells the line from another shell's in a file that several shells read."""
    dot: str = "."
    """The word that reads a file into the running shell."""
    hint: Callable[[str], str | None] = lambda home: None
    """What a person has to know of where this shell looks, for a home folder."""
    farewell: Farewell | None = None

    @property
    def guards(self) -> tuple[str, ...]:
        """How each of its lines starts."""
        return (self.guard,) if self.farewell is None else (self.guard, self.farewell.guard)


def _in(home: str, *names: str) -> list[str]:
    return [os.path.join(home, name) for name in names]


# --- bash -------------------------------------------------------------------------------------------------------------

_BASH_LOGIN = (".bash_profile", ".bash_login", ".profile")
# `. ~/.bashrc`, `source "$HOME/.bashrc"`, `[ -f ~/.bashrc ] && . ~/.bashrc`: not in a comment. What this misses only means
# a second block, and the hook lets itself in once.
_SOURCES_BASHRC = re.compile(rb"^[^#\n]*(?:^|[\s;&|({])(?:\.|source)[ \t]+[^\s;&|#]*\.bashrc(?![\w.-])", re.MULTILINE)


def _bash_files(home: str) -> list[str]:
    """`.bashrc`, and the file of login shells (as over ssh) unless that sources it. bash reads the first one there is."""
    files = _in(home, ".bashrc")
    login = _in(home, *_BASH_LOGIN)
    # Where there is none, `.profile`: it never hides another one that comes later.
    first = next((path for path in login if os.access(path, os.R_OK)), login[-1])
    try:
        with open(first, "rb") as file:
            sourced = _SOURCES_BASHRC.search(file.read()) is not None
    except FileNotFoundError:
        sourced = False
    return files if sourced else [*files, first]


_BASH_GUARD = '[ -n "${BASH_VERSION-}" ]'


def _bash_line(python: str, hook: str) -> str:
    # `.profile` is read by other shells too.
    return (
        f"{_BASH_GUARD} && [ -r {shlex.quote(hook)} ]"
        f" && __handwash_python={shlex.quote(python)} && . {shlex.quote(hook)} || :"
    )


# --- zsh --------------------------------------------------------------------------------------------------------------

_ZSH_GUARD = '[ -n "${ZSH_VERSION-}" ]'


def _zsh_line(python: str, hook: str) -> str:
    return (
        f"{_ZSH_GUARD} && [ -r {shlex.quote(hook)} ]"
        f" && __handwash_python={shlex.quote(python)} && . {shlex.quote(hook)} || :"
    )


def _zsh_folder(home: str) -> str:
    """`$ZDOTDIR`, also where `.zshenv` sets it without exporting it: then only zsh itself can tell."""
    folder = world.env.get("ZDOTDIR", "")
    if not folder and any(
        _mentions(path, b"ZDOTDIR") for path in (*_in(home, ".zshenv"), "/etc/zsh/zshenv", "/etc/zshenv")
    ):
        try:
            folder = os.fsdecode(run.run(["zsh", "-c", 'print -rn -- "${ZDOTDIR-}"'], 5, dict(world.env)).out)
        except OSError:
            folder = ""
    return folder if os.path.isabs(folder) else home


def _mentions(path: str, word: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return word in file.read()
    except OSError:
        return False


def _zsh_files(home: str) -> list[str]:
    return _in(_zsh_folder(home), ".zshrc")


def _zsh_candidates(home: str) -> list[str]:
    return [*_in(home, ".zshrc"), *_zsh_files(home)]


# --- fish -------------------------------------------------------------------------------------------------------------


def _fish_files(home: str) -> list[str]:
    """A file of our own: fish reads every one in that folder, and nobody's has to be changed."""
    folder = world.env.get("XDG_CONFIG_HOME", "")
    return _in(folder if os.path.isabs(folder) else os.path.join(home, ".config"), "fish/conf.d/handwash.fish")


def _fish_candidates(home: str) -> list[str]:
    return [*_in(home, ".config/fish/conf.d/handwash.fish"), *_fish_files(home)]


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_FISH_GUARD = "status is-interactive"


def _fish_line(python: str, hook: str) -> str:
    return (
        f"{_FISH_GUARD}; and test -r {_fish_quote(hook)}"
        f"; and set -g __handwash_python {_fish_quote(python)}; and set -g __handwash_hook {_fish_quote(hook)}"
        f"; and source {_fish_quote(hook)}; or true"
    )


# --- tcsh -------------------------------------------------------------------------------------------------------------


def _tcsh_files(home: str) -> list[str]:
    """`.tcshrc`, else `.cshrc`: made anew, a `.tcshrc` would hide a `.cshrc` that comes later."""
    first, second = _in(home, ".tcshrc", ".cshrc")
    return [first if os.path.exists(first) else second]


def _tcsh_quote(text: str) -> str:
    # History is looked for inside quotes too.
    return "'" + text.replace("'", "'\\''").replace("!", "\\!") + "'"


_TCSH_GUARD = "if ( $?tcsh ) set __handwash_python="


def _tcsh_line(python: str, hook: str) -> str:
    return (
        f"{_TCSH_GUARD}{_tcsh_quote(python)} __handwash_hook={_tcsh_quote(hook)}"
        f"; if ( $?tcsh && -r {_tcsh_quote(hook)} ) source {_tcsh_quote(hook)}"
    )


# Login shells alone read it. Without an `if ... then`: after `endif` the status, which is the shell's, would be 0. What is
# `eval`ed is expanded only if the hook is there.
_TCSH_LATE = "set __handwash_status = $status"
_TCSH_FAREWELL = Farewell(
    ".logout",
    "etc/csh.logout",
    f"{_TCSH_LATE}; if ( $?__handwash_loaded ) eval 'if ( -r $__handwash_hook:q ) source $__handwash_hook:q __handwash_late"
    " $__handwash_status'; set status = $__handwash_status",
    _TCSH_LATE,
)


# --- ksh, mksh, dash, busybox ash -------------------------------------------------------------------------------------

# One line serves all of these, so that one file can be the start-up file of several. None tells a file its own name.
_SH_GUARD = '[ -z "${BASH_VERSION-}${ZSH_VERSION-}" ]'


def _sh_line(python: str, hook: str) -> str:
    return (
        f"{_SH_GUARD} && [ -r {shlex.quote(hook)} ] && __handwash_python={shlex.quote(python)}"
        f" && __handwash_hook={shlex.quote(hook)} && . {shlex.quote(hook)} || :"
    )


def _env_file(home: str) -> str | None:
    """The file that `$ENV` names, if it is the person's own to write."""
    named = world.env.get("ENV", "")
    for variable in ("${HOME}", "$HOME"):
        named = named.replace(variable, home)
    if not os.path.isabs(named) or "$" in named or os.path.isdir(named):
        return None
    if not os.path.exists(named):
        folder = os.path.dirname(named)
        return named if os.path.isdir(folder) and os.access(folder, os.W_OK) else None
    return named if os.access(named, os.W_OK) else None


def _sh_files(default: str) -> Callable[[str], list[str]]:
    def files(home: str) -> list[str]:
        named = _env_file(home)
        if named is not None:
            return [named]
        # A set $ENV that cannot be written takes the place of the shell's own file.
        return _in(home, ".profile" if world.env.get("ENV") else default)

    return files


def _sh_candidates(home: str) -> list[str]:
    named = _env_file(home)
    return [*_in(home, ".kshrc", ".mkshrc", ".profile"), *([] if named is None else [named])]


# Setting ENV here would be worse: a ksh or mksh started below would no longer read its own .kshrc or .mkshrc.
_LOGIN_ONLY = N_(
    "Login shells have the hook. {shell} reads another file only where ENV names one: to have the hook in other shells too,"
    " export ENV in ~/.profile and install again."
)


def _sh_hint(files: Callable[[str], list[str]]) -> Callable[[str], str | None]:
    return lambda home: _LOGIN_ONLY if files(home) == _in(home, ".profile") else None


def _sh(name: str, default: str) -> Shell:
    files = _sh_files(default)
    return Shell(name, "handwash.sh", files, _sh_candidates, _sh_line, _SH_GUARD, hint=_sh_hint(files))


SHELLS: dict[str, Shell] = {
    shell.name: shell
    for shell in (
        Shell(
            "bash",
            "handwash.bash",
            _bash_files,
            lambda home: _in(home, ".bashrc", *_BASH_LOGIN),
            _bash_line,
            _BASH_GUARD,
        ),
        Shell("zsh", "handwash.zsh", _zsh_files, _zsh_candidates, _zsh_line, _ZSH_GUARD),
        Shell("fish", "handwash.fish", _fish_files, _fish_candidates, _fish_line, _FISH_GUARD, "source"),
        Shell(
            "tcsh",
            "handwash.csh",
            _tcsh_files,
            lambda home: _in(home, ".tcshrc", ".cshrc", _TCSH_FAREWELL.file),
            _tcsh_line,
            _TCSH_GUARD,
            "source",
            farewell=_TCSH_FAREWELL,
        ),
        _sh("ksh", ".kshrc"),
        _sh("mksh", ".mkshrc"),
        _sh("dash", ".profile"),
        _sh("ash", ".profile"),
    )
}
# Other names of theirs.
_ALIASES = {"csh": "tcsh", "ksh93": "ksh", "busybox": "ash", "lksh": "mksh"}


def find(name: str) -> Shell | None:
    """The row of a shell; `sh` is whichever of them stands behind that name here."""
    if name == "sh":
        name = os.path.basename(os.path.realpath("/bin/sh"))
    return SHELLS.get(_ALIASES.get(name, name))
