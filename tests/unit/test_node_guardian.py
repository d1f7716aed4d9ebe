"""Whom the guardian takes for a dead task's, never another job's or task's; and when it gives the job back."""

from __future__ import annotations

import os
import posix
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.testbed.processes import wait_until

from handwash.node import guardian, search, wire
from handwash.node.search import Search
from handwash.node.traces import with_cookie, with_mark
from handwash.node.wire import Orders
from handwash.srun import confirm

# No other run of these tests has its mark.
SESSION = f"20260101-000000-{os.getpid():012x}"


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


def test_a_job_that_qsub_handed_the_cookie_to(
    monkeypatch: pytest.MonkeyPatch, started: list[subprocess.Popen[bytes]]
) -> None:
    """`qsub -V` is to PBS what sbatch is to Slurm; the session itself may be in a job of PBS's, too."""
    cleared = start(started, HANDWASH_SESSION=SESSION)
    mine = start(started, HANDWASH_SESSION=SESSION, PBS_JOBID="12.vm")
    submitted = start(started, HANDWASH_SESSION=SESSION, PBS_JOBID="13.vm")

    def found() -> set[int]:
        return {pid for pid, _began in with_cookie(SESSION, "")} & {cleared, mine, submitted}

    assert wait_until(lambda: found() == {cleared}, 5)
    monkeypatch.setitem(posix.environ, b"PBS_JOBID", b"12.vm")
    assert found() == {cleared, mine}


def test_the_mark_goes_with_descent_alone(started: list[subprocess.Popen[bytes]]) -> None:
    """Whatever became of parent and environment; a process with another mark, a session's other step, or none is not it."""
    orders = Orders(SESSION, 1.0, "", {})
    mark = orders.mark()
    assert mark != Orders("20260101-000000-0123456789ab", 1.0, "", {}).mark()

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


def test_what_a_living_task_starts_meanwhile_is_spared(started: list[subprocess.Popen[bytes]]) -> None:
    """A look reads /proc for a while; a task that goes on makes processes all the time, with the cookie in each of them."""
    env = {"HANDWASH_SESSION": SESSION, "PATH": "/usr/bin:/bin"}
    busy = subprocess.Popen(
        ["sh", "-c", "echo; while :; do sleep 0.005; sleep 0.005; done"], env=env, stdout=subprocess.PIPE
    )
    started.append(busy)
    assert busy.stdout is not None and busy.stdout.readline() == b"\n"
    lost = start(started, HANDWASH_SESSION=SESSION)
    one = Search(Orders(SESSION, 0.0, "", {}), set(), lambda: [busy.pid])
    assert wait_until(lambda: [pid for pid, _began in one.look()[0]] == [lost], 5)
    for _ in range(200):
        found, _sure = one.look()
        assert [pid for pid, _began in found] == [lost]


def test_a_step_of_a_living_task_is_spared(
    monkeypatch: pytest.MonkeyPatch, started: list[subprocess.Popen[bytes]]
) -> None:
    """`srun` within a task makes one, and its processes are not below that task. With no other task it is the lost one's."""
    monkeypatch.setattr(search, "job_and_step", lambda: ("42", "0"))
    mine = {"HANDWASH_SESSION": SESSION, "SLURM_JOB_ID": "42"}
    living = start(started, **mine, SLURM_STEP_ID="0")
    lost = start(started, **mine, SLURM_STEP_ID="0")
    cleared = start(started, HANDWASH_SESSION=SESSION)
    step = start(started, **mine, SLURM_STEP_ID="1")

    def found(*roots: int) -> set[int]:
        one = Search(Orders(SESSION, 0.0, "", {}), set(), lambda: list(roots))
        return {pid for pid, _began in one.look()[0]}

    assert wait_until(lambda: found() == {living, lost, cleared, step}, 5)
    assert found(living) == {lost, cleared}


def test_a_search_that_does_not_come_to_rest_is_incomplete(
    monkeypatch: pytest.MonkeyPatch, started: list[subprocess.Popen[bytes]]
) -> None:
    monkeypatch.setattr(search, "LIMIT", 0.3)
    one = Search(Orders(SESSION, 0.0, "", {}), set(), list)
    monkeypatch.setattr(one, "look", lambda: ([(start(started), 0)], True))
    one.run()
    assert not one.complete
    other = Search(Orders(SESSION, 0.0, "", {}), set(), list)
    monkeypatch.setattr(other, "look", lambda: ([], False))
    other.run()
    assert not other.complete
    third = Search(Orders(SESSION, 0.0, "", {}), set(), list)
    monkeypatch.setattr(third, "look", lambda: ([], True))
    third.run()
    assert third.complete


def test_a_chain_of_parents() -> None:
    """One that ends at an ended process is no answer; one that ends at init, or at another user's hidden process, is."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert search.is_cut_short(ended.pid, [ended.pid])
    assert search.is_cut_short(1, [])
    assert not search.is_cut_short(1, [1])
    assert not search.is_cut_short(0, [])


@pytest.mark.parametrize(
    ("nodes", "het", "said", "given"),
    [
        ("1", None, False, True),
        ("2", None, False, False),
        ("1", "2", False, False),
        ("2", None, True, True),
    ],
)
def test_the_job_is_given_back_where_slurmstepd_is_dead(
    monkeypatch: pytest.MonkeyPatch, nodes: str, het: str | None, said: bool, given: bool
) -> None:
    """On one of several nodes only where it died before its tasks, by the word of one of them: at the usual end of this node's
    tasks it is gone too, and those of the other nodes go on."""
    asked: list[list[str]] = []
    monkeypatch.setattr(confirm, "ask", asked.append)
    variables = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": nodes, "SLURM_HET_SIZE": het or ""}
    monkeypatch.setattr(wire, "variable", lambda name: variables.get(name.decode(), ""))
    monkeypatch.setattr(guardian, "variable", wire.variable)
    slurmstepd = subprocess.Popen(["sleep", "100"])
    ours, theirs = socket.socketpair()
    one = guardian.Guardian(socket.socket(socket.AF_UNIX), Orders(SESSION, 0.0, "", {}, own=True), 0)
    task = guardian.Task(ours, os.getpid())
    theirs.sendall(f"task\t{slurmstepd.pid}\n".encode())
    assert one.read(task)
    one.release()
    assert asked == []
    if said:
        theirs.sendall(b"orphaned\n")
        assert one.read(task)
    slurmstepd.kill()
    slurmstepd.wait()
    one.release()
    assert asked == ([["scancel", "77"]] if given else [])
    ours.close()
    theirs.close()


def test_one_that_ends_during_a_look_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch, started: list[subprocess.Popen[bytes]]
) -> None:
    """It may have forked itself anew; a zombie that was there at the last look has not."""
    pid = start(started, HANDWASH_SESSION=SESSION)
    one = Search(Orders(SESSION, 0.0, "", {}), set(), list)
    assert wait_until(lambda: [found for found, _began in one.look()[0]] == [pid], 5)

    def end_it() -> list[int]:
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return []

    monkeypatch.setattr(one, "roots", end_it)
    assert one.look() == ([], False)
    monkeypatch.setattr(one, "seen", {(pid, search.identity.start_of(pid) or 0)})
    monkeypatch.setattr(one, "roots", list)
    assert one.look() == ([], True)
