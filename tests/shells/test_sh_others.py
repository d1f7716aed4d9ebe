"""Other people's set-ups in ksh93, mksh, dash and busybox ash, and the banner there."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from tests.shells.first_lines import FIRST_LINES
from tests.shells.terminal import REPO, Person

HOOK = REPO / "shellhooks" / "handwash.sh"
EVERY = pytest.mark.parametrize("somebody", ["ksh", "mksh", "dash", "ash"], indirect=True)
HOST = os.uname().nodename.split(".")[0]

OPTIONS = [
    "set -eu",
    "set -C",
    "set -f",
    "set -a",
    "set +m",
    "IFS=handwsx0123456789:/",
    "IFS=",
    "readonly IFS",
    "readonly PATH LANG TERM SLURM_JOB_ID PBS_JOBID PBS_ENVIRONMENT status i x",
    "LD_LIBRARY_PATH=/nowhere; export LD_LIBRARY_PATH; readonly LD_LIBRARY_PATH LD_PRELOAD",
    "readonly HANDWASH_SHOWN=mine REPLY=mine",
    "alias rm='rm -i' cat='cat -n' grep='grep --color' jobs='jobs -l' command='echo COMMAND' trap='echo T'",
    "alias test='echo T' read='echo R' printf='echo P' print='echo P' kill='echo K' alias='echo A'",
    "read() { echo R; }; printf() { echo P; }; kill() { echo K; }; alias() { echo A; }; wait() { echo W; }",
    "set -o vi",
    "TMPDIR=/nowhere; export TMPDIR",
    "umask 777; cd /",
]


@EVERY
@pytest.mark.parametrize("option", OPTIONS)
def test_the_whole_hook_works_under_every_option(somebody: Person, option: str) -> None:
    somebody.tree.behave(banner={"say": "the rest"}, leave={"code": 75})
    somebody.startup(before=f"trap '\\command echo \"mine $?\" >>~/traps' EXIT\n{option}")
    terminal = somebody.shell()
    said = terminal.greeting[terminal.greeting.index("handwash: ") :]
    assert said.count("\r\n") == 2
    assert said.endswith("the rest\r\n")
    assert somebody.kind.name == "ash" or said == terminal.greeting, "busybox greets by itself"
    terminal.run("exit 4")
    terminal.child.sendline("exit 4")
    assert terminal.ends() == 4
    # ksh93 may have drawn its line again.
    assert terminal.rest.replace("\r\n", "").endswith("exit 4")
    assert somebody.tree.said() == ["leave exit", "leave exit --again"]
    if "umask" not in option:
        assert (somebody.home / "traps").read_text() == "mine 4\n"


@EVERY
@pytest.mark.parametrize("mode", ["", "set -u", "set -C"])
@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('echo "one $?" >>traps', "one 5\n"),
        ("echo 'it'\\''s' \"$?\" >>traps; echo two >>traps", "it's 5\ntwo\n"),
        ('echo first >>traps\necho "second" >>traps', "first\nsecond\n"),
        ("echo x >>traps; exit 9", "x\n"),
        ("echo EXIT trap -- EXIT >>traps", "EXIT trap -- EXIT\n"),
    ],
)
@pytest.mark.parametrize("way", ["exit", "eof"])
def test_an_exit_trap_set_before_runs_after_ours(somebody: Person, mode: str, text: str, left: str, way: str) -> None:
    quoted = text.replace("'", "'\\''")
    somebody.startup(before=f"trap ': other' USR1 TERM; trap '{quoted}' EXIT; trap ': int' INT")
    terminal = somebody.shell(HANDWASH_BANNER="off")
    terminal.run(mode or ":")
    terminal.leave(way, 5)
    assert terminal.ends() == (9 if "exit 9" in text else 5)
    assert (somebody.home / "traps").read_text() == left
    assert somebody.tree.said() == ["leave exit" if way == "exit" else "leave eof"]


@EVERY
@pytest.mark.parametrize("name", ["INT", "TERM", "USR1", "QUIT", "WINCH"])
def test_no_foreign_trap_is_cleared(somebody: Person, name: str) -> None:
    somebody.startup(before=f"trap ': mine' {name}")
    terminal = somebody.shell(HANDWASH_BANNER="full")
    terminal.run("trap >traps")
    assert ": mine" in (somebody.home / "traps").read_text()


@EVERY
def test_a_persons_own_exit_stays_theirs(somebody: Person) -> None:
    somebody.tree.behave(leave={"code": 75})
    somebody.startup(before="alias exit='echo mine; \\exit'")
    terminal = somebody.shell(HANDWASH_BANNER="off")
    terminal.child.sendline("exit")
    assert terminal.ends() == 0
    assert "mine" in terminal.rest
    assert somebody.tree.said() == ["leave eof"]


@EVERY
def test_a_persons_trap_alias_is_given_back(somebody: Person) -> None:
    somebody.startup(before="trap ': mine' EXIT; alias trap='echo mine'")
    terminal = somebody.shell(HANDWASH_BANNER="off")
    assert "mine x" in terminal.run("trap x")


@EVERY
@pytest.mark.parametrize(
    ("env", "line"),
    [
        *FIRST_LINES,
        (
            {"CUDA_VISIBLE_DEVICES": ""},
            "handwash: HOST: no job in this shell; CUDA_VISIBLE_DEVICES is set but empty: programs see no GPU",
        ),
        ({"HANDWASH_LANG": "zh", "SLURM_JOB_ID": "7"}, "handwash：HOST：作业 7 的分配 shell，仍在这台机器上"),
        (
            {"SLURM_JOB_ID": "4\x1b[31m2", "SLURMD_NODENAME": "%s%n\x07", "CUDA_VISIBLE_DEVICES": "9" * 5000},
            f"handwash: HOST: in job 4?[31m2, on its compute node ?s?n?; CUDA_VISIBLE_DEVICES={'9' * 200}",
        ),
    ],
)
def test_the_first_line_says_what_the_shell_knows(somebody: Person, env: dict[str, str], line: str) -> None:
    somebody.env.update(env, HANDWASH_BANNER="line")
    terminal = somebody.shell()
    assert line.replace("HOST", HOST) in terminal.greeting.split("\r\n")
    assert somebody.tree.calls() == []


@EVERY
def test_sourcing_forks_never(somebody: Person) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    counts: list[int] = []
    for hook in ("", None):
        somebody.startup(before="trap 'echo mine >>traps' EXIT", hook=hook)
        trace = somebody.home / f"trace{len(counts)}"
        argv = [strace, "-f", "-qq", "-e", "trace=fork,vfork,clone,clone3", "-o", str(trace), *somebody.kind.argv()]
        somebody.opens(argv, HANDWASH_BANNER="line")
        # A call counts where it begins: ksh93 starts tput by vfork, whose end strace shows on a line of its own or not.
        calls = [line.split(None, 1)[1] for line in trace.read_text().splitlines()]
        counts.append(sum(call.startswith(("fork(", "vfork(", "clone(", "clone3(")) for call in calls))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("shell", ["dash", "bash", "zsh", "ksh93", "mksh", "busybox", "yash", "posh"])
def test_silent_where_no_person_sits(shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    words = [program, "ash"] if shell == "busybox" else [program]
    done = subprocess.run(
        [*words, "-c", f". {HOOK}; echo on"], capture_output=True, text=True, env={"PATH": os.environ["PATH"]}
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n", "")


def test_shellcheck_is_clean() -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(["shellcheck", str(HOOK)], capture_output=True, text=True)
    assert done.stdout == ""


def test_the_file_ends_in_a_newline_and_has_no_carriage_return() -> None:
    text = HOOK.read_bytes()
    assert text.endswith(b"\n")
    assert b"\r" not in text
