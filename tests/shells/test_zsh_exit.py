"""Ways out of zsh, each under a real pseudo-terminal."""

from __future__ import annotations

from pathlib import Path

import pexpect
import pytest
from tests.shells.terminal import Person, Terminal, foreground, stopped_job, until

pytestmark = pytest.mark.parametrize("somebody", ["zsh"], indirect=True)


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
        ("exit 256", 0),
        ("exit -1", 255),
        ("exit ''", 0),
        ("exit 3+4", 7),
        ("false; exit 0", 0),
        ("false || exit", 1),
        ("true && exit 4", 4),
        ("true || exit 4; exit 5", 5),
        ("if (exit 6) { : } else { exit }", 6),
        ("x='$(touch evil)5'; exit ${x[-1]}", 5),
        ("(builtin exit 9); exit", 9),
        ("eval exit 4", 4),
        ("true | exit 4", 4),
        ("bye 3", 3),
    ],
)
def test_exit_asks_once_and_leaves_with_zshs_own_status(somebody: Person, line: str, status: int) -> None:
    quiet(somebody)
    terminal = somebody.shell()
    terminal.child.sendline(line)
    assert terminal.ends() == status
    assert somebody.tree.said() == ["leave exit"]
    without = plain(somebody)
    without.child.sendline(line)
    assert without.ends() == status
    assert without.rest == terminal.rest


@pytest.mark.parametrize("line", ["exit 1 2", "exit --help", "exit abc", "exit -- 3", "exit 99999999999999999999"])
def test_exit_with_odd_words_does_what_zsh_does(somebody: Person, line: str) -> None:
    """Leaves or refuses, with the same words and status."""
    quiet(somebody)
    outcomes = []
    for terminal in (plain(somebody), somebody.shell()):
        terminal.child.sendline(line)
        left = terminal.child.expect([terminal.PROMPT, pexpect.EOF])
        said = terminal.plain(terminal.child.before)
        outcomes.append((left, said, terminal.ends() if left else terminal.child.match.group(1)))
    assert outcomes[0] == outcomes[1]


def test_a_refused_exit_is_followed_by_another_check(somebody: Person) -> None:
    quiet(somebody)
    terminal = somebody.shell()
    assert "too many arguments" in terminal.run("exit 1 2")
    terminal.run("functions=; print ${(k)precmd_functions}")
    assert terminal.run("print -r -- ${precmd_functions-}") == "\r\n", "nothing is left to run at a prompt"
    terminal.child.sendline("builtin exit")
    terminal.ends()
    assert somebody.tree.said() == ["leave exit", "leave eof"]


def test_stay_stays_and_the_second_exit_in_a_row_leaves(somebody: Person) -> None:
    quiet(somebody, code=75)
    terminal = somebody.shell()
    assert terminal.run("false; exit 5") == ""
    assert terminal.status == 1
    terminal.child.sendline("exit")
    assert terminal.ends() == 1
    assert somebody.tree.said() == ["leave exit", "leave exit --again"]


@pytest.mark.parametrize("options", ["", "hist_ignore_dups hist_ignore_space hist_ignore_all_dups"])
def test_exit_after_something_else_is_a_first_attempt_again(somebody: Person, options: str) -> None:
    quiet(somebody, code=75)
    somebody.startup(after=f"setopt extended_glob {options}\n")
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


@pytest.mark.parametrize("way", ["exit; echo went on\r", "\x04"])
def test_ctrl_c_at_the_question_cancels_the_exit(somebody: Person, way: str) -> None:
    quiet(somebody, ask=True)
    terminal = somebody.shell()
    terminal.child.send(way)
    terminal.child.expect_exact("stay or go?")
    terminal.child.sendintr()
    assert "went on" not in terminal.prompt()
    assert terminal.status == 1, "zsh gave up the expansion of that line"
    terminal.child.sendline("exit")
    assert terminal.ends() == 1, "the second attempt in a row leaves"
    assert somebody.tree.said() == ["leave exit"]


@pytest.mark.parametrize("trap", ["trap 'echo mine' INT", "trap '' INT", "TRAPINT() { echo mine; return 0 }"])
def test_ctrl_c_cancels_under_a_persons_own_int_trap(somebody: Person, trap: str) -> None:
    quiet(somebody, code=130)
    somebody.startup(before=trap)
    terminal = somebody.shell()
    before = terminal.run("trap")
    terminal.run("exit")
    assert terminal.run("trap") == before
    assert somebody.tree.said() == ["leave exit"]


def test_logout_in_a_login_shell(somebody: Person) -> None:
    quiet(somebody, code=75)
    terminal = somebody.shell("-l")
    terminal.run("logout")
    terminal.child.sendline("logout")
    assert terminal.ends() == 0
    assert somebody.tree.said() == ["leave logout", "leave logout --again"]


def test_logout_elsewhere_is_zshs_own(somebody: Person) -> None:
    quiet(somebody)
    terminal = somebody.shell()
    assert "not login shell" in terminal.run("logout")
    assert somebody.tree.said() == []


@pytest.mark.parametrize("mode", ["bindkey -e", "bindkey -v", "bindkey -v; KEYTIMEOUT=1"])
def test_ctrl_d_on_an_empty_line_is_an_exit_typed(somebody: Person, mode: str) -> None:
    quiet(somebody, code=75)
    somebody.startup(before=mode)
    terminal = somebody.shell()
    terminal.run("false")
    terminal.child.sendeof()
    assert terminal.prompt() == "exit\r\n"
    assert terminal.status == 1
    # Command mode; in emacs mode a prefix key, so that what follows is ESC-^D: completions of nothing.
    if "KEYTIMEOUT" in mode:
        terminal.child.send("\x1b")
        until(lambda: terminal.child.expect(["\x08|\x1b", pexpect.TIMEOUT], timeout=0.1) == 1, "command mode")
    terminal.child.sendeof()
    assert terminal.ends() == 1
    assert somebody.tree.said() == ["leave exit", "leave exit --again"]


def test_ctrl_d_typed_is_not_remembered(somebody: Person) -> None:
    quiet(somebody, code=75)
    terminal = somebody.shell()
    terminal.run("echo before")
    terminal.child.sendeof()
    terminal.prompt()
    assert "exit" not in terminal.run("fc -l -10")
    assert "exit" not in terminal.run("fc -l -10"), "and the next line is"
    assert terminal.run("fc -ln -1") == "fc -l -10\r\n"


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


@pytest.mark.parametrize(
    ("setup", "keys", "shown"),
    [
        ("", "echo xtext\x01\x06\x06\x06\x06\x06\x04\r", "text\r\n"),
        ("bindkey -v", "echo text\x04\r", "text\r\n"),
        ("bindkey '^D' delete-char", "echo xtext\x01\x06\x06\x06\x06\x06\x04\r", "text\r\n"),
        ("bindkey '^D' beginning-of-line", "text\x04echo \r", "text\r\n"),
        ("bindkey -s '^D' 'ho text^M'", "ec\x04", "text\r\n"),
        ("mine() { BUFFER+=xt }; zle -N mine; bindkey '^D' mine", "echo te\x04\r", "text\r\n"),
        ("bindkey -r '^D'", "echo text\x04\r", "text\r\n"),
        ("bindkey '^Dx' beginning-of-line", "text\x04xecho \r", "text\r\n"),
        ("bindkey '^D' kill-whole-line", "rubbish\x04echo text\r", "text\r\n"),
    ],
)
def test_ctrl_d_with_text_on_the_line_keeps_its_meaning(somebody: Person, setup: str, keys: str, shown: str) -> None:
    quiet(somebody, code=75)
    somebody.startup(before=setup)
    terminal = somebody.shell()
    terminal.child.send(keys)
    assert terminal.prompt().endswith(shown)
    assert somebody.tree.said() == []
    # And on an empty line it is still a way out.
    terminal.child.sendeof()
    terminal.prompt()
    assert somebody.tree.said() == ["leave exit"]


def test_ctrl_d_at_the_end_of_a_word_lists_completions(somebody: Person) -> None:
    quiet(somebody)
    (somebody.home / "text-one").touch()
    (somebody.home / "text-two").touch()
    terminal = somebody.shell()
    terminal.child.send("echo text-\x04")
    terminal.child.expect("text-one +text-two")
    terminal.child.send("one\r")
    assert terminal.prompt().endswith("text-one\r\n")
    assert somebody.tree.said() == []


def test_ctrl_d_elsewhere_keeps_its_meaning(somebody: Person) -> None:
    """In select and read, and given to a program."""
    quiet(somebody)
    terminal = somebody.shell()
    terminal.child.sendline("cat")
    until(lambda: Path(f"/proc/{foreground(terminal.pid)}/comm").read_text() == "cat\n", "cat did not start")
    terminal.child.sendline("given")
    terminal.child.expect_exact("given\r\ngiven\r\n")
    terminal.child.sendeof()
    terminal.prompt()
    terminal.child.sendline("select x in one two; do echo $x; done; echo selected")
    terminal.child.expect_exact("?# ")
    terminal.child.sendeof()
    assert terminal.prompt().endswith("selected\r\n")
    terminal.child.sendline("print 're''ady'; read x; echo read $?")
    terminal.child.expect_exact("ready\r\n")
    terminal.child.sendeof()
    assert terminal.prompt().endswith("read 1\r\n")
    assert somebody.tree.said() == []


def test_a_persons_own_ignore_eof_stays_theirs(somebody: Person) -> None:
    quiet(somebody)
    somebody.startup(before="setopt ignore_eof")
    terminal = somebody.shell()
    terminal.child.sendeof()
    terminal.child.sendline("echo on")
    assert "on" in terminal.prompt()
    assert somebody.tree.said() == []
    terminal.child.sendline("exit")
    terminal.ends()
    assert somebody.tree.said() == ["leave exit"]


def test_ctrl_d_asks_late_without_ignore_eof(somebody: Person) -> None:
    quiet(somebody, ask=True)
    terminal = somebody.shell()
    terminal.run("unsetopt ignore_eof")
    terminal.run("false")
    terminal.child.sendeof()
    terminal.child.expect_exact("stay or go?")
    terminal.child.sendline("75")
    assert terminal.ends() == 1, "not held back, and with its own status"
    assert somebody.tree.said() == ["leave eof"]


def test_a_terminal_closed_during_the_question(somebody: Person) -> None:
    quiet(somebody, ask=True)
    terminal = somebody.shell()
    terminal.child.sendline("exit")
    terminal.child.expect_exact("stay or go?")
    terminal.hang_up()
    until(lambda: len(somebody.tree.said()) == 2, "the hang-up was not told")
    assert somebody.tree.said() == ["leave exit", "leave hup"]


def test_kill_hup_while_a_widget_runs_still_has_a_person(somebody: Person) -> None:
    """Its standard input is /dev/null."""
    quiet(somebody)
    somebody.startup(after="init() { print -n 'in a widget'; kill -HUP $$; }; zle -N zle-line-init init\n")
    terminal = somebody.shell(expect_prompt=False)
    terminal.ends()
    assert "in a widget" in terminal.rest
    assert somebody.tree.said() == ["leave eof"]
    assert somebody.tree.calls()[0]["ttys"] == [True, True, True]


def test_a_nested_shell_has_its_own_gate(somebody: Person) -> None:
    quiet(somebody)
    terminal = somebody.shell()
    terminal.run("zsh")
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
        "x=`exit 3`",
        "exit 3 | cat; (exit 3)",
        "cat <(exit 3); (exit 3)",
        "exit 3 & wait $!",
        "{ exit 3 } & wait $!",
        "zsh -c 'exit 3'",
        "zsh ./script",
        ". ./script | cat; (exit 3)",
        "(f)",
    ],
)
def test_subshells_and_scripts_are_not_gated(somebody: Person, line: str) -> None:
    quiet(somebody, code=75)
    (somebody.home / "script").write_text("exit 3\n")
    somebody.startup(after="f() { exit 3 }\n")
    terminal = somebody.shell()
    terminal.run("unsetopt monitor notify")
    terminal.run(line)
    assert terminal.status == 3
    assert somebody.tree.said() == []


@pytest.mark.parametrize(
    "line", [". ./script; echo went on", "f; echo went on", "source ./nested", "eval '. ./script'"]
)
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


@pytest.mark.parametrize("way", ["exit 8\r", "\x04"])
def test_stopped_jobs_zsh_warns_and_the_second_attempt_leaves(somebody: Person, way: str) -> None:
    quiet(somebody)
    terminal = somebody.shell()
    with stopped_job(terminal):
        terminal.child.send(way)
        assert "you have suspended jobs" in terminal.prompt()
        assert somebody.tree.said() == ["leave exit"]
        terminal.child.send(way)
        assert terminal.ends() == (8 if "8" in way else terminal.status)
        assert somebody.tree.said() == ["leave exit", "leave exit --again"]


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
        terminal.run("HANDWASH_DISABLE=1")
        terminal.child.send(way)
        assert terminal.ends() == 0
    assert somebody.tree.said() == []
