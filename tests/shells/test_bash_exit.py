"""Ways out of bash, each under a real pseudo-terminal."""

from __future__ import annotations

import os

import pexpect
import pytest
from tests.shells.terminal import Person, stopped_job, until


def quiet(somebody: Person, **leave: object) -> None:
    """The banner is not what these tests are about."""
    somebody.env["HANDWASH_BANNER"] = "off"
    somebody.tree.behave(leave=leave)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("exit", 0),
        ("true; exit", 0),
        ("false; exit", 1),
        ("exit 7", 7),
        ("exit 256", 0),
        ("exit -1", 255),
        ("false; exit 0", 0),
        ("(builtin exit 9); exit", 9),
        ("eval exit 4", 4),
    ],
)
def test_exit_asks_once_and_leaves_with_bashs_own_status(somebody: Person, line: str, status: int) -> None:
    quiet(somebody)
    terminal = somebody.shell()
    terminal.child.sendline(line)
    assert terminal.ends() == status
    assert somebody.tree.said() == ["leave exit"]
    plain = somebody.shell("--norc", "-i", PS1="[$?]> ")
    plain.child.sendline(line)
    assert plain.ends() == status
    assert plain.rest == terminal.rest


@pytest.mark.parametrize(
    "line", ["exit 1 2", "exit --help", "exit abc", "exit ''", "exit -- 3", "exit 99999999999999999999"]
)
def test_exit_with_odd_words_does_what_bash_does(somebody: Person, line: str) -> None:
    """Leaves or refuses, by version, with the same words and status."""
    quiet(somebody)
    outcomes = []
    for options in (("--norc", "-i"), ("-i",)):
        terminal = somebody.shell(*options, PS1="[$?]> ")
        terminal.child.sendline(line)
        left = terminal.child.expect([terminal.PROMPT, pexpect.EOF])
        outcomes.append((left, terminal.child.before, terminal.ends() if left else terminal.child.match.group(1)))
    assert outcomes[0] == outcomes[1]
    if line == "exit 1 2":
        assert "too many arguments" in str(outcomes[0][1])
        assert somebody.tree.said() == []


def test_stay_stays_and_the_second_exit_in_a_row_leaves(somebody: Person) -> None:
    quiet(somebody, code=75)
    terminal = somebody.shell()
    assert terminal.run("false; exit") == ""
    assert terminal.status == 1
    terminal.child.sendline("exit")
    assert terminal.ends() == 1
    assert somebody.tree.said() == ["leave exit", "leave exit --again"]


def test_exit_after_something_else_is_a_first_attempt_again(somebody: Person) -> None:
    quiet(somebody, code=75)
    terminal = somebody.shell()
    terminal.run("exit")
    terminal.run("echo in between")
    terminal.run("exit")
    terminal.child.sendline("exit 3")
    assert terminal.ends() == 3
    assert somebody.tree.said() == ["leave exit", "leave exit", "leave exit --again"]


def test_the_second_attempt_expires(somebody: Person) -> None:
    quiet(somebody, code=75)
    terminal = somebody.shell()
    terminal.run("exit")
    # The clock cannot be moved; the moment that the hook remembers can.
    terminal.run("__handwash_held=$((${__handwash_held%:*} - 61)):$((LINENO + 1))")
    terminal.run("exit")
    assert somebody.tree.said() == ["leave exit", "leave exit"]


def test_exit_in_a_loop_cannot_be_held_for_ever(somebody: Person) -> None:
    quiet(somebody, code=75)
    terminal = somebody.shell()
    terminal.child.sendline("while :; do exit 5; done")
    assert terminal.ends() == 5
    assert somebody.tree.said() == ["leave exit", "leave exit --again"]


def test_the_question_has_the_terminal(somebody: Person) -> None:
    quiet(somebody, ask=True)
    terminal = somebody.shell()
    terminal.child.sendline("exit")
    terminal.child.expect_exact("stay or go?")
    terminal.child.sendline("75")
    terminal.prompt()
    call = somebody.tree.calls()[0]
    assert call["ttys"] == [True, True, True]
    assert call["foreground"] is True
    assert call["flags"] == [1, 1]
    terminal.run("echo on")
    terminal.child.sendline("exit")
    terminal.child.expect_exact("stay or go?")
    terminal.child.sendline("0")
    assert terminal.ends() == 0


def test_ctrl_c_at_the_question_cancels_the_exit(somebody: Person) -> None:
    quiet(somebody, ask=True)
    terminal = somebody.shell()
    terminal.child.sendline("exit; echo went on")
    terminal.child.expect_exact("stay or go?")
    terminal.child.sendintr()
    assert "went on" not in terminal.prompt()
    assert terminal.status == 130
    terminal.child.sendline("exit")
    assert terminal.ends() == 130, "the second attempt in a row leaves"
    assert somebody.tree.said() == ["leave exit"]


@pytest.mark.parametrize("trap", ["trap 'echo mine' INT", "trap '' INT"])
def test_ctrl_c_cancels_under_a_persons_own_int_trap(somebody: Person, trap: str) -> None:
    quiet(somebody, code=130)
    somebody.startup(before=trap)
    terminal = somebody.shell()
    terminal.run("exit")
    assert terminal.run("trap -p INT").strip() == f"trap -- {trap[5:-4]} SIGINT"


def test_logout_in_a_login_shell(somebody: Person) -> None:
    quiet(somebody, code=75)
    terminal = somebody.shell("-l")
    terminal.run("logout")
    terminal.child.sendline("logout")
    assert terminal.ends() == 0
    assert somebody.tree.said() == ["leave logout", "leave logout --again"]


def test_logout_elsewhere_is_bashs_own(somebody: Person) -> None:
    quiet(somebody)
    terminal = somebody.shell()
    assert "not login shell" in terminal.run("logout")
    assert somebody.tree.said() == []


def test_ctrl_d_on_an_empty_line_asks_late(somebody: Person) -> None:
    quiet(somebody, ask=True)
    terminal = somebody.shell()
    terminal.run("false")
    terminal.child.sendeof()
    terminal.child.expect_exact("stay or go?")
    terminal.child.sendline("75")
    assert terminal.ends() == 1, "bash cannot be held back here, and keeps its status"
    assert somebody.tree.said() == ["leave eof"]


def test_ctrl_d_with_text_on_the_line_keeps_its_meaning(somebody: Person) -> None:
    quiet(somebody)
    terminal = somebody.shell()
    terminal.child.send("echo text")
    terminal.child.send("\x01\x04\x04")
    terminal.child.send("printf '%s\\n' \x05\r")
    terminal.prompt()
    assert somebody.tree.said() == []


@pytest.mark.parametrize("option", ["IGNOREEOF=1", "set -o ignoreeof"])
def test_ignoreeof_spares_the_first_ctrl_d(somebody: Person, option: str) -> None:
    quiet(somebody)
    terminal = somebody.shell()
    terminal.run(option)
    terminal.child.sendeof()
    assert 'Use "exit" to leave the shell.' in terminal.prompt()
    assert somebody.tree.said() == []
    terminal.child.sendline("exit")
    terminal.ends()
    assert somebody.tree.said() == ["leave exit"]


def test_ctrl_d_with_stderr_elsewhere_still_has_a_person(somebody: Person) -> None:
    quiet(somebody)
    terminal = somebody.shell()
    # The prompt goes there too.
    terminal.child.sendline("exec 2>errors")
    until((somebody.home / "errors").exists, "stderr was not redirected")
    terminal.child.sendeof()
    terminal.ends()
    assert somebody.tree.said() == ["leave eof"]
    assert somebody.tree.calls()[0]["ttys"] == [True, False, False]


def test_a_terminal_closed_during_the_question(somebody: Person) -> None:
    quiet(somebody, ask=True)
    terminal = somebody.shell()
    terminal.child.sendline("exit")
    terminal.child.expect_exact("stay or go?")
    terminal.hang_up()
    until(lambda: len(somebody.tree.said()) == 2, "the hang-up was not told")
    assert somebody.tree.said() == ["leave exit", "leave hup"]


def test_a_nested_shell_has_its_own_gate(somebody: Person) -> None:
    quiet(somebody)
    terminal = somebody.shell()
    terminal.run("bash")
    terminal.run("exit 6")
    assert terminal.status == 6
    assert somebody.tree.said() == ["leave exit"], "leave itself knows that this is not the outermost shell"
    terminal.child.sendline("exit")
    assert terminal.ends() == 6


@pytest.mark.parametrize(
    "line",
    [
        "(exit 3)",
        "x=$(exit 3)",
        "exit 3 | cat; (exit 3)",
        "cat </dev/null | exit 3",
        "exit 3 & wait $!",
        "{ exit 3; } & wait $!",
        "bash -c 'exit 3'",
        "bash ./script",
        ". ./script | cat; (exit 3)",
    ],
)
def test_subshells_and_scripts_are_not_gated(somebody: Person, line: str) -> None:
    quiet(somebody, code=75)
    (somebody.home / "script").write_text("exit 3\n")
    terminal = somebody.shell()
    terminal.run("set +m")
    terminal.run(line)
    assert terminal.status == 3
    assert somebody.tree.said() == []


@pytest.mark.parametrize("line", [". ./script; echo went on", "f; echo went on", "source ./nested"])
def test_exit_in_a_function_or_sourced_file_is_not_held_back(somebody: Person, line: str) -> None:
    quiet(somebody, code=75)
    (somebody.home / "script").write_text("false\nexit 3\necho went on\n")
    (somebody.home / "nested").write_text("g() { exit 3; echo went on; }; g; echo went on\n")
    somebody.startup(after="f() { exit 3; echo went on; }")
    terminal = somebody.shell()
    terminal.child.sendline(line)
    assert terminal.ends() == 3
    assert terminal.rest.replace(line, "").count("went on") == 0
    assert somebody.tree.said() == ["leave eof"], "the check still runs, late"


@pytest.mark.parametrize("jobs", ["", "alias jobs='echo aliased'", "function jobs { echo shadowed; }"])
@pytest.mark.parametrize("option", ["", "shopt -s checkjobs"])
def test_stopped_jobs_bash_warns_and_the_second_attempt_leaves(somebody: Person, jobs: str, option: str) -> None:
    quiet(somebody)
    somebody.startup(after=f"{jobs}\n{option}")
    terminal = somebody.shell()
    with stopped_job(terminal):
        warning = terminal.run("exit")
        assert "There are stopped jobs." in warning
        assert terminal.status == 1
        terminal.child.sendline("exit 8")
        assert terminal.ends() == 8
        assert "aliased" not in terminal.rest
        assert "shadowed" not in terminal.rest
        assert somebody.tree.said() == ["leave exit", "leave exit --again"]


def test_ctrl_z_at_the_question_is_bashs_stopped_job(somebody: Person) -> None:
    quiet(somebody, ask=True)
    terminal = somebody.shell()
    terminal.child.sendline("exit")
    terminal.child.expect_exact("stay or go?")
    terminal.child.send("\x1a")
    assert "stopped jobs" in terminal.prompt()
    terminal.child.sendline("fg")
    # What is typed before it has the terminal again is bash's.
    until(
        lambda: os.tcgetpgrp(terminal.child.child_fd) != terminal.child.pid, "the question is in the foreground again"
    )
    terminal.child.sendline("0")
    terminal.prompt()


def test_off_means_no_gate_and_no_late_check(somebody: Person) -> None:
    quiet(somebody, code=75)
    terminal = somebody.shell(HANDWASH_ON_EXIT="off")
    terminal.child.sendline("false; exit")
    assert terminal.ends() == 1
    assert somebody.tree.said() == []


def test_disabled_later_in_the_same_shell(somebody: Person) -> None:
    quiet(somebody, code=75)
    for leave in ("exit", "\x04"):
        terminal = somebody.shell()
        terminal.run("HANDWASH_DISABLE=1")
        terminal.child.send(leave if leave == "\x04" else leave + "\r")
        assert terminal.ends() == 0
    assert somebody.tree.said() == []
