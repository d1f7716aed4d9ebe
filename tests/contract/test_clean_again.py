"""What is started anew while `clean` ends it: its agent is named, the rounds are bounded, no second look is no all-clear."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.contract.test_front_door import HANDWASH, ROOT, World, lives, until
from tests.contract.test_front_door import world as world
from tests.contract.test_sessions import SESSION, record, sleeper
from tests.contract.unseen import without_a_second_look

from handwash import giveback

CROWD = ROOT / "tests" / "testbed" / "programs" / "crowd.py"
# Asked to end, it starts itself anew and ends; the signal stays blocked in between, so that none is lost. Five seconds in all.
AGAIN = """
import os, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.write(1, b"ready\\n")
left = float(sys.argv[1]) - time.time()
if left > 0 and signal.sigtimedwait([signal.SIGTERM], left):
    os.posix_spawn(sys.executable, [sys.executable, "-I", "-S", *sys.argv], os.environ)
"""


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# Looks after its worker every tenth of a second.
SLOW = """
import subprocess, sys, time
while True:
    worker = subprocess.Popen(["/bin/sleep", "100"])
    while worker.poll() is None:
        time.sleep(0.1)
    time.sleep(0.1)
"""


@contextmanager
def agent_with_worker(*words: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    with subprocess.Popen(
        [sys.executable, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    ) as agent:
        try:
            until(lambda: children(agent.pid))
            yield agent, children(agent.pid)[0]
        finally:
            # Stopped first, so that it starts no worker after the last look at them.
            os.kill(agent.pid, 19)
            until(lambda: Path(f"/proc/{agent.pid}/stat").read_text().rpartition(")")[2].split()[0] in "TZ")
            for pid in children(agent.pid):
                os.kill(pid, 9)
            agent.kill()


def test_the_agent_of_a_named_worker(world: World) -> None:
    """It has started another: named with what to type, exit code 1, and not ended unasked; then asked for, it goes."""
    with agent_with_worker(str(CROWD), "agent") as (agent, worker):
        code, out, err = world.run("clean", "--yes", str(worker))
        (new,) = children(agent.pid)
        assert code == 1 and not lives(worker) and new != worker, out + err
        assert f"Still there: {new} crowd.py, started anew by {agent.pid} crowd.py." in out
        assert f"handwash clean {agent.pid}" in out and agent.poll() is None
        code, answer = world.json("clean", "--yes", str(new))
        (newer,) = children(agent.pid)
        assert code == 1 and answer["left"] == [{"pid": newer, "why": "restarted", "agent": agent.pid}]
        code, answer = world.json("clean", "--yes", str(agent.pid))
        assert code == 0 and agent.pid in answer["ended"] and newer in answer["ended"] and answer["left"] == []


def test_an_agent_that_looks_after_its_workers_at_intervals(world: World) -> None:
    """It has not noticed yet when the worker is gone; a moment later it has."""
    with agent_with_worker("-c", SLOW) as (agent, worker):
        until(lambda: Path(f"/proc/{worker}/comm").read_text() == "sleep\n")
        code, answer = world.json("clean", "--yes", str(worker))
        (new,) = children(agent.pid)
        assert code == 1 and answer["left"] == [{"pid": new, "why": "restarted", "agent": agent.pid}]


def test_an_agent_that_waits_before_it_starts_another(world: World) -> None:
    """It has started nothing when `clean` is done: named as being there, which is all that is known; nothing is left."""
    with agent_with_worker("-c", SLOW.replace("time.sleep(0.1)\n", "time.sleep(100)\n")) as (agent, worker):
        until(lambda: Path(f"/proc/{worker}/comm").read_text() == "sleep\n")
        code, out, err = world.run("clean", "--yes", str(worker))
        assert code == 0 and "Still there" not in out, out + err
        assert f"{agent.pid} python3" in out or f"{agent.pid} python" in out
        assert f"is still there. To end it with all that it has started: handwash clean {agent.pid}" in out
        assert not lives(worker) and agent.poll() is None


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_during_the_grace(world: World, as_json: bool) -> None:
    """What has ended and what lives is said, with 130; a second later nobody is asked for it."""
    deaf = [sys.executable, "-c", "import signal, time; signal.signal(15, lambda *_: print('asked', flush=True)); "
            "print('ready', flush=True); time.sleep(60)"]  # fmt: skip
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True}
    with subprocess.Popen(deaf, stdout=subprocess.PIPE, text=True, **options) as stubborn, sleeper() as meek:
        try:
            assert stubborn.stdout and stubborn.stdout.readline() == "ready\n"
            words = ["clean", "--yes", str(meek.pid), str(stubborn.pid), *(["--json"] if as_json else [])]
            clean = subprocess.Popen(
                [*HANDWASH, *words],
                env={**world.env, "HANDWASH_GRACE": "60"},
                stdout=subprocess.PIPE,
                text=True,
                **options,
            )
            # Asked: the grace has begun.
            assert stubborn.stdout.readline() == "asked\n" and meek.wait(10) == -15
            clean.send_signal(2)
            out, _err = clean.communicate(timeout=20)
            assert clean.returncode == 130 and stubborn.poll() is None, out
            if as_json:
                answer = json.loads(out)
                assert answer["ended"] == [meek.pid] and answer["left"] == [{"pid": stubborn.pid, "why": "interrupted"}]
            else:
                assert "Interrupted: 1 process has ended." in out and f"about to end: {stubborn.pid}\n" in out
        finally:
            stubborn.kill()


def test_a_program_that_starts_itself_again_each_time(world: World) -> None:
    """Ended a bounded number of times, then said, with exit code 1. It ends by itself within five seconds."""
    script = world.folder / "again.py"
    script.write_text(AGAIN)
    until_then = time.time() + 5
    words = [sys.executable, "-I", "-S", str(script), str(until_then)]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True) as first:
        assert first.stdout and first.stdout.readline() == b"ready\n"
        code, answer = world.json("clean", "--yes", str(first.pid))
        assert code == 1 and len(answer["ended"]) == giveback.ROUNDS and answer["killed"] == [], answer
        ((pid, why),) = [(one["pid"], one["why"]) for one in answer["left"]]
        assert why == "restarted" and pid not in answer["ended"]
        until(lambda: not lives(pid))
        assert time.time() >= until_then


@pytest.mark.parametrize("of_session", [False, True])
def test_nobody_could_look_again(world: World, of_session: bool) -> None:
    """It has ended, and whether something has been started in its place could not be told: 3, with the reason."""
    code = without_a_second_look("No answer within 3 s.")
    path = record(world)
    for words in ([], ["--json"]):
        with sleeper(HANDWASH_SESSION=SESSION) as victim:
            which = ["--session", SESSION] if of_session else [str(victim.pid)]
            done = subprocess.run(
                [*HANDWASH[:-1], "-c", code, "clean", "--yes", *which, *words],
                env=world.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
            )  # fmt: skip
            assert done.returncode == 3 and victim.wait(10) == -15, done
            assert "Could not tell whether anything has been started anew: No answer within 3 s." in done.stdout
    # Of a session nobody may say that nothing is left of it: the next login names it again.
    assert path.exists()
