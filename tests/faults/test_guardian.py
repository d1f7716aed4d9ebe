"""The guardian of a task, under `safe-srun --local`: replaced when it dies, it finds whatever the session has started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.testbed import processes
from tests.testbed.processes import identity, running, wait_until

from handwash.teardown import identity as kernels_word
from handwash.teardown import tree

ROOT = Path(__file__).resolve().parents[2]
# Seconds that no other run of these tests sleeps.
HIDES, STAYS, OTHER, OTHERS_MAIN, BYSTANDER = (f"109.{os.getpid()}{number}" for number in range(1, 6))
# One that nobody sees being born: two forks, a session of its own, no environment; then the word that it is there.
UNSEEN = f"env -i setsid -f sleep {HIDES}; echo up"


class Local:
    """A session under `safe-srun --local` with its helpers by name."""

    def __init__(self, home: Path, script: str, settled: bool = True) -> None:
        self.env = {**os.environ, "HOME": str(home), "HANDWASH_GRACE": "0.5", "XDG_STATE_HOME": str(home)}
        self.child = subprocess.Popen(
            [ROOT / "wrappers" / "safe-srun", "--local", "bash", "-c", script], env=self.env, cwd="/",
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.child.stdout is not None
        assert self.child.stdout.readline() == "up\n"
        self.outer = self.child.pid
        if settled:
            assert wait_until(lambda: len(self.guardians()) == 1, 10)

    @property
    def inner(self) -> int:
        (pid,) = tree.children(self.outer) or []
        return pid

    def guardians(self) -> list[int]:
        """By the socket's name: the entry point is the same as the outer one's."""
        found = []
        for pid in processes.pids():
            words = processes.arguments(pid)
            if pid != self.outer and any(word.endswith("/srun/entry.py") for word in words[:5]):
                who = identity(pid)
                mine = processes.environment(pid).get("XDG_STATE_HOME") == self.env["XDG_STATE_HOME"]
                if who and mine:
                    found.append(pid)
        return [pid for pid in found if pid not in tree.below([self.outer])]

    def record(self) -> dict[str, object]:
        done = subprocess.run(
            [sys.executable, "-m", "handwash", "sessions", "--json"], env=self.env, capture_output=True, text=True
        )
        (item,) = json.loads(done.stdout)["items"]
        return item


def sleepers() -> list[int]:
    return [pid for pid in processes.pids() if set(processes.arguments(pid)[1:2]) & {HIDES, STAYS} and identity(pid)]


@pytest.fixture(autouse=True)
def nobody_stays(tmp_path: Path) -> Iterator[None]:
    """What is not of the session lives on: a process of the same user, and another session with the same words."""
    bystander = subprocess.Popen(["sleep", BYSTANDER])
    (tmp_path / "other").mkdir()
    other = Local(tmp_path / "other", f"env -i setsid -f sleep {OTHER}; echo up; exec sleep {OTHERS_MAIN}")
    people = [identity(bystander.pid), *map(identity, tree.below([other.outer]))]
    yield
    assert len(people) >= 4 and all(who is not None and running(who) for who in people)
    bystander.kill()
    bystander.wait()
    other.child.terminate()
    other.child.communicate(timeout=20)
    assert not processes.end_all(sleepers)


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_another_one_takes_the_place_of_one_that_died(tmp_path: Path) -> None:
    """Three times over; the end is as clean as ever, and told once."""
    session = Local(tmp_path, f"{UNSEEN}; exec sleep {STAYS}")
    for _ in range(3):
        (old,) = session.guardians()
        kill(old)
        assert wait_until(lambda old=old: session.guardians() not in ([], [old]), 10)
    naps = [pid for pid in sleepers() if processes.arguments(pid)[1] == STAYS]
    os.kill(naps[0], signal.SIGTERM)
    _out, errors = session.child.communicate(timeout=20)
    assert session.child.returncode == -signal.SIGTERM
    assert errors == "handwash: 1 process ended\n"
    assert sleepers() == []
    assert wait_until(lambda: not session.guardians(), 10)
    item = session.record()
    assert (item["outcome"], item["left"]) == ("clean", [])


@pytest.mark.parametrize("member", ["inner", "outer"])
def test_killed_together_with_one_supervisor(tmp_path: Path, member: str) -> None:
    """The other supervisor makes a new guardian, whatever of the two it notices first."""
    for number in range(8):
        home = tmp_path / str(number)
        home.mkdir()
        session = Local(home, f"{UNSEEN}; exec sleep {STAYS}")
        (old,) = session.guardians()
        kill(*((old, getattr(session, member)) if number % 2 else (getattr(session, member), old)))
        _out, errors = session.child.communicate(timeout=20)
        assert wait_until(lambda: not sleepers(), 10 if member == "outer" else 0.5)
        assert member == "outer" or errors == "handwash: 2 processes ended\n"
        assert wait_until(lambda session=session: not session.guardians(), 20)


@pytest.mark.parametrize("who", ["guardian first", "at once"])
def test_the_new_one_knows_its_work(tmp_path: Path, who: str) -> None:
    session = Local(tmp_path, f"{UNSEEN}; exec sleep {STAYS}")
    if who == "guardian first":
        (old,) = session.guardians()
        kill(old)
        assert wait_until(lambda: session.guardians() not in ([], [old]), 10)
    kill(session.inner, session.outer)
    assert wait_until(lambda: not session.guardians(), 20)
    assert sleepers() == []
    session.child.communicate(timeout=20)


def test_what_was_born_just_before_is_found(tmp_path: Path) -> None:
    """Both supervisors are killed at the moment at which a process with neither parent nor environment appears."""
    for _ in range(10):
        session = Local(tmp_path, f"{UNSEEN}; exec sleep {STAYS}", settled=False)
        kill(session.inner, session.outer)
        assert wait_until(lambda session=session: not session.guardians(), 20)
        assert sleepers() == []
        session.child.communicate(timeout=20)


def test_a_stopped_outer_one_is_woken_when_it_is_needed(tmp_path: Path) -> None:
    session = Local(tmp_path, f"{UNSEEN}; exec sleep {STAYS}")
    os.kill(session.outer, signal.SIGSTOP)
    kill(session.inner)
    _out, errors = session.child.communicate(timeout=20)
    assert sleepers() == []
    assert session.child.returncode == -signal.SIGKILL
    assert "2 processes ended" in errors


def test_a_stopped_session_stays_stopped(tmp_path: Path) -> None:
    """As `scontrol suspend` leaves it: all of it is stopped, nobody is missing, nobody is woken."""
    session = Local(tmp_path, f"{UNSEEN}; exec sleep {STAYS}")
    tasks = [session.outer, *tree.below([session.outer])]
    for pid in tasks:
        os.kill(pid, signal.SIGSTOP)

    def states() -> set[str]:
        return {who.state for who in map(kernels_word.read, tasks) if who}

    assert wait_until(lambda: states() == {"T"}, 5)
    assert not wait_until(lambda: states() != {"T"}, 2.5)
    for pid in tasks:
        os.kill(pid, signal.SIGCONT)
    session.child.terminate()
    session.child.communicate(timeout=20)
    assert sleepers() == []
