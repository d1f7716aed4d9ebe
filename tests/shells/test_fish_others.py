"""Other people's fish: functions of their own, odd variables, the banner, and where no person sits."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.shells.first_lines import FIRST_LINES
from tests.shells.terminal import HOOKS, Person

pytestmark = pytest.mark.parametrize("somebody", ["fish"], indirect=True)

HOST = platform.node().split(".")[0]
SETUPS = [
    "alias rm 'rm -i'; alias cat 'cat -n'; alias grep 'grep --color'; alias jobs 'jobs -l'",
    "function realpath; echo R; end; function math; echo M; end",
    "function cd; builtin cd $argv; end; function ls; command ls $argv; end; function timeout; echo T; end",
    "function python3; echo P; end; function handwash; echo H; end",
    "set -g IFS handwsx0123456789:/",
    "set -g IFS ''",
    "set -e IFS",
    "set -gx LD_LIBRARY_PATH /nowhere /else",
    "set -gx LD_PRELOAD ''",
    "set -g host mine; set -g code mine; set -g now mine; set -g run mine; set -g limit mine; set -g value mine",
    "set -g argv a b c",
    "set -g status_ 1; false",
    "fish_vi_key_bindings; function fish_mode_prompt; end",
    "function fish_user_key_bindings; bind \\cg 'commandline -f repaint'; end",
    "function p --on-event fish_prompt; end; function q --on-event fish_preexec; end; function r --on-event fish_exit; end",
    "abbr -a -g e exit",
    "umask 777; builtin cd /",
    "ulimit -n 256",
    "set -gx HANDWASH_DEADLINE 08",
    "set -gx HANDWASH_DEADLINE '$(touch evil)'",
    "set -g fish_features no-stderr-nocaret",
    "set -g fish_trace ''",
]


def shown(text: str) -> list[str]:
    """The lines of an output that are not empty."""
    return [line for line in text.split("\r\n") if line.strip()]


@pytest.mark.parametrize("setup", SETUPS)
def test_the_whole_hook_works_in_every_set_up(somebody: Person, setup: str) -> None:
    somebody.tree.behave(banner={"say": "the rest"}, leave={"code": 75})
    (somebody.home / "hooks").write_text("")
    somebody.startup(
        before=f"function mine --on-event fish_exit; builtin echo mine $status >>{somebody.home}/hooks; end\n{setup}"
    )
    terminal = somebody.shell()
    assert shown(terminal.greeting) == [f"handwash: {HOST}: no job in this shell", "the rest"]
    terminal.run("exit 4")
    terminal.child.sendline("exit 4")
    assert terminal.ends() == 4
    assert somebody.tree.said() == ["leave exit", "leave exit --again"]
    assert (somebody.home / "hooks").read_text() == "mine 4\n"
    assert not (somebody.home / "evil").exists()


def test_silent_with_the_banner_off(somebody: Person) -> None:
    somebody.startup(after="echo $status $__handwash_loaded >~/seen\n")
    terminal = somebody.shell(HANDWASH_BANNER="off")
    assert terminal.greeting == ""
    assert (somebody.home / "seen").read_text() == f"0 {terminal.pid}\n"


@pytest.mark.parametrize("options", [["-l"], ["-P"], ["-i", "-l"], ["-C", "set -g x 1"], ["--init-command=set -g x 1"]])
def test_a_person_by_any_option(somebody: Person, options: list[str]) -> None:
    terminal = somebody.shell(*options)
    assert f"handwash: {HOST}: no job in this shell" in shown(terminal.greeting)
    terminal.child.sendline("exit")
    terminal.ends()
    assert somebody.tree.said() == ["leave exit"]


def test_no_config_means_no_hook(somebody: Person) -> None:
    terminal = somebody.shell("-N", expect_prompt=False)
    terminal.child.expect("[>#] ")
    terminal.child.sendline("exit 3")
    assert terminal.ends() == 3
    assert somebody.tree.calls() == []


def test_read_from_conf_d_before_everything_else(somebody: Person) -> None:
    """Where `handwash install` puts it: before the person's own file, and before the key bindings."""
    folder = somebody.home / ".config" / "fish" / "conf.d"
    folder.mkdir()
    somebody.tree.behave(leave={"code": 75})
    (folder / "handwash.fish").write_text(somebody.tree.line(kind=somebody.kind))
    for own in ("", "fish_vi_key_bindings; function fish_mode_prompt; end"):
        somebody.startup(before=own, hook="")
        terminal = somebody.shell(HANDWASH_BANNER="off")
        terminal.child.sendeof()
        terminal.prompt()
        terminal.child.sendline("exit 3")
        assert terminal.ends() == 3
    assert somebody.tree.said() == ["leave exit", "leave exit --again"] * 2


def test_a_persons_own_exit_in_a_function_file(somebody: Person) -> None:
    folder = somebody.home / ".config" / "fish" / "functions"
    folder.mkdir()
    (folder / "exit.fish").write_text("function exit; echo mine; builtin exit $argv; end\n")
    terminal = somebody.shell(HANDWASH_BANNER="off")
    terminal.child.sendline("exit 3")
    assert terminal.ends() == 3
    assert "mine" in terminal.rest
    assert somebody.tree.said() == ["leave eof"]


def test_functions_that_wrap_exit(somebody: Person) -> None:
    """Late: held back, what called it would run on."""
    somebody.tree.behave(leave={"code": 75})
    somebody.startup(after="function q; exit $argv; end\nfunction logout; exit; end\n")
    for line, status in (("q 4", 4), ("false; logout", 1)):
        terminal = somebody.shell(HANDWASH_BANNER="off")
        terminal.child.sendline(line)
        assert terminal.ends() == status
    assert somebody.tree.said() == ["leave eof"] * 2


def test_nothing_runs_at_a_prompt_and_nothing_is_started(somebody: Person) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    trace = somebody.home / "trace"
    fish = somebody.kind.program[0]
    words = [strace, "-f", "-qq", "-e", "trace=execve,fork,vfork,clone,clone3", "-o", str(trace), fish]

    def started() -> int:
        # fish has threads; a process is none of them.
        lines = trace.read_text().splitlines()
        return sum(" = " in line and "CLONE_THREAD" not in line and "resumed" not in line for line in lines)

    counts = []
    for disable in ("1", ""):
        trace.unlink(missing_ok=True)
        terminal = somebody.opens(words, HANDWASH_BANNER="line", HANDWASH_DISABLE=disable)
        counts.append(started())
    assert shown(terminal.greeting) == [f"handwash: {HOST}: no job in this shell"]
    assert counts[0] == counts[1]
    for _ in range(3):
        terminal.run("true")
    assert started() == counts[1]
    handlers = terminal.run("functions --handlers-type generic")
    assert re.findall(r"\S+ __handwash\S*", handlers) == ["fish_exit __handwash_late"]


# --- the banner -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "line"),
    [
        *FIRST_LINES,
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, "handwash: HOST: no job in this shell; CUDA_VISIBLE_DEVICES=0,1"),
        (
            {"CUDA_VISIBLE_DEVICES": ""},
            "handwash: HOST: no job in this shell; CUDA_VISIBLE_DEVICES is set but empty: programs see no GPU",
        ),
        ({"HANDWASH_LANG": "zh"}, "handwash：HOST：此 shell 不在任何作业里"),
        (
            {"HANDWASH_LANG": "zh_CN", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n2", "CUDA_VISIBLE_DEVICES": "3"},
            "handwash：HOST：作业 7，在它的计算节点 n2 上；CUDA_VISIBLE_DEVICES=3",
        ),
        (
            {"HANDWASH_LANG": "zh", "SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": ""},
            "handwash：HOST：作业 7 的分配 shell，仍在这台机器上；CUDA_VISIBLE_DEVICES 已设置但为空：程序看不到任何算力卡",
        ),
        (
            {"SLURM_JOB_ID": "4\x1b[31m2", "SLURMD_NODENAME": "%s%n\x07", "CUDA_VISIBLE_DEVICES": "\x9b1m"},
            "handwash: HOST: in job 4?[31m2, on its compute node ?s?n?; CUDA_VISIBLE_DEVICES=?1m",
        ),
        ({"SLURM_JOB_ID": "-e"}, "handwash: HOST: allocation shell of job -e, still on this machine"),
    ],
)
def test_the_first_line_says_what_the_shell_knows(somebody: Person, env: dict[str, str], line: str) -> None:
    terminal = somebody.shell(HANDWASH_BANNER="line", **env)
    assert shown(terminal.greeting) == [line.replace("HOST", HOST)]
    assert somebody.tree.calls() == []


def test_chinese_by_the_locale(somebody: Person) -> None:
    """Where this machine has no such locale, fish takes the text for bytes, and writes them as they are."""
    terminal = somebody.shell(HANDWASH_BANNER="line", LC_ALL="", LANG="zh_CN.UTF-8")
    assert "不在任何作业里" in terminal.greeting


def banners(somebody: Person) -> int:
    return [call["argv"] for call in somebody.tree.calls()].count(["banner"])


def test_once_per_login_and_once_per_job(somebody: Person) -> None:
    terminal = somebody.shell()
    assert banners(somebody) == 1
    assert somebody.tree.calls()[0]["ttys"] == [False, True, True], "what a person has typed ahead is not the banner's"
    assert terminal.run("fish") == "", "a nested shell is quiet"
    terminal.run("builtin exit")
    assert "job 42" in terminal.run("SLURM_JOB_ID=42 fish"), "a new job's shell is not"
    assert banners(somebody) == 2
    seen = terminal.run("echo $HANDWASH_SHOWN").strip()
    assert re.fullmatch(rf"{re.escape(platform.node())}:42:\d+", seen)
    assert "handwash" in somebody.shell(HANDWASH_SHOWN=seen).greeting, "another login"
    assert somebody.shell(HANDWASH_SHOWN=seen, SLURM_JOB_ID="42").greeting == "", "a terminal of the same job"


def test_a_pane_and_odd_marks(somebody: Person) -> None:
    terminal = somebody.shell(HANDWASH_BANNER="line")
    seen = terminal.run("echo $HANDWASH_SHOWN").strip()
    assert somebody.shell(HANDWASH_SHOWN=seen, TMUX="/tmp/tmux-0/default,1,0").greeting == ""
    for odd in ("", "::", "x", f"{platform.node()}::", f"{platform.node()}::../1", "(x)", "*:*:*", "-q"):
        assert len(shown(somebody.shell(HANDWASH_SHOWN=odd, HANDWASH_BANNER="line").greeting)) == 1


def test_ctrl_c_during_the_banner_leaves_everything_in_place(somebody: Person) -> None:
    somebody.tree.behave(banner={"hang": True}, leave={"code": 75})
    somebody.startup(after="set -g after here\n")
    terminal = somebody.shell(expect_prompt=False)
    terminal.child.expect_exact("hanging")
    terminal.child.sendintr()
    terminal.prompt()
    assert terminal.run("echo $after") == "here\r\n", "the rest of the start-up file was read"
    terminal.run("exit")
    terminal.child.sendline("exit")
    terminal.ends()
    assert somebody.tree.said() == ["leave exit", "leave exit --again"]


def test_ctrl_c_at_the_late_question_leaves(somebody: Person) -> None:
    """And fish 3.6 gives up the handlers of fish_exit that come after."""
    somebody.tree.behave(leave={"ask": True})
    somebody.startup(after="function q; exit 5; end\n")
    terminal = somebody.shell(HANDWASH_BANNER="off")
    terminal.child.sendline("q")
    terminal.child.expect_exact("stay or go?")
    terminal.child.sendintr()
    assert terminal.ends() == 5
    assert somebody.tree.said() == ["leave eof"]


# --- where no person sits ---------------------------------------------------------------------------------------------


def piped(somebody: Person, argv: list[str], given: bytes = b"", **env: str) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        argv, input=given, capture_output=True, env={**somebody.env, **env}, cwd=somebody.home, start_new_session=True
    )
    return done.returncode, done.stdout, done.stderr


def on_terminal(somebody: Person, argv: list[str], **env: str) -> tuple[int, str]:
    terminal = somebody.opens(argv, expect_prompt=False, **env)
    return terminal.ends(), terminal.rest


@pytest.mark.parametrize(
    "options",
    [
        *(["-c"], ["-lc"], ["-ic"], ["-lic"], ["-ilc"], ["-i", "-c"], ["--interactive", "--command"]),
        *(["-C", "true", "-ic"], ["-i", "--init-command", "true", "-c"], ["-iCtrue", "-c"], ["-Pic"]),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        "exit 7",
        "set -q HANDWASH_SHOWN; echo $status; false; exit",
        "env | sort | grep -v ^_=",
        "function f; exit 3; end; f",
    ],
)
def test_fish_c_on_a_terminal_and_without(somebody: Person, options: list[str], command: str) -> None:
    argv = [*somebody.kind.program, *options, command]
    outcomes = []
    for hook in ("", None):
        somebody.startup(hook=hook)
        outcomes.append((on_terminal(somebody, argv), piped(somebody, argv)))
    assert outcomes[0] == outcomes[1]
    assert somebody.tree.calls() == []


def test_scripts_and_shells_fed_through_a_pipe(somebody: Person) -> None:
    fish = somebody.kind.program[0]
    script = somebody.home / "script"
    script.write_text(f"#!{fish} -i\necho on; set -q HANDWASH_SHOWN; echo $status; false\nexit\n")
    script.chmod(0o755)
    words = b"echo on; set -q HANDWASH_SHOWN; echo $status; false; exit\n"
    outcomes = []
    for hook in ("", None):
        somebody.startup(hook=hook)
        outcomes.append(
            [
                *(piped(somebody, [fish, *options], words) for options in ([], ["-l"], ["-i"])),
                *(
                    on_terminal(somebody, argv)
                    for argv in ([str(script), "a"], [fish, "-i", str(script)], [fish, "script"])
                ),
                *(on_terminal(somebody, [fish, "-i", "--", "script"]), piped(somebody, [fish, "script"])),
            ]
        )
    assert outcomes[0] == outcomes[1]
    assert somebody.tree.calls() == []


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"VSCODE_RESOLVING_ENVIRONMENT": "1"}, {"HANDWASH_DISABLE": "1"}])
def test_not_now(somebody: Person, env: dict[str, str]) -> None:
    terminal = somebody.shell(**env)
    assert terminal.greeting == ""
    terminal.child.sendline("exit")
    terminal.ends()
    assert somebody.tree.calls() == []


@pytest.mark.parametrize("shell", ["bash", "dash", "zsh", "mksh"])
def test_another_shell_that_meets_the_file_is_not_disturbed(somebody: Person, shell: str) -> None:
    """Those that read a file line by line."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    done = piped(somebody, [program, "-c", f". {HOOKS / 'handwash.fish'}; echo on"])
    assert done == (0, b"on\n", b"")


@pytest.mark.parametrize("version", ["2.7.1", "3.0.2", "1.23.1"])
def test_an_old_fish_is_left_alone(somebody: Person, version: str) -> None:
    """fish does not let its version be set; the guard is read with another variable."""
    text = (HOOKS / "handwash.fish").read_text().replace("$FISH_VERSION", f"'{version}'")
    hook = text.partition("status is-interactive")[0] + "\necho on" + text[text.index("\nend\n") :]
    assert piped(somebody, [*somebody.kind.program, "-c", hook]) == (0, b"", b"")
    hook = hook.replace(f"'{version}'", "'3.1.0'")
    assert piped(somebody, [*somebody.kind.program, "-c", hook])[1] == b"on\n"


def test_uninstalled_under_an_open_shell(somebody: Person) -> None:
    for way in ("exit 4\r", "\x04"):
        shutil.rmtree(somebody.tree.folder, ignore_errors=True)
        somebody.tree.hook.parent.mkdir(parents=True)
        shutil.copy(HOOKS / "handwash.fish", somebody.tree.hook.parent)
        terminal = somebody.shell(HANDWASH_BANNER="off")
        shutil.rmtree(somebody.tree.folder)
        terminal.child.send(way)
        assert terminal.ends() == (4 if "4" in way else 0)
        assert "handwash" not in terminal.rest


def test_without_a_known_interpreter_the_command_is_looked_up(somebody: Person) -> None:
    bin = somebody.home / "bin"
    bin.mkdir()
    command = bin / "handwash"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {somebody.tree.package}/__main__.py "$@"\n')
    command.chmod(0o755)
    somebody.startup(hook=f"source '{somebody.tree.hook.parent / 'handwash.fish'}'\n")
    somebody.shell(PATH=f"{bin}:{os.environ['PATH']}")
    assert [call["argv"] for call in somebody.tree.calls()] == [["banner"]]
    # A relative PATH finds a program of the working directory: that is never run.
    somebody.shell(PATH="bin:/usr/bin:/bin")
    assert len(somebody.tree.calls()) == 1


def test_libraries_of_modules_and_conda_are_kept_away(somebody: Person) -> None:
    terminal = somebody.shell(HANDWASH_BANNER="off", LD_LIBRARY_PATH="/nowhere:/else")
    terminal.run("exit 1 2; exit abc")
    env = somebody.tree.calls()[-1]["env"]
    assert isinstance(env, dict)
    assert env["LD_LIBRARY_PATH"] == ""
    assert env["HANDWASH_LD_LIBRARY_PATH"] == "/nowhere:/else", "doctor still needs it"
    assert (
        terminal.run('echo "$LD_LIBRARY_PATH" (set -q HANDWASH_LD_LIBRARY_PATH; echo $status)')
        == "/nowhere:/else 1\r\n"
    )


def test_the_file_ends_in_a_newline_and_has_no_carriage_return(somebody: Person) -> None:
    text = Path(HOOKS / "handwash.fish").read_bytes()
    assert text.endswith(b"\n")
    assert b"\r" not in text
