"""Leaving a job's shell with something still running: the warning, the three answers, and what becomes of it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.slurm.person import QUESTION, Person, alive, person, until
from tests.testbed.cluster import Cluster
from tests.testbed.driver.fake import GIB, FakeDriver


@pytest.fixture
def driver(fake_driver: FakeDriver) -> FakeDriver:
    return fake_driver.gpus(4, name="NVIDIA A100-SXM4-40GB", memory_total=40 * GIB).holders(memory=7 * GIB)


@pytest.fixture
def somebody(handwash_venv: Path, cluster: Cluster, driver: FakeDriver) -> Iterator[Person]:
    with person(cluster, **driver.env()) as found:
        yield found


@pytest.fixture
def bystanders(cluster: Cluster) -> Iterator[list[int]]:
    """Another living job of the same person on the same node, and another person's process: both have to survive."""
    job = cluster.popen(["srun", "--gres=gpu:1", "-w", "n1", "sleep", "100"], user="alice")
    other = cluster.popen(["sleep", "100"], user="bob")
    until(lambda: any(row.state == "RUNNING" for row in cluster.jobs()), "the second job does not run")
    number = next(row.id for row in cluster.jobs())
    pids: list[int] = []

    def workers() -> list[int]:
        return [pid for pid in cluster.processes("alice") if Path(f"/proc/{pid}/comm").read_text() == "sleep\n"]

    until(workers, "the second job has no process")
    pids = [*workers(), other.pid]
    yield pids
    lost = [pid for pid in pids if not alive(pid)]
    other.kill()
    other.wait()
    cluster.run(["scancel", str(number)], user="alice")
    job.wait(30)
    assert not lost, f"wrong victims: {lost}"


def end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_exit_warns_and_stay_stays(somebody: Person, bystanders: list[int]) -> None:
    terminal, job = somebody.in_job("srun", "--gres=gpu:1", "-w", "n1")
    shell = int(terminal.run("echo $$"))
    pid = somebody.holds_gpu(terminal)
    terminal.child.sendline("exit 7")
    terminal.child.expect(QUESTION)
    warning = str(terminal.child.before)
    assert f"job {job}" in warning
    row = next(line for line in warning.splitlines() if line.strip().startswith(str(pid)))
    assert "hold_gpu.py" in row and "7.0 GiB" in row and job in row
    survives = "ends with the job" not in row
    assert survives == (somebody.cluster.proctrack != "cgroup"), row
    terminal.child.sendline("s")
    terminal.prompt()
    assert alive(pid)
    # The second attempt in a row leaves without a question.
    terminal.child.sendline("exit 7")
    until(lambda: not alive(shell), "the shell did not end")
    if survives:
        # Plain srun does not return while it lives: the job stays RUNNING (the tests of safe-srun show the two side by side).
        assert alive(pid)
        end(pid)
    terminal.prompt()
    assert terminal.status == 7
    until(lambda: not alive(pid), "it is still there")


def test_clean_up_ends_it_and_shows_the_memory(somebody: Person, bystanders: list[int]) -> None:
    terminal, _job = somebody.in_job("srun", "--gres=gpu:1", "-w", "n1")
    pid = somebody.holds_gpu(terminal)
    terminal.child.sendline("exit")
    terminal.child.expect(QUESTION)
    terminal.child.sendline("c")
    said = terminal.prompt()
    assert "1 process ended, 0 by KILL." in said
    assert "from 7.0 GiB to 0 MiB" in said
    assert not alive(pid)
    assert "SLURM_JOB_ID" not in terminal.run("env")


def test_leave_leaves_with_the_status(somebody: Person) -> None:
    terminal, _job = somebody.in_job("srun", "--gres=gpu:1", "-w", "n1")
    pid = somebody.holds_gpu(terminal)
    shell = int(terminal.run("echo $$"))
    terminal.run("false")
    terminal.child.sendline("exit")
    terminal.child.expect(QUESTION)
    terminal.child.sendline("l")
    until(lambda: not alive(shell), "the shell did not end")
    end(pid)
    terminal.prompt()
    assert terminal.status == 1


def test_a_clean_session_is_not_asked(somebody: Person, bystanders: list[int]) -> None:
    terminal, _job = somebody.in_job("srun", "--gres=gpu:1", "-w", "n1")
    said = terminal.run("exit 3")
    assert "handwash" not in said
    assert terminal.status == 3


def test_under_safe_srun_stay_then_leave_and_the_teardown_takes_the_rest(
    somebody: Person, bystanders: list[int]
) -> None:
    terminal, job = somebody.in_job("safe-srun", "--gres=gpu:1", "-w", "n1")
    pid = somebody.holds_gpu(terminal, "--ignore-term")
    hidden = int(
        terminal.run(
            "env -i setsid -f sh -c 'echo $$ >hidden; exec sleep 110'; until [ -s hidden ]; do :; done; cat hidden; rm hidden"
        )
    )
    terminal.child.sendline("exit 5")
    terminal.child.expect(QUESTION)
    warning = str(terminal.child.before)
    row = next(line for line in warning.splitlines() if line.strip().startswith(str(pid)))
    assert "hold_gpu.py" in row and "7.0 GiB" in row and "this session" in row and "ends with the job" in row
    assert any(line.strip().startswith(str(hidden)) and "this session" in line for line in warning.splitlines()), (
        warning
    )
    terminal.child.sendline("s")
    terminal.prompt()
    assert alive(pid) and alive(hidden)
    terminal.run("true")
    terminal.child.sendline("exit 5")
    terminal.child.expect(QUESTION)
    terminal.child.sendline("l")
    said = terminal.prompt()
    assert terminal.status == 5
    assert not alive(pid) and not alive(hidden)
    assert f"job {job}: " in said and "the job has left the queue" in said
    assert job not in [row.id for row in somebody.cluster.jobs()]


def test_under_safe_srun_clean_up(somebody: Person, bystanders: list[int]) -> None:
    terminal, _job = somebody.in_job("safe-srun", "--gres=gpu:1", "-w", "n1")
    pid = somebody.holds_gpu(terminal)
    terminal.child.sendline("exit")
    terminal.child.expect(QUESTION)
    terminal.child.sendline("c")
    said = terminal.prompt()
    assert terminal.status == 0
    assert "from 7.0 GiB to 0 MiB" in said and "the job has left the queue" in said
    assert not alive(pid)
