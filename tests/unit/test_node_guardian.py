"""Whom the guardian takes for the session's when its supervisors are dead: by the cookie, and never another job's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.testbed.processes import wait_until

from handwash.node.traces import with_cookie, with_mark
from handwash.node.wire import Orders

SESSION = "20260101-000000-0123456789ab"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are ended with the test."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def start(started: list[subprocess.Popen[bytes]], **env: str) -> int:
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(100)"], env=env)
    started.append(process)
    return process.pid


def test_the_cookie_in_the_same_job_or_in_none(started: list[subprocess.Popen[bytes]]) -> None:
    mine = start(started, HANDWASH_SESSION=SESSION, SLURM_JOB_ID="42", SLURM_STEP_ID="1")
    cleared = start(started, HANDWASH_SESSION=SESSION)
    submitted = start(started, HANDWASH_SESSION=SESSION, SLURM_JOB_ID="43")
    other = start(started, HANDWASH_SESSION=SESSION + "0", SLURM_JOB_ID="42")
    bystander = start(started, SLURM_JOB_ID="42")

    def found() -> set[int]:
        return {pid for pid, _began in with_cookie(SESSION, "42")} & {mine, cleared, submitted, other, bystander}

    # The environment shows once exec is done.
    assert wait_until(lambda: found() == {mine, cleared}, 5)


def test_without_a_scheduler(started: list[subprocess.Popen[bytes]]) -> None:
    mine = start(started, HANDWASH_SESSION=SESSION)
    submitted = start(started, HANDWASH_SESSION=SESSION, SLURM_JOB_ID="43")
    assert wait_until(lambda: mine in {pid for pid, _began in with_cookie(SESSION, "")}, 5)
    assert submitted not in {pid for pid, _began in with_cookie(SESSION, "")}


def test_the_mark_goes_with_descent_alone(started: list[subprocess.Popen[bytes]]) -> None:
    """Whatever became of parent and environment; a process with another mark, a session's other step, or none is not it."""
    orders = Orders(SESSION, 1.0, "", {})
    mark = orders.mark()
    assert mark != Orders(SESSION[:-1] + "c", 1.0, "", {}).mark()

    def marked(value: int) -> subprocess.Popen[bytes]:
        """A shell that marks itself and starts a sleeper without environment, parent or session of its own."""
        script = (
            "import os, sys, time\nfrom handwash.node import kernel\nassert kernel.mark(int(sys.argv[1]))\n"
            "if os.fork() == 0:\n os.setsid()\n if os.fork() == 0: os.execve('/bin/sleep', ['sleep', '100'], {})\n"
            " os._exit(0)\nprint(flush=True); time.sleep(100)"
        )
        process = subprocess.Popen([sys.executable, "-c", script, str(value)], stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        return process

    before = {pid for pid, _began in with_mark(mark)} | {pid for pid, _began in with_mark(mark + 1)}
    assert before == set()
    mine, other = marked(mark), marked(mark + 1)
    found = {pid for pid, _began in with_mark(mark)}
    try:
        assert mine.pid in found and other.pid not in found and len(found) >= 2
    finally:
        for value in (mark, mark + 1):
            for pid, _began in with_mark(value):
                if pid not in (mine.pid, other.pid):
                    os.kill(pid, signal.SIGKILL)
