"""The banner: its first line, when it is due, and what it may not break."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.shells.first_lines import FIRST_LINES
from tests.shells.terminal import BASH, Person, Tree, until

HOST = platform.node().split(".")[0]


def banners(somebody: Person) -> int:
    return [call["argv"] for call in somebody.tree.calls()].count(["banner"])


def test_first_line_then_the_program_with_its_output_on_stderr(somebody: Person) -> None:
    somebody.tree.behave(banner={"say": "the rest"})
    terminal = somebody.shell()
    assert terminal.greeting == f"handwash: {HOST}: no job in this shell\r\nthe rest\r\n"
    [call] = somebody.tree.calls()
    assert call["argv"] == ["banner"]
    assert call["flags"] == [1, 1]
    assert call["ttys"] == [False, True, True], "what a person has typed ahead is not the banner's"


@pytest.mark.parametrize(
    ("env", "line"),
    [
        *FIRST_LINES,
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, "handwash: HOST: no job in this shell; CUDA_VISIBLE_DEVICES=0,1"),
        (
            {"CUDA_VISIBLE_DEVICES": ""},
            "handwash: HOST: no job in this shell; CUDA_VISIBLE_DEVICES is set but empty: programs see no GPU",
        ),
        ({"LC_ALL": "zh_CN.UTF-8"}, "handwash：HOST：此 shell 不在任何作业里"),
        ({"LC_ALL": "", "LANG": "zh_CN.UTF-8"}, "handwash：HOST：此 shell 不在任何作业里"),
        ({"LC_ALL": "zh_CN.UTF-8", "HANDWASH_LANG": "en"}, "handwash: HOST: no job in this shell"),
        (
            {"HANDWASH_LANG": "zh_CN", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n2", "CUDA_VISIBLE_DEVICES": "3"},
            "handwash：HOST：作业 7，在它的计算节点 n2 上；CUDA_VISIBLE_DEVICES=3",
        ),
        ({"LC_ALL": "C", "HANDWASH_LANG": "zh"}, "handwash：HOST：此 shell 不在任何作业里"),
        ({"LC_ALL": "POSIX"}, "handwash: HOST: no job in this shell"),
        ({"HANDWASH_LANG": "zh", "SLURM_JOB_ID": "7"}, "handwash：HOST：作业 7 的分配 shell，仍在这台机器上"),
        (
            {"SLURM_JOB_ID": "4\x1b[31m2", "SLURMD_NODENAME": "%s%n\x07", "CUDA_VISIBLE_DEVICES": "\x9b1m"},
            "handwash: HOST: in job 4?[31m2, on its compute node ?s?n?; CUDA_VISIBLE_DEVICES=?1m",
        ),
    ],
)
def test_the_first_line_says_what_the_shell_knows(somebody: Person, env: dict[str, str], line: str) -> None:
    terminal = somebody.shell(HANDWASH_BANNER="line", **env)
    # bash itself warns about a locale that this machine lacks.
    said = [word for word in terminal.greeting.split("\r\n") if word and "setlocale" not in word]
    assert said == [line.replace("HOST", HOST)]
    assert somebody.tree.calls() == []


def test_a_very_long_value_is_cut(somebody: Person) -> None:
    terminal = somebody.shell(HANDWASH_BANNER="line", SLURM_JOB_ID="9" * 5000)
    assert len(terminal.greeting) < 400


def test_the_first_line_comes_before_the_program_starts(somebody: Person) -> None:
    somebody.tree.behave(banner={"hang": True})
    terminal = somebody.shell(expect_prompt=False)
    terminal.child.expect_exact("no job in this shell\r\n")
    terminal.child.expect_exact("hanging")
    terminal.child.sendintr()
    terminal.prompt()


def test_off_says_nothing(somebody: Person) -> None:
    assert somebody.shell(HANDWASH_BANNER="off").greeting == ""
    assert somebody.shell(HANDWASH_DISABLE="1").greeting == ""
    assert somebody.tree.calls() == []


def test_once_per_login_and_once_per_job(somebody: Person) -> None:
    terminal = somebody.shell()
    assert banners(somebody) == 1
    assert terminal.run("bash") == "", "a nested shell is quiet"
    terminal.run("builtin exit")
    assert terminal.run("bash -l") == ""
    terminal.run("builtin exit")
    assert banners(somebody) == 1
    assert "job 42" in terminal.run("SLURM_JOB_ID=42 bash"), "a new job's shell is not"
    assert banners(somebody) == 2
    assert terminal.run("bash") == ""
    assert "job 43" in terminal.run("SLURM_JOB_ID=43 bash")
    assert banners(somebody) == 3
    somebody.shell()
    assert banners(somebody) == 4, "another login"


def mark(somebody: Person, **env: str) -> str:
    """The mark of another terminal that stays open."""
    terminal = somebody.shell(HANDWASH_BANNER="line", **env)
    return terminal.run("echo $HANDWASH_SHOWN").strip()


def test_a_second_terminal_that_inherits_the_mark(somebody: Person) -> None:
    seen = mark(somebody)
    assert re.fullmatch(rf"{re.escape(platform.node())}::\d+", seen)
    assert somebody.shell(HANDWASH_SHOWN=seen).greeting != "", "another terminal outside any job"
    assert somebody.shell(HANDWASH_SHOWN=seen, TMUX="/tmp/tmux-0/default,1,0").greeting == ""
    assert somebody.shell(HANDWASH_SHOWN=seen, STY="1.pts").greeting == ""
    assert somebody.shell(HANDWASH_SHOWN="elsewhere::1", TMUX="x").greeting != "", "another host"
    in_job = mark(somebody, SLURM_JOB_ID="42")
    assert somebody.shell(HANDWASH_SHOWN=in_job, SLURM_JOB_ID="42").greeting == "", "a terminal of the same job"
    assert somebody.shell(HANDWASH_SHOWN=in_job, SLURM_JOB_ID="43").greeting != ""


@pytest.mark.parametrize("odd", ["", "::", "x", "%s:%s:%s", f"{platform.node()}::", f"{platform.node()}::../1", "$(x)"])
def test_an_odd_mark_is_another_mark(somebody: Person, odd: str) -> None:
    terminal = somebody.shell(HANDWASH_BANNER="line", HANDWASH_SHOWN=odd)
    assert terminal.greeting == f"handwash: {HOST}: no job in this shell\r\n"


def test_quiet_in_a_shell_that_replaces_the_one_that_showed_it(somebody: Person) -> None:
    terminal = somebody.shell()
    assert terminal.run("exec bash") == ""
    assert terminal.run("bash") == ""
    assert banners(somebody) == 1


def test_the_mark_is_the_only_export(somebody: Person) -> None:
    for option in ("", "set -a"):
        somebody.startup(before=option)
        plain = somebody.shell("--norc", "-i", PS1="[$?]> ")
        hooked = somebody.shell()
        names = set(hooked.run("env | sed 's/=.*//' | sort").split()) - set(plain.run("env | sed 's/=.*//'").split())
        assert {name for name in names if "andwash" in name.lower() or "BASH_FUNC" in name} == {"HANDWASH_SHOWN"}
        assert ("allexport      \ton" in hooked.run("set -o")) == bool(option)


def test_ctrl_c_during_the_banner_leaves_everything_in_place(somebody: Person) -> None:
    somebody.tree.behave(banner={"hang": True}, leave={"code": 75})
    somebody.startup(before="trap 'echo mine >>traps' EXIT", after="after=here\n")
    terminal = somebody.shell(expect_prompt=False)
    terminal.child.expect_exact("hanging")
    terminal.child.sendintr()
    terminal.prompt()
    assert terminal.run("echo $after") == "here\r\n", "the rest of the start-up file was read"
    assert terminal.run("trap -p INT") == ""
    terminal.run("exit")
    terminal.child.sendeof()
    terminal.ends()
    assert somebody.tree.said() == ["leave exit", "leave eof"]
    assert (somebody.home / "traps").read_text() == "mine\n"


def test_a_persons_int_trap_survives_the_banner(somebody: Person) -> None:
    somebody.startup(before="trap 'echo mine' INT", after="after=here\n")
    somebody.tree.behave(banner={"hang": True})
    terminal = somebody.shell(expect_prompt=False)
    terminal.child.expect_exact("hanging")
    terminal.child.sendintr()
    terminal.prompt()
    assert terminal.run("echo $after; trap -p INT") == "here\r\ntrap -- 'echo mine' SIGINT\r\n"


def test_a_banner_that_hangs_is_ended(somebody: Person) -> None:
    somebody.tree.behave(banner={"hang": True})
    before = time.monotonic()
    somebody.shell(HANDWASH_DEADLINE="0")
    assert time.monotonic() - before < 10


def test_the_package_is_found_beside_the_hook(somebody: Person, tmp_path: Path) -> None:
    wheel = Tree(tmp_path / "site-packages" / "handwash", wheel=True)
    somebody.startup(hook=wheel.line())
    somebody.shell()
    assert [call["argv"] for call in wheel.calls()] == [["banner"]]
    somebody.startup(hook="")
    terminal = somebody.shell(cwd=str(somebody.tree.folder))
    terminal.run(f"__handwash_python={sys.executable}; . shellhooks/handwash.bash")
    terminal.run("cd /")
    terminal.child.sendline("exit")
    terminal.ends()
    assert [call["argv"] for call in somebody.tree.calls()] == [["banner"], ["leave", "exit"]]


def test_without_a_known_interpreter_the_command_is_looked_up(somebody: Person) -> None:
    bin = somebody.home / "bin"
    bin.mkdir()
    command = bin / "handwash"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {somebody.tree.package}/__main__.py "$@"\n')
    command.chmod(0o755)
    somebody.startup(hook=f". '{somebody.tree.hook}'\n")
    somebody.shell(PATH=f"{bin}:{os.environ['PATH']}")
    assert [call["argv"] for call in somebody.tree.calls()] == [["banner"]]
    # A relative PATH finds a program of the working directory: that is never run.
    somebody.shell(PATH="bin:/usr/bin:/bin")
    assert len(somebody.tree.calls()) == 1


def test_sourcing_twice_does_it_once(somebody: Person) -> None:
    somebody.startup(hook=somebody.tree.line() * 2, after="exec 2>&2\n")
    terminal = somebody.shell()
    terminal.run(". ~/.bashrc")
    terminal.child.sendeof()
    terminal.ends()
    assert [call["argv"] for call in somebody.tree.calls()] == [["banner"], ["leave", "eof"]]


def test_a_tmux_pane_is_quiet_and_its_end_is_told(somebody: Person) -> None:
    tmux = shutil.which("tmux")
    if tmux is None:
        pytest.skip("tmux is not installed")
    env = {**somebody.env, "HANDWASH_SHOWN": mark(somebody), "TMUX_TMPDIR": str(somebody.home)}

    def order(*words: str) -> str:
        return subprocess.run([tmux, "-f", "/dev/null", *words], env=env, capture_output=True, text=True).stdout

    order("new-session", "-d", "-s", "s", "-x", "200", "-y", "30", f"{BASH} -l")
    try:
        until(lambda: order("capture-pane", "-p", "-t", "s:0.0").strip(), "no prompt in the pane")
        assert order("capture-pane", "-p", "-t", "s:0.0").strip() == "[0]>"
        order("split-window", "-t", "s", f"{BASH} -l")
        until(lambda: order("capture-pane", "-p", "-t", "s:0.1").strip() == "[0]>", "no prompt in the second pane")
        order("kill-pane", "-t", "s:0.1")
        until(lambda: somebody.tree.said() == ["leave hup"], "the end of the pane was not told")
    finally:
        order("kill-server")
    until(lambda: somebody.tree.said() == ["leave hup"] * 2, "the end of the server was not told")
    assert banners(somebody) == 0
