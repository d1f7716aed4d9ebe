"""`handwash init SHELL`: the hook as text, for a start-up file that evaluates it."""

from __future__ import annotations

import os
import shlex
import sys

from handwash import paths
from handwash.messages import _
from handwash.render import harmless, warn
from handwash.shell.startup_files import SHELLS, Shell, find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def init(*, shell: str, out: Callable[[str], None]) -> int:
    """Prints what `eval "$(handwash init bash)"` runs. 0 done, 1 the hook's file cannot be read, 2 no such shell."""
    row = find(shell)
    if row is None:
        say_no_such_shell(shell)
        return 2
    hook = hook_file(row)
    try:
        with open(hook, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        warn(_("handwash: the hook cannot be read: {why}").format(why=harmless(str(error))))
        return 1
    if row.name != "bash":
        # tcsh evaluates no more than one line, and a `return` of the hook's guards must not end a start-up file.
        out(row.line(interpreter(), hook))
        return 0
    # In a function, because the hook's guards end it with `return`: that must not end the person's start-up file.
    out(
        f"__handwash_python={shlex.quote(interpreter())}\n__handwash_hook={shlex.quote(hook)}\n"
        f"function __handwash_init {{\n{text}}}\n__handwash_init\nunset -f __handwash_init"
    )
    return 0


def hook_file(row: Shell) -> str:
    """The hook of that shell in this installation."""
    return os.path.join(os.path.abspath(paths.shellhooks_dir()), row.hook)


def interpreter() -> str:
    """The Python that runs this: the hook calls it by its whole path."""
    return os.path.abspath(sys.executable)


def say_no_such_shell(shell: str) -> None:
    known = " | ".join(SHELLS)
    warn(
        _("handwash: there is no hook for the shell {name}. There is one for: {known}").format(
            name=harmless(repr(shell)), known=known
        )
    )
