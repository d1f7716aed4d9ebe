"""Whom the guardian takes for a dead task's, never another job's or task's; and when it gives the job back."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.testbed.processes import wait_until

from handwash import config, slurm_names, world
from handwash.node import guardian, search, traces, wire
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


SLURM = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}
PBS = {"PBS_JOBID": "7.server", "PBS_ENVIRONMENT": "PBS_BATCH"}
SGE = {"JOB_ID": "7", "SGE_TASK_ID": "undefined", "SGE_ROOT": "/opt/sge"}
# What sets one job apart from another, on a node or a host that is in none.
NUMBERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "OAR_JOB_ID", "COBALT_JOBID", "PJM_JOBID")
FOLDER = "_CONDOR_SCRATCH_DIR"


@pytest.mark.parametrize(
    ("own", "theirs", "spared"),
    [
        # In a job of Slurm: its number decides, whatever is exported for programs that know another scheduler.
        (SLURM, SLURM, False),
        (SLURM, {**SLURM, "SLURM_JOB_ID": "8"}, True),
        (SLURM, {}, False),
        (SLURM, {"SLURM_JOB_ID": ""}, False),
        (SLURM, {**SLURM, "PBS_JOBID": "7"}, False),
        (SLURM, {**SLURM, **PBS}, False),
        (SLURM, {"PBS_JOBID": "7"}, False),
        ({**SLURM, "PBS_JOBID": "7"}, {**SLURM, "SLURM_JOB_ID": "8", "PBS_JOBID": "7"}, True),
        # A Flux of one's own within the job.
        (SLURM, {**SLURM, "FLUX_JOB_ID": "f1"}, False),
        (SLURM, {**SLURM, **SGE}, False),
        # In a job of PBS.
        (PBS, PBS, False),
        (PBS, {**PBS, "PBS_JOBID": "8.server"}, True),
        (PBS, {**PBS, "SLURM_JOB_ID": "7"}, False),
        # Slurm's number by hand in somebody else's job, whose submission takes the whole environment along.
        ({"SLURM_JOB_ID": "7", "LSB_JOBID": "7"}, {"SLURM_JOB_ID": "7", "LSB_JOBID": "8"}, True),
        ({"SLURM_JOB_ID": "7", "LSB_JOBID": "7"}, {"SLURM_JOB_ID": "7", "LSB_JOBID": "7"}, False),
        ({"PBS_JOBID": "7", **SGE}, {"PBS_JOBID": "7", **SGE, "JOB_ID": "8"}, True),
        # salloc's shell, or one that outlived it.
        ({"SLURM_JOB_ID": "7"}, {"SLURM_JOB_ID": "7"}, False),
        ({"SLURM_JOB_ID": "7"}, {**SLURM, "SLURM_JOB_ID": "8"}, True),
        ({"SLURM_JOB_ID": "7"}, {"SLURM_JOB_ID": "7", "FLUX_JOB_ID": "f1"}, True),
        # A job of each, submitted from none and from another one; a number that is empty is none.
        *(({}, {name: "7"}, True) for name in (*NUMBERS, FOLDER)),
        *(({name: "7"}, {name: "8"}, True) for name in (*NUMBERS, FOLDER)),
        *(({name: "7"}, {name: "7"}, False) for name in (*NUMBERS, FOLDER)),
        *(({name: "7"}, {name: ""}, False) for name in NUMBERS),
        *(({name: "7"}, {}, False) for name in NUMBERS),
        # Grid Engine's name for it is anybody's: only with what its jobs alone have.
        ({}, SGE, True),
        (SGE, {**SGE, "JOB_ID": "8"}, True),
        (SGE, SGE, False),
        (SGE, {}, False),
        ({}, {"JOB_ID": "7", "SGE_ROOT": "/opt/sge"}, False),
        ({"JOB_ID": "mine"}, {"JOB_ID": "other"}, False),
        ({"JOB_ID": "7"}, SGE, True),
    ],
)
def test_whose_job_an_environment_is_of(own: dict[str, str], theirs: dict[str, str], spared: bool) -> None:
    """What is in another job is spared, what is in ours or in none is the session's."""
    entries = [f"{name}={value}".encode() for name, value in {"HOME": "/", **theirs, "A": "JOB_ID=9"}.items()] + [b""]
    ours = traces.own_job({name.encode(): value.encode() for name, value in own.items()})
    assert traces.is_in_another_job(entries, ours) is spared
    assert traces.is_in_another_job(entries[::-1], ours) is spared


def test_jobs_of_a_scheduler_of_the_sites_own(started: list[subprocess.Popen[bytes]]) -> None:
    mine = start(started, HANDWASH_SESSION=SESSION, JOBQ_ID="")
    submitted = start(started, HANDWASH_SESSION=SESSION, JOBQ_ID="7")
    orders = Orders(SESSION, 0.0, "", {})
    assert wait_until(lambda: {pid for pid, _ in Search(orders, set(), list).look()[0]} == {mine, submitted}, 5)
    orders.variables = (b"JOBQ_ID", b"JOBQ_NAME")
    assert {pid for pid, _ in Search(orders, set(), list).look()[0]} == {mine}


@pytest.mark.parametrize("variable", ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"])
def test_the_cookie_in_the_same_job_or_in_none(started: list[subprocess.Popen[bytes]], variable: str) -> None:
    mine = start(started, HANDWASH_SESSION=SESSION, SLURM_STEP_ID="1", **{variable: "42"})
    cleared = start(started, HANDWASH_SESSION=SESSION)
    submitted = start(started, HANDWASH_SESSION=SESSION, **{variable: "43"})
    other = start(started, HANDWASH_SESSION=SESSION + "0", **{variable: "42"})
    bystander = start(started, **{variable: "42"})
    own = {**traces.own_job({}), variable.encode(): b"42"}

    def found() -> set[int]:
        return {pid for pid, _began in with_cookie(SESSION, own)} & {mine, cleared, submitted, other, bystander}

    # The environment shows once exec is done.
    assert wait_until(lambda: found() == {mine, cleared}, 5)


def test_without_a_scheduler(started: list[subprocess.Popen[bytes]]) -> None:
    mine = start(started, HANDWASH_SESSION=SESSION)
    submitted = [
        start(started, HANDWASH_SESSION=SESSION, **{name: "43"}, SGE_TASK_ID="undefined")
        for name in ("SLURM_JOB_ID", "PBS_JOBID", "FLUX_JOB_ID", "JOB_ID")
    ]

    def found() -> set[int]:
        return {pid for pid, _began in with_cookie(SESSION, traces.own_job_here())}

    assert wait_until(lambda: mine in found(), 5)
    assert not found().intersection(submitted)


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
    monkeypatch.setattr(traces, "own_job_here", lambda _more: {b"SLURM_JOB_ID": b"42"})
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


def test_the_job_is_given_back_by_the_name_that_was_handed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The site's own scancel, before another one that is on PATH too, although the home directory no longer answers."""
    said = tmp_path / "said"
    for name in ("scancel", "jobs-stop"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "${{0##*/}} $*" >>{said}\n')
        (tmp_path / name).chmod(0o755)
    variables = {
        b"SLURM_JOB_ID": b"77",
        b"SLURMD_NODENAME": b"n1",
        b"SLURM_STEP_ID": b"0",
        b"SLURM_STEP_NUM_NODES": b"1",
    }
    monkeypatch.setattr(wire.posix, "environ", variables)
    monkeypatch.setattr(world, "env", {"PATH": str(tmp_path)})
    # Stands for a server that is gone: whoever reads the settings waits there for ever.
    monkeypatch.setattr(config, "load", lambda: pytest.fail("the settings were read"))
    one = guardian.Guardian(
        socket.socket(socket.AF_UNIX),
        Orders.unpack(Orders(SESSION, 0.0, "", {}, own=True, slurm_names="scancel=jobs-stop").pack()),
        0,
    )
    slurmstepd = subprocess.Popen(["sleep", "100"])
    one.slurmstepd = guardian.hold(slurmstepd.pid)
    slurmstepd.kill()
    slurmstepd.wait()
    try:
        one.release()
    finally:
        slurm_names.choose(None)
    assert said.read_text() == "jobs-stop 77\n"


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
