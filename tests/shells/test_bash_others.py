"""Other people's set-ups: strict options, aliases, functions and traps of their own, before and after the hook."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.shells.terminal import BASH, HOOK, Person, until

STRICT = [
    "set -eu",
    "set -euo pipefail; set -E -T",
    "set -o posix",
    "set -C",
    "shopt -s failglob",
    "shopt -s nullglob dotglob nocaseglob nocasematch extglob",
    "set -f",
    "IFS=handwsx0123456789:/",
    "IFS=",
    "readonly IFS",
    "readonly PATH LANG LC_ALL HOSTNAME TERM SLURM_JOB_ID PBS_JOBID PBS_ENVIRONMENT status i x",
    "export LD_LIBRARY_PATH=/nowhere LD_PRELOAD=; readonly LD_LIBRARY_PATH LD_PRELOAD",
    "readonly HANDWASH_SHOWN=mine REPLY=mine",
    "unset HOSTNAME BASHPID SECONDS 2>/dev/null",
    "set -a",
    "set -b; set -H; set +m",
    "set -o vi",
    "shopt -s localvar_inherit localvar_unset inherit_errexit 2>/dev/null; shopt -s xpg_echo execfail",
    "shopt -s checkjobs cmdhist histappend",
    "alias rm='rm -i' cat='cat -n' grep='grep --color' jobs='jobs -l' builtin='echo BUILTIN' command='echo COMMAND'",
    "alias local='echo L' return='echo R' trap='echo T' printf='echo P' read='echo D' unset='echo U' declare='echo C'",
    "alias shopt='echo S' eval='echo E' export='echo X' set='echo T' shift='echo F' type='echo Y' '[=echo B'",
    "function printf { echo P; }; function trap { echo T; }; function read { echo R; }; function local { echo L; }",
    "function declare { echo D; }; function export { echo X; }; function type { echo Y; }; function command { echo C; }",
    "PROMPT_COMMAND='prompted=1'",
    "PROMPT_COMMAND=('prompted=1' 'prompted=2')",
    "trap 'debugged=1' DEBUG; trap ':' ERR RETURN",
    "exec 3</dev/null 7>&2; ulimit -n 256",
    "umask 777; cd /",
    "TMOUT=100; IGNOREEOF=0",
]


@pytest.mark.parametrize("option", STRICT)
def test_silent_and_complete_under_every_option(somebody: Person, option: str) -> None:
    somebody.tree.behave(leave={"code": 0})
    somebody.startup(before=option, after="loaded=$__handwash_loaded\n")
    terminal = somebody.shell(HANDWASH_BANNER="off")
    assert terminal.greeting == ""
    assert terminal.status == 0
    terminal.child.sendline("exit 4")
    assert terminal.ends() == 4
    assert terminal.rest == "exit 4\r\nexit\r\n"
    # posix mode: `exit` is a special builtin there and cannot be held back; the late check runs all the same.
    assert somebody.tree.said() == ["leave eof" if "posix" in option else "leave exit"]


@pytest.mark.parametrize("option", [o for o in STRICT if "umask" not in o])
def test_the_whole_hook_works_under_every_option(somebody: Person, option: str) -> None:
    somebody.tree.behave(banner={"say": "the rest"}, leave={"code": 75})
    somebody.startup(before=f"trap '\\builtin echo \"mine $?\" >>~/traps' EXIT\n{option}")
    terminal = somebody.shell()
    assert terminal.greeting.endswith("the rest\r\n")
    assert terminal.greeting.startswith("handwash: ")
    assert terminal.greeting.count("\r\n") == 2
    terminal.child.sendline("exit 4")
    if "posix" in option:
        assert terminal.ends() == 4
        assert somebody.tree.said() == ["leave eof"]
    else:
        assert terminal.prompt() == "exit 4\r\n"
        terminal.child.sendline("exit 4")
        assert terminal.ends() == 4
        assert terminal.rest == "exit 4\r\nexit\r\n"
        assert somebody.tree.said() == ["leave exit", "leave exit --again"]
    assert (somebody.home / "traps").read_text() == "mine 4\n"


@pytest.mark.parametrize("option", ["", "set -o posix", "set -u", "IFS=abc"])
def test_set_e_leaves_as_it_would_without_the_hook(somebody: Person, option: str) -> None:
    somebody.tree.behave(leave={"code": 75})
    somebody.startup(before=f"trap 'echo mine >>~/traps' EXIT; set -e; {option}")
    terminal = somebody.shell(HANDWASH_BANNER="off")
    if not option:
        terminal.run("false || exit")
        assert terminal.status == 0, "stay stays: a failing status would leave"
    terminal.child.sendline("false")
    assert terminal.ends() == 1
    assert somebody.tree.said()[-1] == "leave eof"
    assert (somebody.home / "traps").read_text() == "mine\n"


def test_prompt_command_is_untouched(somebody: Person) -> None:
    for value in ("", "PROMPT_COMMAND='a=1'", "PROMPT_COMMAND=('a=1' 'b=2')"):
        seen = []
        for hook in ("", None):
            somebody.startup(before=value, hook=hook)
            terminal = somebody.shell(HANDWASH_BANNER="off")
            seen.append(terminal.run("declare -p PROMPT_COMMAND HISTFILE HISTCONTROL BASH_ENV PS0 PS1"))
        assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ("alias exit='echo mine; \\exit'", "mine"),
        ('function exit { echo mine; builtin exit "$@"; }', "mine"),
        ('exit() { echo mine; builtin exit "$@"; }', "mine"),
    ],
)
def test_a_persons_own_exit_stays_theirs(somebody: Person, own: str, said: str) -> None:
    somebody.tree.behave(leave={"code": 75})
    somebody.startup(before=own)
    terminal = somebody.shell(HANDWASH_BANNER="off")
    terminal.child.sendline("exit")
    assert terminal.ends() == 0
    assert said in terminal.rest
    assert somebody.tree.said() == ["leave eof"]


def test_a_persons_own_logout_stays_theirs(somebody: Person) -> None:
    somebody.startup(before="function logout { echo mine; builtin logout; }")
    terminal = somebody.shell("-l", HANDWASH_BANNER="off")
    terminal.child.sendline("logout")
    assert terminal.ends() == 0
    assert "mine" in terminal.rest
    assert somebody.tree.said() == ["leave eof"]


@pytest.mark.parametrize("mode", ["", "set -e", "set -u", "set -o posix"])
@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('echo "one $?" >>traps', "one 5\n"),
        ("echo 'it'\\''s' \"$?\" >>traps; echo two >>traps", "it's 5\ntwo\n"),
        ('echo first >>traps\necho "second" >>traps', "first\nsecond\n"),
        ('(exit 3) || echo "$?" >>traps', "3\n"),
        ("echo x >>traps; exit 9", "x\n"),
        ("echo EXIT trap -- EXIT >>traps", "EXIT trap -- EXIT\n"),
    ],
)
@pytest.mark.parametrize("way", ["exit", "eof"])
def test_an_exit_trap_set_before_runs_after_ours(somebody: Person, mode: str, text: str, left: str, way: str) -> None:
    quoted = text.replace("'", "'\\''")
    somebody.startup(before=f"trap '{quoted}' EXIT")
    terminal = somebody.shell(HANDWASH_BANNER="off")
    terminal.run(mode or ":")
    if mode == "set -e" and way == "eof":
        terminal.child.sendline("(exit 5)")
    else:
        terminal.leave(way, 5)
    assert terminal.ends() == (9 if "exit 9" in text else 5)
    assert (somebody.home / "traps").read_text() == left
    assert somebody.tree.said() == ["leave exit" if way == "exit" and mode != "set -o posix" else "leave eof"]


def test_an_exit_trap_set_later_replaces_ours(somebody: Person) -> None:
    terminal = somebody.shell(HANDWASH_BANNER="off")
    terminal.run("trap 'echo later >>traps' EXIT")
    terminal.child.sendeof()
    terminal.ends()
    assert somebody.tree.said() == []
    assert (somebody.home / "traps").read_text() == "later\n"


def test_another_tool_can_chain_after_ours(somebody: Person) -> None:
    somebody.startup(
        before="trap 'echo before >>traps' EXIT",
        after='t=$(trap -p EXIT); t=${t#trap -- }; eval "t=${t% EXIT}"; trap "$t; echo after >>traps" EXIT',
    )
    terminal = somebody.shell(HANDWASH_BANNER="off")
    terminal.child.sendeof()
    terminal.ends()
    assert somebody.tree.said() == ["leave eof"]
    assert (somebody.home / "traps").read_text() == "before\nafter\n"


@pytest.mark.parametrize("signal", ["INT", "TERM", "HUP", "USR1", "DEBUG", "ERR", "RETURN", "QUIT", "WINCH", "CHLD"])
def test_no_foreign_trap_is_cleared(somebody: Person, signal: str) -> None:
    somebody.startup(before=f"trap ': mine' {signal}", after=f"seen=$(trap -p {signal})\n")
    terminal = somebody.shell()
    assert ": mine" in terminal.run(f"trap -p {signal}")


def test_nothing_runs_at_a_prompt(somebody: Person) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    trace = somebody.home / "trace"
    terminal = somebody.opens(
        [strace, "-f", "-qq", "-e", "trace=execve,fork,vfork,clone,clone3", "-o", str(trace), BASH]
    )
    before = trace.read_text()
    for _ in range(3):
        terminal.run("")
    assert trace.read_text() == before
    terminal.run("builtin exec true & wait $!")
    assert trace.read_text() != before, "the trace would have shown it"


def forks(somebody: Person) -> int:
    """How many processes the start-up file started."""
    trace = somebody.home / "trace"
    trace.unlink(missing_ok=True)
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    somebody.opens([strace, "-f", "-qq", "-e", "trace=fork,vfork,clone,clone3", "-o", str(trace), BASH])
    return sum("(" in line and "resumed" not in line for line in trace.read_text().splitlines())


def test_sourcing_forks_at_most_once(somebody: Person) -> None:
    somebody.env["HANDWASH_BANNER"] = "line"
    assert forks(somebody) == 0
    somebody.startup(before="trap 'echo mine' EXIT")
    assert forks(somebody) == 1, "an earlier EXIT trap is read back"
    somebody.env["HANDWASH_BANNER"] = "full"
    somebody.startup()
    # timeout, and the program that it runs.
    assert forks(somebody) == 2
    assert [call["argv"] for call in somebody.tree.calls()] == [["banner"]]


def test_sourcing_without_a_child_by_the_kernels_own_account(somebody: Person) -> None:
    """No strace needed: children waited for leave their page faults in /proc/self/stat."""
    faults = "read -r -d '' s </proc/self/stat; s=${s##*) }; set -- $s; faults+=(${9})\n"
    somebody.startup(before=f"faults=(); {faults}", after=faults)
    terminal = somebody.shell(HANDWASH_BANNER="line")
    assert terminal.run('echo "${faults[@]}"').split() in (["0", "0"],)
    assert terminal.run("(:); read -r -d '' s </proc/self/stat; s=${s##*) }; set -- $s; echo $9").strip() != "0"


@pytest.mark.parametrize("shell", ["dash", "sh", "zsh", "ksh", "mksh", "busybox"])
def test_another_shell_that_meets_the_file_is_not_disturbed(shell: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    words = [program, "ash"] if shell == "busybox" else [program]
    done = subprocess.run(
        [*words, "-c", f". {HOOK}; echo on"], capture_output=True, text=True, env={"PATH": os.environ["PATH"]}
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n", "")


@pytest.mark.parametrize("version", ["3.2.57(1)-release", "4.1.17(2)-release", "2.05b.0(1)-release", ""])
def test_an_old_bash_stays_silent(version: str) -> None:
    """The guard is read by a shell that is told another version."""
    done = subprocess.run(
        ["dash", "-c", f'BASH_VERSION="{version}"; . {HOOK}; echo "$?"; set'],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.stdout.startswith("0\n")
    assert "__handwash" not in done.stdout
    assert done.stderr == ""


def test_two_shells_at_once_do_not_mix(somebody: Person) -> None:
    somebody.tree.behave(leave={"code": 75})
    one, two = somebody.shell(HANDWASH_BANNER="off"), somebody.shell(HANDWASH_BANNER="off")
    one.run("exit")
    two.run("exit")
    one.child.sendline("exit")
    one.ends()
    until(lambda: len(somebody.tree.said()) == 3, "three attempts")
    assert somebody.tree.said() == ["leave exit", "leave exit", "leave exit --again"]


def test_a_nested_shell_under_allexport_starts_afresh(somebody: Person) -> None:
    somebody.tree.behave(leave={"code": 75})
    somebody.startup(after="set -a\n")
    terminal = somebody.shell(HANDWASH_BANNER="off")
    terminal.run("exit")
    terminal.run("bash")
    terminal.run("exit")
    assert somebody.tree.said() == ["leave exit", "leave exit"]
    terminal.run("bash -c 'exit 3'")
    assert terminal.status == 3
    assert "BASH_FUNC" not in terminal.run("env | grep BASH_FUNC")[: len("BASH_FUNC")]
