"""Whom the guardian takes for the session's when its supervisors are dead: by the cookie, and never another job's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.testbed.processes import wait_until

from handwash.srun.guardian import with_cookie

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
