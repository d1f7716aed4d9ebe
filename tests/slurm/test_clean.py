"""`clean` on a real cluster: what an ended job has left goes, and nothing else does."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest
from tests.slurm.bystanders import bystanders
from tests.slurm.test_check import ask, batch, left_by_a_job
from tests.testbed import processes
from tests.testbed.cluster import Cluster
from tests.testbed.processes import identity, running, wait_until

pytestmark = pytest.mark.usefixtures("handwash_venv")


def test_what_an_ended_job_has_left_is_ended(cluster_linuxproc: Cluster) -> None:
    """Shown first, then ended, then nothing is left over; whoever stands by lives on."""
    cluster = cluster_linuxproc
    with bystanders(cluster), left_by_a_job(cluster) as (_job, sleepers):
        pids = sorted(who.pid for who in sleepers)
        code, answer = ask(cluster, "handwash", "clean", "--dry-run")
        assert code == 1 and sorted(one["pid"] for one in answer["would_end"]) == pids
        assert all(running(who) for who in sleepers)
        # Nobody answers the question: nothing is ended.
        done = cluster.run(["handwash", "clean"], user="alice")
        assert done.returncode == 1 and "--yes" in done.stderr and all(running(who) for who in sleepers)
        done = cluster.run(["handwash", "clean", "--yes"], user="alice")
        assert done.returncode == 0 and all(str(pid) in done.stdout for pid in pids), done
        assert not any(running(who) for who in sleepers)
        code, answer = ask(cluster, "handwash", "clean", "--yes")
        assert (code, answer["ended"]) == (0, [])
        assert ask(cluster, "handwash", "check")[0] == 0


def test_one_that_ignores_term(cluster_linuxproc: Cluster) -> None:
    """TERM, grace, KILL, and said which needed it."""
    cluster = cluster_linuxproc
    stubborn = "trap '' TERM; (exec -a deaf sleep 106.1) </dev/null >/dev/null 2>&1 & echo $!"
    pid = int(cluster.run(["srun", "bash", "-c", stubborn], user="alice", check=True).stdout)
    who = identity(pid)
    assert who
    try:
        assert cluster.wait_no_jobs(20)
        code, answer = ask(cluster, "handwash", "clean", "--yes", env={"HANDWASH_GRACE": "0.3"})
        assert (code, answer["left"]) == (0, []) and pid in answer["killed"] and pid in answer["ended"]
        assert not running(who)
    finally:
        processes.send(who, 9)


@pytest.mark.parametrize("name", ["sleep", "other"])
def test_one_that_starts_another(cluster_linuxproc: Cluster, name: str) -> None:
    """What appears meanwhile goes too where it is more of the same; another program is told, and ended when asked again."""
    cluster = cluster_linuxproc
    new = f"setsid bash -c 'exec -a {name} sleep 104.2' </dev/null >/dev/null 2>&1"
    agent = f'trap "{new} & exit" TERM; sleep 104.1 & wait'
    script = f"exec bash -c {shlex.quote(agent)} </dev/null >/dev/null 2>&1 & echo $!"
    pid = int(cluster.run(["srun", "bash", "-c", script], user="alice", check=True).stdout)
    try:
        assert cluster.wait_no_jobs(20)
        assert wait_until(lambda: len(cluster.processes("alice")) == 2, 10)
        code, answer = ask(cluster, "handwash", "clean", "--yes")
        assert pid in answer["ended"]
        if name == "sleep":
            assert code == 0 and len(answer["ended"]) == 3, answer
        else:
            (new_pid,) = cluster.processes("alice")
            assert code == 1 and answer["left"] == [{"pid": new_pid, "why": "new"}]
            assert ask(cluster, "handwash", "clean", "--yes")[0] == 0
        assert not cluster.processes("alice")
    finally:
        processes.end_all(lambda: cluster.processes("alice"))


def test_the_same_program_started_meanwhile(cluster_linuxproc: Cluster) -> None:
    """While one is being ended its owner starts another like it by hand: that is other work, and lives."""
    cluster = cluster_linuxproc
    ready = cluster.home("alice") / "ready"
    stubborn = f"trap '' TERM; touch {ready}; exec -a twin sleep 106.7"
    first = cluster.popen(["bash", "-c", stubborn], user="alice")
    second = None
    try:
        assert wait_until(ready.exists, 10) and wait_until(lambda: processes.arguments(first.pid)[:1] == ["twin"], 10)
        words = ["handwash", "clean", "--yes", str(first.pid)]
        clean = cluster.popen(words, user="alice", env={"HANDWASH_GRACE": "3"}, stdout=subprocess.DEVNULL)
        # TERM has been sent once it is pending or was ignored; the grace is long enough for another to appear.
        assert wait_until(lambda: len(cluster.processes("alice")) >= 2, 10)
        second = cluster.popen(["bash", "-c", "exec -a twin sleep 106.7"], user="alice")
        assert wait_until(lambda: processes.arguments(second.pid)[:1] == ["twin"], 10)
        assert clean.wait(30) == 0 and first.wait(10) == -9
        assert second.poll() is None
    finally:
        for child in (first, second):
            if child is not None:
                child.kill()
                child.wait()
        ready.unlink(missing_ok=True)


def test_into_a_closed_pipe(cluster_linuxproc: Cluster) -> None:
    """The reader goes away before the first line: what was agreed is done all the same."""
    cluster = cluster_linuxproc
    with left_by_a_job(cluster) as (_job, sleepers):
        line = "handwash clean --yes | true; exit ${PIPESTATUS[0]}"
        done = cluster.run(["bash", "-c", line], user="alice")
        assert (done.returncode, done.stderr) == (0, "") and not any(running(who) for who in sleepers)


def test_by_number(any_cluster: Cluster) -> None:
    """Other people's, process 1, the asking shell and one's own that is gone are refused; one's own is ended."""
    own = any_cluster.popen(["sleep", "105.1"], user="alice")
    others = any_cluster.popen(["sleep", "105.2"], user="bob")
    try:
        for pid in (others.pid, 1, os.getpid()):
            done = any_cluster.run(["handwash", "clean", "--yes", str(own.pid), str(pid)], user="alice")
            assert done.returncode == 1 and str(pid) in done.stderr, done
            assert own.poll() is None and others.poll() is None
        done = any_cluster.run(["bash", "-c", "handwash clean --yes $$; echo alive"], user="alice")
        assert done.stdout == "alive\n"
        # Root may not either.
        done = any_cluster.run(["handwash", "clean", "--yes", str(others.pid)])
        assert done.returncode == 1 and others.poll() is None
        done = any_cluster.run(["handwash", "clean", "--yes", str(own.pid)], user="alice")
        assert done.returncode == 0 and own.wait(10) == -15
        done = any_cluster.run(["handwash", "clean", "--yes", str(own.pid)], user="alice")
        assert done.returncode == 1
    finally:
        for child in (own, others):
            child.kill()
            child.wait()


def test_root_cleans_nothing_of_a_living_job(cluster: Cluster) -> None:
    """As root beside alice's job: her processes and Slurm's own stay, and the job runs on."""
    with batch(cluster, "-w", "n1") as job:
        before = [who for who in (identity(pid) for pid in cluster.processes("alice")) if who]
        steps = [
            who
            for pid in processes.pids()
            if processes.program(pid).startswith("slurmstepd")
            for who in [identity(pid)]
            if who
        ]
        # What root has on this machine beside the cluster is none of this test's business.
        done = cluster.run(["handwash", "clean", "--dry-run", "--json"])
        assert done.returncode in (0, 1), done
        for who in (*before, *steps):
            assert f'"pid": {who.pid},' not in done.stdout
        assert (job, "RUNNING") in [row[:2] for row in cluster.jobs()]


def test_twice_at_once(cluster_linuxproc: Cluster) -> None:
    """Two of them side by side: both end well, everything is gone."""
    cluster = cluster_linuxproc
    with left_by_a_job(cluster) as (_job, sleepers):
        both = [
            cluster.popen(["handwash", "clean", "--yes"], user="alice", stdout=subprocess.DEVNULL) for _ in range(2)
        ]
        assert [child.wait(30) for child in both] == [0, 0]
        assert wait_until(lambda: not any(running(who) for who in sleepers), 5)


def test_the_queue_does_not_answer(cluster_linuxproc: Cluster) -> None:
    """With no word on which jobs live, nothing that may belong to one is touched."""
    cluster = cluster_linuxproc
    with left_by_a_job(cluster) as (_job, sleepers):
        cluster.stop_controller()
        try:
            code, answer = ask(cluster, "handwash", "clean", "--yes", env={"HANDWASH_DEADLINE": "1"})
            assert (code, answer["ended"]) == (3, []) and all(running(who) for who in sleepers)
        finally:
            cluster.start_controller()
