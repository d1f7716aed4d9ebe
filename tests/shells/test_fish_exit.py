"""Ways out of fish, each under a real pseudo-terminal."""

from __future__ import annotations

import pexpect
import pytest
from tests.shells.terminal import Person, Terminal, stopped_job, until

pytestmark = pytest.mark.parametrize("somebody", ["fish"], indirect=True)


def quiet(somebody: Person, **leave: object) -> None:
    """The banner is not what these tests are about."""
    somebody.env["HANDWASH_BANNER"] = "off"
    somebody.tree.behave(leave=leave)


def plain(somebody: Person) -> Terminal:
    """A shell with the same start-up file, without the hook."""
    return somebody.shell(HANDWASH_DISABLE="1")


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("exit", 0),
        ("false; exit", 1),
        ("exit 7", 7),
        ("exit 300", 255),
        ("false; exit 0", 0),
        ("false; or exit", 1),
        ("true; and exit 4", 4),
        ("true || exit 4; exit 5", 5),
        ("if true; exit 6; end", 6),
        ("begin; exit 3; end", 3),
        ("eval exit 4", 4),
        ("echo | exit 4", 4),
        ("sh -c 'exit 9'; exit", 9),
        ("set x 5; exit $x", 5),
    ],
)
def test_exit_asks_once_and_leaves_with_fishs_own_status(somebody: Person, line: str, status: int) -> None:
    quiet(somebody)
    terminal = somebody.shell()
    terminal.child.sendline(line)
    assert terminal.ends() == status
    assert somebody.tree.said() == ["leave exit"]
    without = plain(somebody)
    without.child.sendline(line)
    assert without.ends() == status


@pytest.mark.parametrize("line", ["exit 1 2", "exit abc", "exit ''", "exit -- 3", "exit 99999999999999999999"])
def test_exit_with_odd_words_does_what_fish_does(somebody: Person, line: str) -> None:
    """Leaves or refuses, with the same status."""
    quiet(somebody)
    outcomes = []
    for terminal in (plain(somebody), somebody.shell()):
        terminal.child.sendline(line)
        left = terminal.child.expect([terminal.PROMPT, pexpect.EOF])
        outcomes.append((left, terminal.ends() if left else terminal.child.match.group(1)))
    assert outcomes[0] == outcomes[1]


def test_stay_stays_and_the_second_exit_in_a_row_leaves(somebody: Person) -> None:
    quiet(somebody, code=75)
    terminal = somebody.shell()
    assert terminal.run("false; exit 5") == ""
    assert terminal.status == 1
    terminal.child.sendline("exit")
    assert terminal.ends() == 1
    assert somebody.tree.said() == ["leave exit", "leave exit --again"]


def test_exit_after_something_else_is_a_first_attempt_again(somebody: Person) -> None:
    quiet(somebody, code=75)
    terminal = somebody.shell()
    terminal.run("exit")
    terminal.run(" echo in between")
    terminal.run("exit")
    terminal.child.sendline("exit 3")
    assert terminal.ends() == 3
    assert somebody.tree.said() == ["leave exit", "leave exit", "leave exit --again"]


def test_the_second_attempt_expires(somebody: Person) -> None:
    quiet(somebody, code=75)
    terminal = somebody.shell()
    # The clock cannot be moved; the moment that the hook remembers can.
    terminal.run("exit; set __handwash_held (math $__handwash_held - 61)")
    terminal.run("exit")
    assert somebody.tree.said() == ["leave exit", "leave exit"]


def test_exit_in_a_loop_cannot_be_held_for_ever(somebody: Person) -> None:
    quiet(somebody, code=75)
    terminal = somebody.shell()
    terminal.child.sendline("while true; exit 5; end")
    assert terminal.ends() == 5
    assert somebody.tree.said() == ["leave exit", "leave exit --again"]


@pytest.mark.parametrize("way", ["exit\r", "\x04"])
def test_the_question_has_the_terminal(somebody: Person, way: str) -> None:
    quiet(somebody, ask=True)
    terminal = somebody.shell()
    terminal.child.send(way)
    terminal.child.expect_exact("stay or go?")
    terminal.child.sendline("75")
    terminal.prompt()
    call = somebody.tree.calls()[0]
    assert call["ttys"] == [True, True, True]
    assert call["foreground"] is True
    assert call["flags"] == [1, 1]
    terminal.run("echo on")
    terminal.child.send(way)
    terminal.child.expect_exact("stay or go?")
    terminal.child.sendline("0")
    assert terminal.ends() == 0
    assert somebody.tree.said() == ["leave exit", "leave exit"]


@pytest.mark.parametrize("way", ["exit\r", "\x04"])
def test_ctrl_c_at_the_question_cancels_the_exit(somebody: Person, way: str) -> None:
    quiet(somebody, ask=True)
    terminal = somebody.shell()
    terminal.child.send(way)
    terminal.child.expect_exact("stay or go?")
    terminal.child.sendintr()
    terminal.prompt()
    terminal.child.sendline("exit 3")
    assert terminal.ends() == 3, "the second attempt in a row leaves"
    assert somebody.tree.said() == ["leave exit"]


@pytest.mark.parametrize("mode", ["", "fish_vi_key_bindings", "fish_hybrid_key_bindings"])
def test_ctrl_d_on_an_empty_line_is_an_exit_typed(somebody: Person, mode: str) -> None:
    quiet(somebody, code=75)
    somebody.startup(before=f"function fish_mode_prompt; end\n{mode}")
    terminal = somebody.shell()
    terminal.run("false")
    terminal.child.sendeof()
    terminal.prompt()
    assert terminal.status == 1
    terminal.child.sendeof()
    assert terminal.ends() == 0, "as without the hook"
    assert somebody.tree.said() == ["leave exit", "leave exit --again"]
    without = plain(somebody)
    without.run("false")
    without.child.sendeof()
    assert without.ends() == 0


def test_ctrl_d_in_vi_command_mode(somebody: Person) -> None:
    quiet(somebody, code=75)
    somebody.startup(
        before="fish_vi_key_bindings\nfunction fish_mode_prompt; end\nset -g fish_escape_delay_ms 10\n"
        "function seen --on-variable fish_bind_mode; echo $fish_bind_mode >>~/modes; end\n"
    )
    terminal = somebody.shell()
    terminal.child.send("\x1b")
    until(lambda: "default" in (somebody.home / "modes").read_text(), "no command mode")
    terminal.child.sendeof()
    until(lambda: somebody.tree.said() == ["leave exit"], "not asked")


def test_ctrl_d_typed_is_not_remembered(somebody: Person) -> None:
    quiet(somebody, code=75)
    terminal = somebody.shell()
    terminal.run("echo before")
    terminal.child.sendeof()
    terminal.prompt()
    assert "exit" not in terminal.run("string match '*xit*' $history")


def test_two_ctrl_d_in_a_row_leave(somebody: Person) -> None:
    quiet(somebody, code=75)
    terminal = somebody.shell()
    terminal.child.sendeof()
    terminal.prompt()
    terminal.run("echo in between")
    terminal.child.sendeof()
    terminal.prompt()
    terminal.child.sendeof()
    assert terminal.ends() == 0
    assert somebody.tree.said() == ["leave exit", "leave exit", "leave exit --again"]


@pytest.mark.parametrize("mode", ["", "fish_vi_key_bindings"])
def test_ctrl_d_with_text_on_the_line_keeps_its_meaning(somebody: Person, mode: str) -> None:
    quiet(somebody, code=75)
    somebody.startup(before=f"function fish_mode_prompt; end\n{mode}")
    terminal = somebody.shell()
    terminal.child.send("echo xtext" + 4 * "\x1b[D" + "\x1b[D\x04\r")
    assert terminal.prompt().endswith("text\r\n")
    terminal.child.send("begin\r")
    terminal.child.send("\x04echo text; end\r")
    assert terminal.prompt().endswith("text\r\n")
    assert somebody.tree.said() == []


@pytest.mark.parametrize(
    "own",
    [
        "bind \\cd 'commandline -r \"echo mine\"; commandline -f execute'",
        "function fish_user_key_bindings; bind \\cd 'commandline -r \"echo mine\"; commandline -f execute'; end",
    ],
)
def test_a_persons_own_ctrl_d_stays_theirs(somebody: Person, own: str) -> None:
    quiet(somebody)
    somebody.startup(before=own)
    terminal = somebody.shell()
    terminal.child.sendeof()
    assert "mine" in terminal.prompt()
    assert somebody.tree.said() == []


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
    terminal.run("fish")
    terminal.run("exit 6")
    assert terminal.status == 6
    assert somebody.tree.said() == ["leave exit"], "leave itself knows that this is not the outermost shell"
    terminal.child.sendline("exit")
    assert terminal.ends() == 6


@pytest.mark.parametrize("line", ["fish -c 'exit 3'", "fish ./script", "source ./script", "fish -ic 'exit 3'"])
def test_scripts_and_sourced_files_are_not_gated(somebody: Person, line: str) -> None:
    """In a sourced file `exit` ends the file alone; fish has no subshells."""
    quiet(somebody, code=75)
    (somebody.home / "script").write_text("exit 3\necho went on\n")
    terminal = somebody.shell()
    assert "went on" not in terminal.run(line)
    assert terminal.status == 3
    assert somebody.tree.said() == []


@pytest.mark.parametrize("line", ["f; echo went on", "function g; f; end; g"])
def test_exit_in_a_function_is_not_held_back(somebody: Person, line: str) -> None:
    quiet(somebody, code=75)
    somebody.startup(after="function f; exit 3; echo went on; end\n")
    terminal = somebody.shell()
    terminal.child.sendline(line)
    assert terminal.ends() == 3
    assert terminal.rest.replace(line, "").count("went on") == 0
    assert somebody.tree.said() == ["leave eof"], "the check still runs, late"


@pytest.mark.parametrize("way", ["exit 8\r", "\x04"])
def test_stopped_jobs_fish_warns_and_the_second_attempt_leaves(somebody: Person, way: str) -> None:
    quiet(somebody)
    terminal = somebody.shell()
    with stopped_job(terminal):
        terminal.child.send(way)
        assert "There are still jobs active" in terminal.prompt()
        assert somebody.tree.said() == ["leave exit"]
        terminal.child.send(way)
        assert terminal.ends() == (8 if "8" in way else 0)
        assert somebody.tree.said() == ["leave exit", "leave exit --again"]


def test_a_hang_up_after_the_warning_about_jobs_is_still_told(somebody: Person) -> None:
    quiet(somebody)
    terminal = somebody.shell()
    terminal.run("sleep 100 &")
    assert "There are still jobs active" in terminal.run("exit")
    terminal.hang_up()
    until(lambda: len(somebody.tree.said()) == 2, "the hang-up was not told")
    assert somebody.tree.said() == ["leave exit", "leave hup"]


def test_off_means_no_gate_and_no_late_check(somebody: Person) -> None:
    quiet(somebody, code=75)
    for way in ("false; exit\r", "\x04"):
        terminal = somebody.shell(HANDWASH_ON_EXIT="off")
        terminal.child.send(way)
        assert terminal.ends() == int(way != "\x04")
    assert somebody.tree.said() == []


def test_disabled_later_in_the_same_shell(somebody: Person) -> None:
    quiet(somebody, code=75)
    for way in ("exit\r", "\x04"):
        terminal = somebody.shell()
        terminal.run("set -g HANDWASH_DISABLE 1")
        terminal.child.send(way)
        assert terminal.ends() == 0
    assert somebody.tree.said() == []


@pytest.mark.parametrize(
    "own", ["function exit; echo mine; builtin exit $argv; end", "alias exit 'echo mine; builtin exit'"]
)
def test_a_persons_own_exit_stays_theirs(somebody: Person, own: str) -> None:
    somebody.tree.behave(leave={"code": 75})
    for where in ("before", "after"):
        somebody.startup(**{where: own})
        for way in ("exit\r", "\x04"):
            terminal = somebody.shell(HANDWASH_BANNER="off")
            terminal.child.send(way)
            assert terminal.ends() == 0
            assert ("mine" in terminal.rest) == (way != "\x04")
    assert somebody.tree.said() == ["leave eof"] * 4


def test_an_abbreviation_for_exit_works_as_before(somebody: Person) -> None:
    quiet(somebody)
    somebody.startup(before="abbr -a -g q exit 4")
    terminal = somebody.shell()
    terminal.child.send("q\r")
    assert terminal.ends() == 4
    assert somebody.tree.said() == ["leave exit"]
