"""Every way to escape that a program may have, one by one, under `safe-srun --local`: none of them is left."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.testbed import processes
from tests.testbed.processes import identity, running, wait_until

WRAPPER = Path(__file__).resolve().parents[2] / "wrappers" / "safe-srun"
# In the command line of everything that a program here starts; each ends by itself in less than two minutes.
MARK = f"110.{os.getpid()}1"

PYTHON = {
    "ignores TERM": """
signal.signal(signal.SIGTERM, signal.SIG_IGN); ready(); time.sleep(110)""",
    "stopped": """
ready(); os.kill(os.getpid(), signal.SIGSTOP); time.sleep(110)""",
    "two hundred children": """
for _ in range(200):
    if os.fork() == 0:
        time.sleep(110); os._exit(0)
ready(); time.sleep(110)""",
    "forks itself anew": """
ready()
end = time.monotonic() + 5
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid(); time.sleep(0.01)""",
    "restarts its workers": """
def worker():
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL); time.sleep(110); os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(4):
    worker()
ready()
end = time.monotonic() + 100
while time.monotonic() < end:
    os.wait(); worker()""",
    "has a wicked name": """
open("/proc/self/comm", "w").write("a) b (c\\n) R 1 2"); ready(); time.sleep(110)""",
    "is a subreaper itself": """
import ctypes
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid(); time.sleep(110)
    os._exit(0)
ready(); time.sleep(110)""",
    "keeps zombies": """
for _ in range(5):
    if os.fork() == 0:
        os._exit(0)
ready(); time.sleep(110)""",
    "is not dumpable": """
import ctypes
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); ready(); time.sleep(110)""",
    "clears its environment": """
os.setsid()
if os.fork() == 0:
    ready(); os.execve("/bin/sleep", ["sleep", MARK], {})
os._exit(0)""",
    "holds the output open": """
os.setsid(); os.dup2(3, 1); ready(); time.sleep(110)""",
}
HEAD = """
import os, signal, sys, time
MARK = sys.argv[1]
def ready():
    open(sys.argv[2], "w").close()
"""


def left() -> list[int]:
    """Living processes with the mark."""
    return [pid for pid in processes.pids() if MARK in processes.arguments(pid) and identity(pid)]


@pytest.fixture(autouse=True)
def nobody_stays(tmp_path: Path):
    bystander = subprocess.Popen(["sleep", "109.0625"])
    who = identity(bystander.pid)
    yield
    assert who is not None and running(who)
    bystander.kill()
    bystander.wait()
    stayed = processes.end_all(left)
    assert not stayed


def supervised(script: str, grace: str = "0.3") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HANDWASH_GRACE": grace, "MARK": MARK}
    return subprocess.run(
        [WRAPPER, "--local", "bash", "-c", script], env=env, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("name", PYTHON)
def test_a_program_that(name: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(HEAD + PYTHON[name])
    ready = tmp_path / "ready"
    script = (
        f"exec 3>&1; {sys.executable} -I -S {program} {MARK} {ready} </dev/null >/dev/null 2>&1 & "
        f"for _ in {{1..400}}; do [ ! -e {ready} ] || break; sleep 0.02; done; exit 3"
    )
    begun = time.monotonic()
    done = supervised(script)
    assert ready.exists()
    assert done.returncode == 3
    assert left() == []
    assert "could not" not in done.stderr
    assert time.monotonic() - begun < 15
    if name in ("ignores TERM", "restarts its workers"):
        assert "needed KILL" in done.stderr


@pytest.mark.parametrize(
    "script",
    [
        "sleep $MARK & ",
        "nohup sleep $MARK >/dev/null 2>&1 & ",
        "setsid sleep $MARK & ",
        "(setsid setsid sleep $MARK &) ; ",
        "(env -i setsid sleep $MARK &) ; ",
        "sleep $MARK & disown; ",
    ],
)
def test_a_shell_that_leaves(script: str) -> None:
    done = supervised(f"{{ {script} }} >/dev/null 2>&1 </dev/null; exit 4")
    assert done.returncode == 4
    assert left() == []
    assert re.fullmatch(r"handwash: \d process(es)? ended\n", done.stderr)


def test_a_new_tmux_server(tmp_path: Path) -> None:
    if not shutil.which("tmux"):
        pytest.skip("tmux is not installed")
    done = supervised(f"tmux -S {tmp_path}/socket -f /dev/null new-session -d 'sleep {MARK}'; exit 5")
    assert done.returncode == 5
    assert left() == []
    assert not [pid for pid in processes.pids() if f"{tmp_path}/socket" in processes.arguments(pid) and identity(pid)]


def test_an_ssh_agent(tmp_path: Path) -> None:
    if not shutil.which("ssh-agent"):
        pytest.skip("ssh-agent is not installed")
    done = supervised(f"ssh-agent -a {tmp_path}/agent; exit 6")
    assert done.returncode == 6
    assert not [pid for pid in processes.pids() if f"{tmp_path}/agent" in processes.arguments(pid) and identity(pid)]


def test_an_already_running_tmux_server_is_left_alone(tmp_path: Path) -> None:
    """What it starts when told to is not of the session, and nobody guesses."""
    if not shutil.which("tmux"):
        pytest.skip("tmux is not installed")
    tmux = ["tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null"]
    subprocess.run([*tmux, "new-session", "-d", "sleep 108.5"], check=True)
    try:
        assert supervised(f"{' '.join(tmux)} new-window -d 'sleep {MARK}'; exit 7").returncode == 7
        assert wait_until(lambda: len(left()) == 1, 10)
        listed = subprocess.run([*tmux, "list-windows"], capture_output=True, text=True, check=True)
        assert len(listed.stdout.splitlines()) == 2
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)


def test_nothing_left_costs_no_waiting() -> None:
    begun = time.monotonic()
    assert supervised("exit 0", grace="30").stderr == "handwash: nothing was left running\n"
    assert time.monotonic() - begun < 5


def test_a_polite_one_costs_no_more_than_it_takes() -> None:
    begun = time.monotonic()
    supervised("sleep $MARK >/dev/null 2>&1 & exit 0", grace="30")
    assert time.monotonic() - begun < 5
