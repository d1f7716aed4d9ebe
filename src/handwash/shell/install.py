"""`handwash install` and `handwash uninstall`: the hook's block in the person's start-up files."""

from __future__ import annotations

import os
from typing import NamedTuple

from handwash.messages import _
from handwash.render import harmless, warn
from handwash.shell import block, detect, hooks, rewrite, site_files
from handwash.shell.startup_files import SHELLS, Farewell, Shell, find

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


def install(*, shell: str | None = None, system: bool = False, dry_run: bool = False, root: str = "/", out: Out) -> int:
    """Puts the block into the shell's start-up files. 0 done or nothing to do, 1 refused, 2 no such shell.

    With `system` into the files for everybody (below `root`), for one shell or for all that are there.
    """
    if system and shell is None:
        rows = list(SHELLS.values())
    else:
        name = shell or detect.shell_name() or ""
        row = find(name)
        if row is None:
            hooks.say_no_such_shell(name)
            return 2
        rows = [row]
    for row in rows:
        hook = hooks.hook_file(row)
        if not os.access(hook, os.R_OK):
            warn(_("handwash: the hook cannot be read: {why}").format(why=harmless(hook)))
            return 1
        if "\n" in hook + hooks.interpreter():
            why = _(
                "handwash: installed in a folder whose name holds a line break; no start-up file can name the hook."
            )
            warn(why)
            return 1
    try:
        if system:
            _say_who_else(rows, out)
            return _install_for_all(rows, root, dry_run, out)
        changes = [_planned(path, _putting([rows[0]])) for path in rows[0].files(_home())]
        farewell = rows[0].farewell
        if farewell is not None:
            changes.append(_planned(os.path.join(_home(), farewell.file), _putting_farewell(farewell)))
    except (Refused, OSError) as error:
        return _refuse(error)
    code = _carry_out(changes, dry_run, out)
    if code == 0 and not dry_run:
        row = rows[0]
        out(
            _("The next {shell} has the hook. For this one, type: {command}").format(
                shell=row.name, command=f"{row.dot} {harmless(changes[0].path, 1000)}"
            )
        )
        hint = row.hint(_home())
        if hint is not None:
            out(_(hint).format(shell=row.name))
    return code


def uninstall(
    *, shell: str | None = None, system: bool = False, dry_run: bool = False, root: str = "/", out: Out
) -> int:
    """Takes the block out of the start-up files of that shell, or of all shells. Exit codes as for `install`."""
    row = None if shell is None else find(shell)
    if shell is not None and row is None:
        hooks.say_no_such_shell(shell)
        return 2
    rows = list(SHELLS.values()) if row is None else [row]
    guards = ("",) if row is None else row.guards
    try:
        paths = site_files.candidates(root) if system else _candidates(rows)
        changes = [_planned(path, lambda old: None if old is None else block.take(old, guards)) for path in paths]
    except (Refused, OSError) as error:
        return _refuse(error)
    if system:
        _say_who_else(rows, out)
    if all(change.old == change.new for change in changes):
        out(_("No start-up file has the hook."))
        return 0
    return _carry_out([change for change in changes if change.old != change.new], dry_run, out)


def _install_for_all(rows: list[Shell], root: str, dry_run: bool, out: Out) -> int:
    barred = site_files.barrier(hooks.hook_file(rows[0])) or site_files.barrier(hooks.interpreter())
    if barred is not None:
        raise Refused(
            _(
                "{path} is closed to other users: they could not read the hook. Install handwash where everybody can."
            ).format(path=harmless(barred, 1000))
        )
    hook_names = {row.hook for row in rows}
    changes = []
    farewells: dict[Farewell, None] = {}
    for place in site_files.places(root):
        wanted = [SHELLS[name] for name in place.shells if SHELLS[name].hook in hook_names]
        if wanted:
            changes.append(_planned(place.path, _putting(wanted)))
            farewells.update(dict.fromkeys(row.farewell for row in wanted if row.farewell is not None))
    for farewell in farewells:
        changes.append(_planned(os.path.join(root, farewell.site_file), _putting_farewell(farewell)))
    if not changes:
        out(_("No place for a hook for everybody was found in {folder}.").format(folder=harmless(root + "etc", 1000)))
        return 1
    code = _carry_out(changes, dry_run, out, mode=0o644)
    if code == 0 and not dry_run:
        out(_("Everybody's next shell has the hook. To take it out: handwash uninstall --system"))
    return code


def _say_who_else(rows: list[Shell], out: Out) -> None:
    """In the files for everybody one line serves all shells of a family."""
    family = [row.name for row in SHELLS.values() if row.hook == rows[0].hook]
    if len(rows) == 1 and len(family) > 1:
        out(_("{shells} share one hook: for everybody this is done for all of them.").format(shells=", ".join(family)))


def _putting(rows: list[Shell]) -> Callable[[bytes | None], bytes | None]:
    """Puts the lines of these shells into the block."""

    def put(content: bytes | None) -> bytes | None:
        for row in rows:
            content = block.put(content, row.line(hooks.interpreter(), hooks.hook_file(row)), row.guard)
        return content

    return put


def _putting_farewell(farewell: Farewell) -> Callable[[bytes | None], bytes | None]:
    return lambda content: block.put(content, farewell.line, farewell.guard)


def _home() -> str:
    return os.path.expanduser("~")


def _candidates(rows: list[Shell]) -> list[str]:
    return list(dict.fromkeys(path for row in rows for path in row.candidates(_home())))


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


def _carry_out(changes: list[Change], dry_run: bool, out: Out, mode: int = 0o666) -> int:
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
            backup = rewrite.replace(change.path, change.old, change.new, mode=mode)
        except OSError as error:
            return _refuse(error)
        if change.new is None:
            out(_("{path} is removed: it held nothing but the hook.").format(path=shown))
        elif change.old is None:
            out(_("{path} is new.").format(path=shown))
        elif backup is None:
            out(_("{path} is changed.").format(path=shown))
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
