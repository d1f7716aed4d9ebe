"""`handwash install` and `handwash uninstall`: the hook's block in the person's start-up files."""

from __future__ import annotations

import os
from typing import NamedTuple

from handwash.messages import _
from handwash.render import harmless, warn
from handwash.shell import block, detect, hooks, rewrite
from handwash.shell.startup_files import SHELLS, Shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Out = Callable[[str], None]


class Change(NamedTuple):
    """What is to become of a file; None stands for no file."""

    path: str
    old: bytes | None
    new: bytes | None


class Refused(Exception):
    """A file that has to stay as it is; the words say why."""


def install(*, shell: str | None = None, dry_run: bool = False, out: Out) -> int:
    """Puts the block into the shell's start-up files. 0 done or nothing to do, 1 refused, 2 no such shell."""
    name = shell or detect.shell_name() or ""
    row = SHELLS.get(name)
    if row is None:
        hooks.say_no_such_shell(name)
        return 2
    hook = hooks.hook_file(row)
    if not os.access(hook, os.R_OK):
        warn(_("handwash: the hook cannot be read: {why}").format(why=harmless(hook)))
        return 1
    line = row.line(hooks.interpreter(), hook)
    if "\n" in line:
        warn(
            _(
                "handwash: installed in a folder whose name holds a line break; the hook cannot be named in a start-up file."
            )
        )
        return 1
    try:
        changes = [_planned(path, lambda content: block.put(content, line)) for path in row.files(_home())]
    except (Refused, OSError) as error:
        return _refuse(error)
    code = _carry_out(changes, dry_run, out)
    if code == 0 and not dry_run:
        out(
            _("The next {shell} has the hook. For this one, type: {command}").format(
                shell=row.name, command=f". {changes[0].path}"
            )
        )
    return code


def uninstall(*, shell: str | None = None, dry_run: bool = False, out: Out) -> int:
    """Takes the block out of the start-up files of that shell, or of all shells. Exit codes as for `install`."""
    if shell is not None and shell not in SHELLS:
        hooks.say_no_such_shell(shell)
        return 2
    rows = [SHELLS[shell]] if shell is not None else list(SHELLS.values())
    try:
        changes = [_planned(path, _taken) for path in _candidates(rows)]
    except (Refused, OSError) as error:
        return _refuse(error)
    if all(change.old == change.new for change in changes):
        out(_("No start-up file has the hook."))
        return 0
    return _carry_out([change for change in changes if change.old != change.new], dry_run, out)


def _taken(content: bytes | None) -> bytes | None:
    return None if content is None else block.take(content)


def _home() -> str:
    return os.path.expanduser("~")


def _candidates(rows: list[Shell]) -> list[str]:
    return [os.path.join(_home(), name) for row in rows for name in row.candidates]


def _planned(path: str, change: Callable[[bytes | None], bytes | None]) -> Change:
    old = rewrite.read(path)
    try:
        return Change(path, old, change(old))
    except block.Unbalanced:
        raise Refused(
            _("{path} holds one of the lines '{begin}' and '{end}' without the other. Mend that by hand first.").format(
                path=harmless(path), begin=block.BEGIN.decode(), end=block.END.decode()
            )
        ) from None


def _refuse(error: Exception) -> int:
    warn("handwash: " + harmless(str(error), 1000))
    return 1


def _carry_out(changes: list[Change], dry_run: bool, out: Out) -> int:
    for change in changes:
        shown = harmless(change.path, 1000)
        if change.old == change.new:
            out(_("{path} has the hook already.").format(path=shown))
            continue
        if dry_run:
            for line in _difference(change):
                out(line)
            continue
        try:
            backup = rewrite.replace(change.path, change.old, change.new)
        except OSError as error:
            return _refuse(error)
        if change.new is None:
            out(_("{path} is removed: it held nothing but the hook.").format(path=shown))
        elif backup is None:
            out(_("{path} is new.").format(path=shown))
        else:
            out(_("{path} is changed; as it was before: {backup}").format(path=shown, backup=harmless(backup, 1000)))
    return 0


def _difference(change: Change) -> list[str]:
    """The change as `diff -u` shows it, made harmless for the terminal."""
    import difflib

    def lines(content: bytes | None) -> list[str]:
        text = "" if content is None else content.decode("utf-8", "surrogateescape")
        return text.removesuffix("\n").split("\n") if text else []

    before = "/dev/null" if change.old is None else change.path
    after = "/dev/null" if change.new is None else change.path
    difference = difflib.unified_diff(lines(change.old), lines(change.new), before, after, lineterm="")
    return [_harmless_line(line) for line in difference]


def _harmless_line(line: str) -> str:
    return "\t".join(harmless(part, 4000) for part in line.split("\t"))
