"""Every shell, every way out: what happens in each cell of docs/ways-out.md is what happens here, under a real terminal.

`python -m tests.shells.test_ways_out` prints the table as this machine's shells make it.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest
from tests.shells.terminal import KINDS, REPO, Person, Terminal, person, stopped_job

TABLE = REPO / "docs" / "ways-out.md"
SHELLS = list(KINDS)
WAYS: dict[str, Callable[[Person], str]] = {}

HELD_BACK = "held back"
ASKED_LATE = "asked late"
TOLD = "told at next login"
NOTHING = "nothing possible"
NO_WAY_OUT = "no way out"
LEAVES = "leaves"
STAYS = "stays"
WARNS = "warns, then leaves"
NONE = "not in this shell"


def way(name: str) -> Callable[[Callable[[Person], str]], Callable[[Person], str]]:
    def enter(scene: Callable[[Person], str]) -> Callable[[Person], str]:
        WAYS[name] = scene
        return scene

    return enter


def opened(somebody: Person, *options: str, after: str = "", **leave: object) -> Terminal:
    """A terminal of somebody whom handwash would keep."""
    somebody.env["HANDWASH_BANNER"] = "off"
    somebody.tree.behave(leave=leave or {"code": 75})
    if after:
        somebody.startup(after=after)
    return somebody.opens(somebody.kind.login) if options else somebody.shell()


def came_back(terminal: Terminal) -> bool:
    """Waits for the next prompt, or for the shell's end."""
    if terminal.child.expect([terminal.PROMPT, pexpect.EOF]) == 0:
        terminal.status = int(terminal.child.match.group(1))
        return True
    return False


def seen(somebody: Person, terminal: Terminal) -> str:
    """What happened, by what is still there and what was asked."""
    if came_back(terminal):
        return HELD_BACK if somebody.tree.said() else NO_WAY_OUT
    terminal.ends()
    return after_the_end(somebody)


def after_the_end(somebody: Person) -> str:
    calls = [call for call in somebody.tree.calls() if call["argv"] != ["banner"]]
    if not calls:
        return NOTHING
    assert len(calls) == 1
    if calls[0]["argv"] == ["leave", "hup"]:
        assert calls[0]["ttys"] == [False, False, False]
        return TOLD
    assert calls[0]["ttys"][0], "nobody to ask"  # type: ignore[index]
    return ASKED_LATE


def typed(somebody: Person, line: str, *options: str, after: str = "") -> str:
    terminal = opened(somebody, *options, after=after)
    terminal.child.sendline(line)
    return seen(somebody, terminal)


def by_shell(somebody: Person, usual: str, **others: str) -> str:
    return others.get(somebody.kind.name, usual)


@way("`exit`")
def plain_exit(somebody: Person) -> str:
    return typed(somebody, "exit")


@way("`exit N`")
def exit_with_a_status(somebody: Person) -> str:
    terminal = opened(somebody)
    terminal.child.sendline("exit 7")
    outcome = seen(somebody, terminal)
    if outcome == HELD_BACK:
        terminal.child.sendline("exit 7")
        assert terminal.ends() == 7
    return outcome


@way("`logout` in a login shell")
def logout(somebody: Person) -> str:
    if somebody.kind.name in ("ksh", "mksh", "dash", "ash", "fish"):
        return NONE
    return typed(somebody, "logout", "-l")


@way("Ctrl-D on an empty line")
def ctrl_d(somebody: Person) -> str:
    terminal = opened(somebody)
    terminal.child.sendeof()
    return seen(somebody, terminal)


@way("Ctrl-D on an empty line, login shell")
def ctrl_d_in_a_login_shell(somebody: Person) -> str:
    terminal = opened(somebody, "-l")
    terminal.child.sendeof()
    return seen(somebody, terminal)


@way("Ctrl-D with text on the line")
def ctrl_d_with_text(somebody: Person) -> str:
    terminal = opened(somebody)
    terminal.child.send("echo te\x04xt\r")
    terminal.child.expect("\r\n(?:\x1b[^\r\n]*)?text\r+\n")
    return seen(somebody, terminal)


@way("a second `exit` in a row")
def second_exit(somebody: Person) -> str:
    terminal = opened(somebody)
    terminal.child.sendline("exit")
    assert came_back(terminal)
    terminal.child.sendline("exit 4")
    assert terminal.ends() == 4
    assert somebody.tree.said() == ["leave exit", "leave exit --again"]
    return LEAVES


@way("Ctrl-C at the question of `exit`")
def ctrl_c(somebody: Person) -> str:
    terminal = opened(somebody, ask=True)
    terminal.child.sendline("exit")
    terminal.child.expect_exact("stay or go?")
    terminal.child.sendintr()
    return STAYS if came_back(terminal) else LEAVES


@way("`exit` with stopped jobs")
def stopped_jobs(somebody: Person) -> str:
    terminal = opened(somebody, code=0)
    with stopped_job(terminal, "/bin/sleep 100"):
        terminal.child.sendline("exit")
        if not came_back(terminal):
            return LEAVES
        warned = "job" in str(terminal.child.before)
        terminal.child.sendline("exit 8")
        assert terminal.ends() == 8
        return WARNS if warned else "silent, then leaves"


@way("terminal closed")
def terminal_closed(somebody: Person) -> str:
    terminal = opened(somebody)
    terminal.hang_up()
    return after_the_end(somebody)


@way("terminal closed, login shell")
def terminal_of_a_login_shell_closed(somebody: Person) -> str:
    terminal = opened(somebody, "-l")
    terminal.hang_up()
    return after_the_end(somebody)


@way("`kill -HUP` of the shell")
def kill_hup(somebody: Person) -> str:
    terminal = opened(somebody)
    os.kill(terminal.pid, signal.SIGHUP)
    # A HUP that comes between readline's prompt and its wait is noticed with the next signal only (bash 5.2).
    if terminal.child.expect([pexpect.EOF, pexpect.TIMEOUT], timeout=2) == 1 and not somebody.tree.said():
        os.kill(terminal.pid, signal.SIGHUP)
        if somebody.kind.name in ("dash", "ash"):
            # With a trap on HUP, dash runs it only when its read of the line has ended.
            terminal.child.sendline("")
            terminal.ends()
            return after_the_end(somebody) + " (at the next line)"
    terminal.ends()
    return after_the_end(somebody)


@way("`kill -TERM` of the shell")
def kill_term(somebody: Person) -> str:
    terminal = opened(somebody)
    os.kill(terminal.pid, signal.SIGTERM)
    # Most ignore it: the next line shows that this one goes on.
    terminal.child.sendline("")
    return seen(somebody, terminal)


@way("`kill -KILL` of the shell")
def kill_kill(somebody: Person) -> str:
    terminal = opened(somebody)
    os.kill(terminal.pid, signal.SIGKILL)
    assert terminal.ends() == 128 + signal.SIGKILL
    return after_the_end(somebody)


@way("`exec PROGRAM`")
def exec_program(somebody: Person) -> str:
    return typed(somebody, "exec true")


@way("`exit` in a function")
def in_a_function(somebody: Person) -> str:
    if somebody.kind.name == "tcsh":
        return NONE
    function = by_shell(somebody, "f() { exit 3; echo went on; }", fish="function f; exit 3; echo went on; end")
    return inside(somebody, "f", function)


@way("`exit` in a sourced file")
def in_a_sourced_file(somebody: Person) -> str:
    (somebody.home / "script").write_text("exit 3\necho went on\n")
    return inside(somebody, f"{somebody.kind.dot} ./script")


def inside(somebody: Person, line: str, after: str = "") -> str:
    terminal = opened(somebody, after=after)
    terminal.child.sendline(line)
    outcome = seen(somebody, terminal)
    assert "went on" not in str(terminal.child.before).replace("echo went on", "")
    return outcome


@way("`exit` in a subshell")
def in_a_subshell(somebody: Person) -> str:
    if somebody.kind.name == "fish":
        return NONE
    return still_here(somebody, "(exit 3)")


@way("`exit` in a script")
def in_a_script(somebody: Person) -> str:
    (somebody.home / "script").write_text("exit 3\n")
    return still_here(somebody, " ".join([*somebody.kind.program, "./script"]))


def still_here(somebody: Person, line: str) -> str:
    terminal = opened(somebody)
    terminal.child.sendline(line)
    outcome = seen(somebody, terminal)
    assert terminal.status == 3
    return outcome


@way("`exit` of a nested shell")
def of_a_nested_shell(somebody: Person) -> str:
    terminal = opened(somebody, code=0)
    # Each call of the inner shell's gate is the check's to judge: it knows that another shell of this terminal is left.
    terminal.greeted = False
    terminal.run(" ".join(somebody.kind.argv()))
    terminal.run("exit 6")
    assert terminal.status == 6
    assert somebody.tree.said() in (["leave exit"], [])
    terminal.run("echo on")
    return NO_WAY_OUT


def table() -> dict[tuple[str, str], str]:
    """(way, shell) to what the docs say."""
    text = TABLE.read_text()
    rows = text[text.index("| way out |") :].partition("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    shells = [name.strip("`") for name in cells[0][1:]]
    return {(row[0], shell): cell for row in cells[2:] for shell, cell in zip(shells, row[1:], strict=False)}


def test_the_table_has_every_cell_and_no_other() -> None:
    assert set(table()) == {(name, shell) for name in WAYS for shell in SHELLS}


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("somebody", SHELLS, indirect=True)
def test_a_cell(somebody: Person, name: str) -> None:
    assert WAYS[name](somebody) == table()[name, somebody.kind.name]


def main(shells: list[str]) -> None:
    print("| way out |", " | ".join(f"`{shell}`" for shell in shells), "|")
    print("| --- |", " | ".join("---" for _shell in shells), "|")
    for name, scene in WAYS.items():
        cells = []
        for shell in shells:
            with tempfile.TemporaryDirectory() as folder, person(Path(folder), KINDS[shell]) as somebody:
                try:
                    cells.append(scene(somebody))
                except (AssertionError, pexpect.ExceptionPexpect) as error:
                    cells.append(f"FAULT {str(error).splitlines()[0] if str(error) else 'assertion'}")
        print(f"| {name} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or SHELLS)
