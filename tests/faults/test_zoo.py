"""Every way to escape that a program may have, one by one, under `safe-srun --local`: none of them is left."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.session import carriers
from tests.testbed import processes
from tests.testbed.processes import identity, running, wait_until
from tests.testbed.programs.zoo import ESCAPEES, PYTHON

ROOT = Path(__file__).resolve().parents[2]
WRAPPER = ROOT / "wrappers" / "safe-srun"
ZOO = [PYTHON, "-I", "-S", str(ROOT / "tests" / "testbed" / "programs" / "zoo.py")]
# In the command line of every sleeper that a shell here starts; each ends by itself in less than two minutes.
MARK = f"110.{os.getpid()}1"
NEEDS = {"tmux": "tmux", "ssh-agent": "ssh-agent"}


def left() -> list[int]:
    """Living processes with the mark."""
    return [pid for pid in processes.pids() if MARK in processes.arguments(pid) and identity(pid)]


@pytest.fixture(autouse=True)
def nobody_else_is_touched() -> Iterator[None]:
    bystander = subprocess.Popen(["sleep", "109.0625"])
    who = identity(bystander.pid)
    yield
    assert who is not None and running(who)
    bystander.kill()
    bystander.wait()
    stayed = processes.end_all(left)
    assert not stayed


@pytest.fixture
def token() -> Iterator[str]:
    """The word by which the escapees of a test are found."""
    word = f"zoo-{secrets.token_hex(4)}"
    yield word
    processes.end_all(lambda: [who.pid for who, _words, _name in carriers(word)])


def supervised(script: str, grace: str = "0.3") -> subprocess.CompletedProcess[str]:
    return under_safe_srun(["bash", "-c", script], grace)


def under_safe_srun(command: list[str], grace: str = "0.3") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HANDWASH_GRACE": grace, "MARK": MARK}
    return subprocess.run([WRAPPER, "--local", *command], env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name", ESCAPEES)
def test_an_escapee(name: str, tmp_path: Path, token: str, request: pytest.FixtureRequest) -> None:
    if name in NEEDS and not shutil.which(NEEDS[name]):
        pytest.skip(f"{name} is not installed")
    if name == "opens-gpu" and not Path("/dev/nvidia0").exists():
        # Any cluster of the session has made it.
        request.getfixturevalue("any_cluster")
    (tmp_path / "order").write_text("exit 3")
    begun = time.monotonic()
    done = under_safe_srun([*ZOO, token, str(tmp_path), name])
    assert (tmp_path / f"ready-{name}").exists()
    assert done.returncode == 3
    assert list(carriers(token)) == []
    assert "could not" not in done.stderr
    assert time.monotonic() - begun < 15
    if name in ("ignores-term", "restarts-workers", "uninterruptible"):
        assert "needed KILL" in done.stderr


def test_the_escapees_are_what_they_are_called(tmp_path: Path, token: str) -> None:
    """Each is in the state that makes it hard to end."""
    names = ["stopped", "uninterruptible", "zombies", "wicked-name", "two-hundred", "double-fork-cleared"]
    zoo = subprocess.Popen([*ZOO, token, str(tmp_path), *names])
    try:
        assert wait_until((tmp_path / "ready-all").exists, 20)

        def states(name: str) -> list[str]:
            return [
                found.state
                for who, _words, word in carriers(token)
                if word == name and (found := processes.stat(who.pid))
            ]

        assert wait_until(lambda: "D" in states("uninterruptible"), 10)
        assert wait_until(lambda: "T" in states("stopped"), 10)
        assert len(states("two-hundred")) == 201
        rows = {word: who.pid for who, _words, word in carriers(token)}
        assert Path(f"/proc/{rows['wicked-name']}/comm").read_text().startswith("a) b (c")
        assert processes.environment(rows["double-fork-cleared"]) == {}
        parent = rows["zombies"]
        dead = [pid for pid in processes.pids() if (found := processes.stat(pid)) and found.parent == parent]
        assert len(dead) == 5
    finally:
        zoo.kill()
        zoo.wait()


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
