"""`safe-srun --local` beside the command alone: what it inherits, what it hears, what it leaves on the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from tests.testbed import processes
from tests.testbed.processes import identity, wait_until

ROOT = Path(__file__).resolve().parents[2]
LEFT = f"109.{os.getpid()}91"


def sleepers() -> list[int]:
    return [pid for pid in processes.pids() if LEFT in processes.arguments(pid)[1:2] and identity(pid)]


@pytest.fixture(autouse=True)
def nobody_stays() -> Iterator[None]:
    yield
    assert not processes.end_all(sleepers)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "HANDWASH_GRACE": "0.5"}


def run(env: dict[str, str], before: str, script: str) -> subprocess.CompletedProcess[str]:
    """`before`: what a program has done with itself that becomes safe-srun then."""
    code = f"import os, signal, sys\n{before}\nos.execv(sys.argv[1], sys.argv[1:])"
    words = [str(ROOT / "wrappers/safe-srun"), "--local", "bash", "-c", script]
    return subprocess.run(
        [sys.executable, "-c", code, *words], env=env, capture_output=True, text=True, timeout=60, cwd="/"
    )


def test_started_with_the_children_signal_ignored(env: dict[str, str]) -> None:
    """Children of such a process vanish without a status; nothing of the session may."""
    script = f"grep SigIgn /proc/self/status; env -i setsid -f sleep {LEFT} >/dev/null 2>&1; exit 7"
    done = run(env, "signal.signal(signal.SIGCHLD, signal.SIG_IGN)", script)
    assert (done.returncode, done.stderr) == (7, "handwash: 1 process ended\n")
    assert sleepers() == []
    # Bit 16 is SIGCHLD, which the command finds as it was.
    assert int(done.stdout.split()[1], 16) >> 16 & 1


def test_a_timer_that_runs_since_before_is_for_the_command(env: dict[str, str]) -> None:
    """alarm(2) goes on over exec: `perl -e 'alarm 60; exec @ARGV' COMMAND` is an old way to a time limit."""
    timer = "signal.setitimer(signal.ITIMER_REAL, 2.5)"
    done = run(env, timer, f"env -i setsid -f sleep {LEFT} >/dev/null 2>&1; exec sleep 100")
    assert (done.returncode, done.stderr) == (-14, "handwash: 1 process ended\n")
    assert sleepers() == []


@pytest.fixture
def terminal(env: dict[str, str], tmp_path: Path) -> Iterator[pexpect.spawn[str]]:
    child = pexpect.spawn(
        "bash", ["--norc", "--noprofile", "-i"], env={**env, "PS1": "READY:", "PATH": f"{ROOT}/wrappers:{os.environ['PATH']}"},
        encoding="utf-8", timeout=20, cwd=str(tmp_path),
    )  # fmt: skip
    child.expect("READY:")
    yield child
    child.close(force=True)


def settings(child: pexpect.spawn[str]) -> str:
    child.sendline("stty -a >settings; echo so it is")
    child.expect("so it is\r\n.*READY:")
    return Path(child.cwd or "", "settings").read_text()


@pytest.mark.parametrize(("ending", "stays"), [("exit 0", True), ("exit 3", True), ("kill -9 $$", False)])
def test_what_the_command_sets_on_the_terminal(terminal: pexpect.spawn[str], ending: str, stays: bool) -> None:
    """`stty` is there to set it; who is killed has not come to put it back."""
    before = settings(terminal)
    terminal.sendline(f"safe-srun --local bash -c 'stty -ixon; {ending}'; echo done")
    terminal.expect("\ndone")
    terminal.expect("READY:")
    after = settings(terminal)
    assert after == (before.replace(" ixon", " -ixon") if stays else before)


FOREGROUND = """
import os, sys, termios, time
mine = termios.tcgetattr(0)
mine[0] &= ~termios.IXON
termios.tcsetattr(0, termios.TCSANOW, mine)
os.kill(int(sys.argv[1]), 9)
limit = time.monotonic() + 10
while os.path.exists("/proc/" + sys.argv[2]) and time.monotonic() < limit:
    time.sleep(0.01)
print("over:", os.path.exists("/proc/" + sys.argv[2]), termios.tcgetattr(0) == mine)
"""


def test_another_program_has_the_terminal_now(terminal: pexpect.spawn[str]) -> None:
    """A session in the background that is killed does not change it below that one."""
    program = Path(terminal.cwd or "", "foreground.py")
    program.write_text(FOREGROUND)
    terminal.sendline(f"safe-srun --local sleep {LEFT} &")
    assert wait_until(lambda: len(sleepers()) == 1, 10)
    terminal.sendline(f"{sys.executable} {program} {sleepers()[0]} $!")
    terminal.expect("over: False (True|False)")
    assert terminal.match[1] == "True"
    terminal.expect("READY:")
