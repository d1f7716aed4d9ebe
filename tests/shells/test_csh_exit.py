"""Ways out of tcsh, and other people's set-ups, under a real pseudo-terminal."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from tests.shells.first_lines import FIRST_LINES, IN_PBS
from tests.shells.terminal import REPO, Person, Terminal, stopped_job, until

pytestmark = pytest.mark.parametrize("somebody", ["tcsh"], indirect=True)
HOOK = REPO / "shellhooks" / "handwash.csh"


def opened(somebody: Person, *, before: str = "", after: str = "", **leave: object) -> Terminal:
    somebody.env["HANDWASH_BANNER"] = "off"
    somebody.tree.behave(leave=leave)
    somebody.startup(before=before, after=after)
    return somebody.shell()


@pytest.mark.parametrize(
    "line", ["exit", "exit 7", "exit -1", "exit 256", "false; exit", "false; exit 3", "exit $status"]
)
def test_exit_asks_once_and_leaves_with_tcshs_own_status(somebody: Person, line: str) -> None:
    terminal = opened(somebody)
    terminal.child.sendline(line)
    status = terminal.ends()
    assert somebody.tree.said() == ["leave exit"]
    somebody.startup(hook="")
    plain = somebody.shell()
    plain.child.sendline(line)
    assert (plain.ends(), plain.rest) == (status, terminal.rest)


def test_stay_stays_and_the_second_exit_in_a_row_leaves(somebody: Person) -> None:
    terminal = opened(somebody, code=75)
    assert terminal.run("exit 3") == ""
    terminal.child.sendline("exit 3")
    assert terminal.ends() == 3
    assert somebody.tree.said() == ["leave exit", "leave exit --again"]


def test_the_second_attempt_expires(somebody: Person) -> None:
    terminal = opened(somebody, code=75)
    terminal.run("exit")
    terminal.run("@ __handwash_held = $__handwash_held - 80")
    terminal.run("exit")
    assert somebody.tree.said() == ["leave exit", "leave exit"]


def test_exit_behind_and_and_or(somebody: Person) -> None:
    """An alias with `;` in it would leave here."""
    terminal = opened(somebody)
    terminal.run("false && exit 3")
    terminal.run("true || exit 3")
    assert somebody.tree.said() == []
    terminal.child.sendline("false || exit 3")
    assert terminal.ends() == 3
    assert somebody.tree.said() == ["leave exit"]


def test_the_question_has_the_terminal_and_ctrl_c_stays(somebody: Person) -> None:
    terminal = opened(somebody, ask=True)
    terminal.child.sendline("exit")
    terminal.child.expect_exact("stay or go?")
    terminal.child.sendintr()
    terminal.prompt()
    call = somebody.tree.calls()[0]
    assert call["ttys"] == [True, True, True]
    assert call["foreground"] is True
    assert call["flags"] == [1, 1]
    somebody.tree.behave()
    terminal.child.sendline("exit 9")
    assert terminal.ends() == 9


def test_logout_in_a_login_shell(somebody: Person) -> None:
    opened(somebody, code=75)
    terminal = somebody.opens(somebody.kind.login)
    terminal.run("logout")
    terminal.child.sendline("logout")
    assert terminal.ends() == 0
    assert somebody.tree.said() == ["leave logout", "leave logout --again"]


@pytest.mark.parametrize("line", ["(exit 3)", "tcsh script", "tcsh -c 'exit 3'", "source script"])
def test_subshells_scripts_and_sourced_files_are_not_gated(somebody: Person, line: str) -> None:
    (somebody.home / "script").write_text("exit 3\necho went on\n")
    terminal = opened(somebody, code=75)
    assert "went on" not in terminal.run(line)
    assert terminal.status == 3
    assert somebody.tree.said() == []


def test_exit_in_a_start_up_file_ends_that_file_alone(somebody: Person) -> None:
    terminal = opened(somebody, after="if (1) then\n  exit 0\nendif\nset after = here", code=75)
    assert "here" not in terminal.run("set | grep after")
    assert somebody.tree.said() == []


def test_what_follows_the_hook_is_read(somebody: Person) -> None:
    opened(somebody, after="set after = here")
    for name, value in (("HANDWASH_BANNER", "off"), ("HANDWASH_DISABLE", "1"), ("TERM", "dumb")):
        somebody.env[name] = value
        terminal = somebody.shell()
        assert "here" in terminal.run("echo $after")
        terminal.run("source ~/.tcshrc")
        assert "here" in terminal.run("echo $after")


def test_ctrl_d_is_left_alone_without_a_logout_file(somebody: Person) -> None:
    terminal = opened(somebody)
    terminal.run("false")
    terminal.child.sendeof()
    assert terminal.ends() == 1
    assert somebody.tree.said() == []


def test_a_login_shell_asks_late_and_keeps_the_status(somebody: Person) -> None:
    opened(somebody, ask=True)
    terminal = somebody.opens(somebody.kind.login)
    terminal.run("sh -c 'exit 3'")
    terminal.child.sendeof()
    terminal.child.expect_exact("stay or go?")
    terminal.child.sendline("75")
    assert terminal.ends() == 3
    assert somebody.tree.said() == ["leave eof"]


def test_a_login_shell_asks_once_and_tells_a_closed_terminal(somebody: Person) -> None:
    opened(somebody)
    # As where the line for everybody has been read before.
    (somebody.home / ".logout").write_text((somebody.home / ".logout").read_text() * 2)
    terminal = somebody.opens(somebody.kind.login)
    terminal.child.sendline("exit 4")
    assert terminal.ends() == 4
    assert somebody.tree.said() == ["leave exit"]
    terminal = somebody.opens(somebody.kind.login)
    terminal.child.sendeof()
    assert terminal.ends() == 0
    assert somebody.tree.said() == ["leave exit", "leave eof"]
    somebody.opens(somebody.kind.login).hang_up()
    until(lambda: somebody.tree.said() == ["leave exit", "leave eof", "leave hup"], "the hang-up was not told")


@pytest.mark.parametrize("gone", ["the start-up line", "the hook", "switched off"])
def test_a_logout_file_is_silent_without_the_hook(somebody: Person, gone: str) -> None:
    opened(somebody)
    logout = somebody.home / ".logout"
    line = logout.read_text()
    if gone == "the start-up line":
        somebody.startup(hook="")
    elif gone == "switched off":
        somebody.env["HANDWASH_DISABLE"] = "1"
    shown = []
    for text in ("", line):
        logout.write_text(text)
        for way in ("exit 4\r", "\x04"):
            terminal = somebody.opens(somebody.kind.login)
            terminal.run("sh -c 'exit 3'")
            if gone == "the hook":
                somebody.tree.hook.with_suffix(".csh").rename(somebody.home / "away")
            terminal.child.send(way)
            shown.append((terminal.ends(), terminal.rest))
            if gone == "the hook":
                (somebody.home / "away").rename(somebody.tree.hook.with_suffix(".csh"))
    assert shown[:2] == shown[2:]
    assert [status for status, _rest in shown[:2]] == [4, 3]
    assert somebody.tree.said() == []


def test_suspended_jobs_tcsh_warns_and_the_second_attempt_leaves(somebody: Person) -> None:
    terminal = opened(somebody)
    with stopped_job(terminal, "/bin/sleep 100"):
        assert "There are suspended jobs." in terminal.run("exit")
        terminal.child.sendline("exit 8")
        assert terminal.ends() == 8
        assert somebody.tree.said() == ["leave exit"]


def test_the_gate_comes_back_after_suspended_jobs(somebody: Person) -> None:
    terminal = opened(somebody, code=75)
    terminal.run("unalias exit")
    terminal.run("source $__handwash_hook:q __handwash_arm")
    terminal.run("exit")
    assert somebody.tree.said() == ["leave exit"]


def test_uninstalled_under_an_open_shell(somebody: Person) -> None:
    for gone in (somebody.tree.package, somebody.tree.folder):
        terminal = opened(somebody)
        shutil.rmtree(gone)
        terminal.child.sendline("exit 4")
        assert terminal.ends() == 4
        assert terminal.rest == "exit 4\r\nexit\r\n"
        if gone == somebody.tree.package:
            assert somebody.tree.said() == []
            somebody.tree.package.mkdir()


def test_a_hook_cut_short_holds_nobody(somebody: Person) -> None:
    text = somebody.tree.hook.with_suffix(".csh").read_text()
    for part in (2, 4, 6):
        terminal = opened(somebody)
        somebody.tree.hook.with_suffix(".csh").write_text(text[: len(text) * part // 10])
        terminal.child.sendline("exit 4")
        if terminal.child.expect([terminal.PROMPT, "exit\r+\n$"]) == 0:
            terminal.child.sendline("exit 4")
        assert terminal.ends() == 4
        somebody.tree.hook.with_suffix(".csh").write_text(text)


@pytest.mark.parametrize("way", ["exit", "logout"])
def test_a_persons_own_alias_stays_theirs(somebody: Person, way: str) -> None:
    opened(somebody, before=f"alias {way} 'echo mine'", code=75)
    terminal = somebody.opens(somebody.kind.login)
    assert "mine" in terminal.run(way)
    assert somebody.tree.said() == []
    terminal.run("exit" if way == "logout" else "logout")
    assert len(somebody.tree.said()) == 1


@pytest.mark.parametrize(
    "option",
    [
        "set noglob",
        "set noclobber",
        "set backslash_quote",
        "set nonomatch",
        "set ignoreeof",
        "set correct=all autologout=100",
        "alias echo 'echo mine'; alias rm 'rm -i'; alias ls 'ls -l'",
        "set path = ()",
        "setenv LD_LIBRARY_PATH /nowhere",
        "setenv LD_PRELOAD ''",
        "unset tty prompt2",
        "set histchars=''",
        "bindkey -v",
        "set echo_style=none",
        "alias precmd 'set prompted'",
    ],
)
def test_the_whole_hook_works_under_every_option(somebody: Person, option: str) -> None:
    somebody.tree.behave(banner={"say": "the rest"}, leave={"code": 75})
    somebody.startup(before=option)
    terminal = somebody.shell()
    if "unset tty" in option:
        return
    assert terminal.greeting.startswith("handwash: ")
    assert terminal.greeting.endswith("the rest\r\n")
    assert terminal.greeting.count("\r\n") == 2
    assert terminal.run("exit 4") == ""
    terminal.child.sendline("exit 4")
    assert terminal.ends() == 4
    assert somebody.tree.said() == ["leave exit", "leave exit --again"]


@pytest.mark.parametrize(
    ("env", "line"),
    [
        *FIRST_LINES,
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, "handwash: HOST: no job in this shell; CUDA_VISIBLE_DEVICES=0,1"),
        ({"HANDWASH_LANG": "zh", "SLURM_JOB_ID": "7"}, "handwash：HOST：作业 7 的分配 shell，仍在这台机器上"),
        ({"LC_ALL": "C", "HANDWASH_LANG": "zh"}, "handwash：HOST：此 shell 不在任何作业里"),
        (
            {"SLURM_JOB_ID": "4\x1b[31m2", "SLURMD_NODENAME": "%s%n\x07!`$x*"},
            "handwash: HOST: in job ?, on its compute node ?",
        ),
        ({**IN_PBS, "PBS_JOBID": "12[!`$x*"}, "handwash: HOST: in job ?, on its compute node HOST"),
        ({**IN_PBS, "PBS_JOBID": "9" * 201}, "handwash: HOST: in job ?, on its compute node HOST"),
    ],
)
def test_the_first_line_says_what_the_shell_knows(somebody: Person, env: dict[str, str], line: str) -> None:
    somebody.env.update(env, HANDWASH_BANNER="line")
    terminal = somebody.shell()
    assert terminal.greeting == line.replace("HOST", os.uname().nodename.split(".")[0]) + "\r\n"
    assert somebody.tree.calls() == []


def test_sourcing_forks_once(somebody: Person) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    counts: list[int] = []
    for hook in ("", None):
        somebody.startup(hook=hook)
        trace = somebody.home / f"trace{len(counts)}"
        argv = [strace, "-f", "-qq", "-e", "trace=fork,vfork,clone,clone3", "-o", str(trace), *somebody.kind.argv()]
        somebody.opens(argv, HANDWASH_BANNER="line")
        counts.append(sum("(" in line and "resumed" not in line for line in trace.read_text().splitlines()))
    assert counts[1] - counts[0] == 1, "the aliases of the person are looked at"


@pytest.mark.parametrize("shell", [["bsd-csh", "-c"], ["tcsh", "-c"], ["tcsh", "-ec"], ["csh", "-fc"]])
def test_silent_where_no_person_sits(somebody: Person, shell: list[str]) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    done = subprocess.run(
        [*shell, f"source {HOOK}; echo on"],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": "/"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n", "")


def test_the_file_ends_in_a_newline_and_has_no_carriage_return(somebody: Person) -> None:
    text = HOOK.read_bytes()
    assert text.endswith(b"\n")
    assert b"\r" not in text
