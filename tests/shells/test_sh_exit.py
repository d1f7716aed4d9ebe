"""Ways out of ksh93, mksh, dash and busybox ash, each under a real pseudo-terminal."""

from __future__ import annotations

import os
import signal

import pexpect
import pytest
from tests.shells.terminal import Person, Terminal, stopped_job

EVERY = pytest.mark.parametrize("somebody", ["ksh", "mksh", "dash", "ash"], indirect=True)
# What is being run is given up to get back to the prompt; ksh93 need not.
STATUS_AFTER_STAY = {"ksh": 1, "mksh": 130, "dash": 2, "ash": 2}


def opened(somebody: Person, *, before: str = "", after: str = "", **leave: object) -> Terminal:
    somebody.env["HANDWASH_BANNER"] = "off"
    somebody.tree.behave(leave=leave)
    somebody.startup(before=before, after=after)
    return somebody.shell()


def plain(somebody: Person) -> Terminal:
    somebody.startup(hook="")
    return somebody.shell()


@EVERY
@pytest.mark.parametrize(
    ("line", "status"),
    [("exit", 0), ("false; exit", 1), ("exit 7", 7), ("exit 256", 0), ("false; exit 0", 0), ("eval exit 4", 4)],
)
def test_exit_asks_once_and_leaves_with_the_shells_own_status(somebody: Person, line: str, status: int) -> None:
    terminal = opened(somebody)
    terminal.child.sendline(line)
    assert terminal.ends() == status
    assert somebody.tree.said() == ["leave exit"]
    without = plain(somebody)
    without.child.sendline(line)
    assert without.ends() == status
    assert without.rest == terminal.rest


@EVERY
def test_stay_stays_and_the_second_exit_leaves_with_the_first_ones_status(somebody: Person) -> None:
    terminal = opened(somebody, code=75)
    assert terminal.run("false; exit").strip() == ""
    assert terminal.status == STATUS_AFTER_STAY[somebody.kind.name]
    terminal.child.sendline("exit")
    assert terminal.ends() == 1
    assert somebody.tree.said() == ["leave exit", "leave exit --again"]


@EVERY
def test_exit_behind_and_and_or(somebody: Person) -> None:
    terminal = opened(somebody)
    terminal.run("false && exit 3")
    terminal.run("true || exit 3")
    terminal.run("if false; then exit 3; fi")
    assert somebody.tree.said() == []
    terminal.child.sendline("false || exit 3")
    assert terminal.ends() == 3
    assert somebody.tree.said() == ["leave exit"]


# dash does not count its input lines, so "in a row" is a matter of time alone there.
@pytest.mark.parametrize("somebody", ["ksh", "mksh", "ash"], indirect=True)
def test_exit_after_something_else_is_a_first_attempt_again(somebody: Person) -> None:
    terminal = opened(somebody, code=75)
    terminal.run("exit")
    terminal.run("echo in between")
    terminal.run("exit")
    assert somebody.tree.said() == ["leave exit", "leave exit"]


@EVERY
def test_the_second_attempt_expires(somebody: Person) -> None:
    terminal = opened(somebody, code=75)
    terminal.run("exit")
    # The clock cannot be moved; the moment that the hook remembers can. On the line of the exit, for those that count.
    terminal.run("__handwash_held=$((${__handwash_held%:*} - 61)):${__handwash_held#*:}; exit")
    assert somebody.tree.said() == ["leave exit", "leave exit"]


@EVERY
def test_exit_in_a_loop_cannot_be_held_for_ever(somebody: Person) -> None:
    terminal = opened(somebody, code=75)
    terminal.child.sendline("while :; do exit 5; done")
    if terminal.child.expect([terminal.PROMPT, pexpect.EOF]) == 0:
        terminal.child.sendline("exit 5")
    assert terminal.ends() == 5
    assert somebody.tree.said() == ["leave exit", "leave exit --again"]


@EVERY
def test_the_question_has_the_terminal(somebody: Person) -> None:
    terminal = opened(somebody, ask=True)
    terminal.child.sendline("exit")
    terminal.child.expect_exact("stay or go?")
    terminal.child.sendline("75")
    terminal.prompt()
    call = somebody.tree.calls()[0]
    assert call["ttys"] == [True, True, True]
    assert call["foreground"] is True
    assert call["flags"] == [1, 1]


@EVERY
def test_ctrl_c_at_the_question_stays_and_the_second_attempt_leaves(somebody: Person) -> None:
    terminal = opened(somebody, ask=True)
    terminal.child.sendline("exit")
    terminal.child.expect_exact("stay or go?")
    terminal.child.sendintr()
    terminal.prompt()
    somebody.tree.behave()
    terminal.child.sendline("exit 9")
    assert terminal.ends() == 9
    assert somebody.tree.said() in (["leave exit"], ["leave exit", "leave exit --again"])


@EVERY
@pytest.mark.parametrize("line", ["f; echo went on", ". ./script; echo went on", ". ./nested; echo went on"])
def test_nothing_runs_on_after_exit_in_a_function_or_sourced_file(somebody: Person, line: str) -> None:
    """ksh93 tells them from the top level, and asks late; in the others staying gives up all that is being run."""
    (somebody.home / "script").write_text("exit 3\necho went on\n")
    (somebody.home / "nested").write_text("g() { exit 3; echo went on; }; g; echo went on\n")
    terminal = opened(somebody, after="f() { exit 3; echo went on; }", code=75)
    terminal.child.sendline(line)
    held = terminal.child.expect([terminal.PROMPT, pexpect.EOF]) == 0
    assert str(terminal.child.before).replace(line, "").count("went on") == 0
    assert held == (somebody.kind.name != "ksh")
    if held:
        assert somebody.tree.said() == ["leave exit"]
    else:
        assert terminal.ends() == 3
        assert somebody.tree.said() == ["leave eof"]


@EVERY
def test_staying_leaves_a_persons_int_trap(somebody: Person) -> None:
    terminal = opened(somebody, before="trap 'echo mine' INT", code=75)
    terminal.run("exit")
    terminal.run("trap >traps")
    assert "echo mine" in (somebody.home / "traps").read_text()


@EVERY
@pytest.mark.parametrize(
    "line",
    ["(exit 3)", "x=$(exit 3)", "exit 3 | cat; (exit 3)", "exit 3 & wait $!", "{ exit 3; } & wait $!", "sh ./script"],
)
def test_subshells_and_scripts_are_not_gated(somebody: Person, line: str) -> None:
    (somebody.home / "script").write_text("exit 3\n")
    terminal = opened(somebody, code=75)
    terminal.run(line)
    assert terminal.status == 3
    assert somebody.tree.said() == []


@EVERY
def test_ctrl_d_asks_late_and_keeps_the_status(somebody: Person) -> None:
    terminal = opened(somebody, ask=True)
    terminal.run("false")
    terminal.child.sendeof()
    terminal.child.expect_exact("stay or go?")
    terminal.child.sendline("75")
    assert terminal.ends() == 1, "it cannot be held back here"
    assert somebody.tree.said() == ["leave eof"]


@EVERY
def test_ctrl_c_at_the_late_question_does_not_skip_a_persons_trap(somebody: Person) -> None:
    terminal = opened(somebody, before="trap 'echo mine >>~/traps' EXIT", ask=True)
    terminal.child.sendeof()
    terminal.child.expect_exact("stay or go?")
    terminal.child.sendintr()
    terminal.ends()
    assert (somebody.home / "traps").read_text() == "mine\n"


@EVERY
@pytest.mark.parametrize("option", ["-i", "-l"])
def test_a_closed_terminal_is_told_once_without_a_terminal(somebody: Person, option: str) -> None:
    opened(somebody)
    terminal = somebody.shell(option)
    terminal.hang_up()
    assert somebody.tree.said() == ["leave hup"]
    assert somebody.tree.calls()[0]["ttys"] == [False, False, False]


@EVERY
def test_a_terminal_closed_during_the_question(somebody: Person) -> None:
    terminal = opened(somebody, ask=True)
    terminal.child.sendline("exit")
    terminal.child.expect_exact("stay or go?")
    terminal.hang_up()
    assert somebody.tree.said() == ["leave exit", "leave hup"]


@EVERY
def test_kill_hup_asks_late_and_then_ends_the_shell_as_before(somebody: Person) -> None:
    terminal = opened(somebody)
    os.kill(terminal.pid, signal.SIGHUP)
    if somebody.kind.name in ("dash", "ash"):
        # With a trap on it they look at it after the next line only.
        terminal.child.sendline("")
    status = terminal.ends()
    assert somebody.tree.said() == ["leave eof"]
    if somebody.kind.name != "ksh":
        assert status == 128 + signal.SIGHUP


@EVERY
@pytest.mark.parametrize("text", ["echo mine >>traps", "echo mine >>traps; exit 6"])
def test_a_persons_hup_trap_stays_theirs(somebody: Person, text: str) -> None:
    terminal = opened(somebody, before=f"trap '{text}' HUP")
    os.kill(terminal.pid, signal.SIGHUP)
    if "exit" not in text or somebody.kind.name in ("dash", "ash"):
        # The shell goes on, or looks at the signal only now.
        terminal.child.sendline("exit")
    terminal.ends()
    assert (somebody.home / "traps").read_text() == "mine\n"
    assert len(somebody.tree.said()) == 1


@EVERY
def test_kill_kill_and_exec_run_no_hook(somebody: Person) -> None:
    terminal = opened(somebody)
    os.kill(terminal.pid, signal.SIGKILL)
    assert terminal.ends() == 128 + signal.SIGKILL
    terminal = opened(somebody, before="trap 'echo mine >>~/traps' EXIT")
    terminal.run("false")
    terminal.child.sendline("exec sh -c 'exit 4'")
    assert terminal.ends() == 4
    assert somebody.tree.said() == []
    assert not (somebody.home / "traps").exists()
    terminal = somebody.shell()
    # A builtin, which mksh runs itself, and then its EXIT trap.
    terminal.child.sendline("exec true")
    assert terminal.ends() == 0
    assert somebody.tree.said() == []


@EVERY
def test_exec_of_redirections_alone_is_no_way_out(somebody: Person) -> None:
    terminal = opened(somebody)
    terminal.run("exec 3</dev/null")
    terminal.run("true")
    terminal.child.sendeof()
    terminal.ends()
    assert somebody.tree.said() == ["leave eof"]


@EVERY
def test_stopped_jobs_the_shell_warns_and_the_second_attempt_leaves(somebody: Person) -> None:
    terminal = opened(somebody)
    with stopped_job(terminal, "/bin/sleep 100"):
        assert "stopped jobs" in terminal.run("exit")
        terminal.child.sendline("exit 8")
        assert terminal.ends() == 8
        assert somebody.tree.said() == ["leave exit"]


@pytest.mark.parametrize("somebody", ["mksh", "dash", "ash"], indirect=True)
def test_a_nested_shell_has_its_own_gate(somebody: Person) -> None:
    terminal = opened(somebody)
    terminal.run(" ".join(somebody.kind.argv()))
    terminal.run("exit 6")
    assert terminal.status == 6
    assert somebody.tree.said() == ["leave exit"], "leave itself knows that this is not the outermost shell"


@EVERY
def test_off_and_disabled_later(somebody: Person) -> None:
    opened(somebody, code=75)
    for setting in ("HANDWASH_ON_EXIT=off", "HANDWASH_DISABLE=1"):
        for way in ("exit", "eof"):
            terminal = somebody.shell()
            terminal.run(setting)
            terminal.leave(way, 4)
            assert terminal.ends() == 4
    assert somebody.tree.said() == []
