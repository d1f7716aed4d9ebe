"""`handwash usage` on a real cluster with slurmdbd: as many GPU-hours as sacct has, and a word where nobody has any."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
from tests.slurm.test_check import ask
from tests.testbed import accounting, processes, remains
from tests.testbed.cluster import Cluster
from tests.testbed.processes import wait_until

pytestmark = pytest.mark.usefixtures("handwash_venv")

# Nobody can use it as a separator, and no column can be cut by it.
NAME = "a|b\x1fc\nd\x1b[31m 训练"


def usage(cluster: Cluster, since: str = "24h", **options: Any) -> tuple[int, dict[str, Any]]:
    return ask(cluster, "handwash", "usage", "--since", since, **options)


def word(seconds: float) -> str:
    """A time for --since."""
    return datetime.fromtimestamp(int(seconds)).astimezone().isoformat()


def by_id(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["id"]: item for item in answer["items"]}


def submit(cluster: Cluster, *words: str, seconds: int = 200) -> str:
    """The number of a batch job that sleeps."""
    argv = ["sbatch", "--parsable", "-o", "/dev/null", *words, "--wrap", f"exec sleep {seconds}"]
    return cluster.run(argv, user="alice", check=True).stdout.strip()


def recorded(cluster: Cluster) -> dict[str, tuple[str, int, int]]:
    """State, GPUs and seconds of each run by sacct, in its plainest form: by job, and by their order in it."""
    columns = "--format=JobID,State,ElapsedRaw,AllocTRES"
    argv = ["sacct", "-X", "-D", "-n", "-P", columns, "-S", "now-1days", "-u", cluster.users[0]]
    found: dict[str, tuple[str, int, int]] = {}
    for line in cluster.run(argv, check=True).stdout.splitlines():
        job, state, seconds, tres = line.split("|")
        gpus = [int(entry[9:]) for entry in tres.split(",") if entry.startswith("gres/gpu=")]
        if int(seconds) or gpus:
            place = sum(1 for key in found if key.partition("/")[0] == job)
            found[f"{job}/{place}" if place else job] = (state.split()[0], sum(gpus), int(seconds))
    return found


def state_of(cluster: Cluster, job: str) -> str:
    argv = ["sacct", "-X", "-n", "-P", "--format=State", "-j", job]
    return cluster.run(argv, check=True).stdout.partition("\n")[0].split(" ")[0]


def until(cluster: Cluster, job: str, *states: str) -> None:
    """Waits until the accounting has the job in one of these states."""
    assert wait_until(lambda: state_of(cluster, job) in states, 30, 0.1), (job, state_of(cluster, job), cluster.logs())


def has_run_for(cluster: Cluster, job: str, seconds: int) -> None:
    assert wait_until(lambda: recorded(cluster).get(job, ("", 0, 0))[2] >= seconds, 30, 0.1), recorded(cluster)


@contextmanager
def running(cluster: Cluster, *words: str) -> Iterator[str]:
    """The number of a batch job that the accounting has as running."""
    job = submit(cluster, *words)
    try:
        until(cluster, job, "RUNNING")
        yield job
    finally:
        cluster.run(["scancel", job], user="alice")
        assert cluster.wait_no_jobs(30)


def test_every_kind_of_job(cluster_accounting: Cluster) -> None:
    """Ended, cancelled, an array, a heterogeneous one, one that ran twice, one without a GPU, one that runs: as by sacct."""
    cluster = cluster_accounting
    assert usage(cluster)[1]["gpu_hours"] == 0
    long = submit(cluster, "--gres=gpu:1", "-J", NAME)
    cancelled = submit(cluster, "--gpus=1")
    cluster.run(["srun", "--gres=gpu:1", "sleep", "2"], user="alice", check=True)
    cluster.run(["srun", "sleep", "1"], user="alice", check=True)
    has_run_for(cluster, cancelled, 1)
    cluster.run(["scancel", cancelled], user="alice", check=True)
    until(cluster, cancelled, "CANCELLED")
    array = submit(cluster, "--array=1-2", "--gpus-per-node=1", seconds=1)
    cluster.run(["srun", "--gres=gpu:1", ":", "--gres=gpu:1", "sleep", "1"], user="alice", check=True)
    twice = submit(cluster, "--requeue", "--gres=gpu:2", "-N1", "-w", "n2")
    has_run_for(cluster, twice, 1)
    cluster.run(["scontrol", "requeue", twice], check=True)
    # Its second run begins two minutes after the end of the first, unless it is told otherwise in between.
    argv = ["squeue", "-h", "-j", twice, "-o", "%T %r"]
    assert wait_until(lambda: cluster.run(argv).stdout == "PENDING BeginTime\n", 30, 0.1)
    # slurmd refuses a job of this number for the second in which one has ended.
    over = time.time()
    assert wait_until(lambda: time.time() > over + 3, 10)
    cluster.run(["scontrol", "update", f"JobId={twice}", "StartTime=now"], check=True)
    has_run_for(cluster, f"{twice}/1", 1)
    cluster.run(["scancel", twice], user="alice", check=True)
    until(cluster, twice, "CANCELLED")
    until(cluster, f"{array}_2", "COMPLETED")

    code, answer = usage(cluster)
    known = recorded(cluster)
    assert (code, answer["known"], answer["source"], answer["why"]) == (0, True, "sacct", None)
    items = [(one["id"], one["state"], one["gpus"], one["elapsed_s"]) for one in answer["items"]]
    expected = sorted((key.partition("/")[0], *values) for key, values in known.items() if key != long)
    assert sorted(item for item in items if item[0] != long) == expected
    # All but the one that asked for none; what was over within a second may have been given none yet.
    assert len(expected) >= 9 and sum(not item[2] for item in expected if item[3] > 1) <= 1
    assert {f"{array}_1", f"{array}_2", cancelled, twice} <= {item[0] for item in items}
    assert len([item for item in items if item[0] == twice]) == 2
    assert len([item for item in items if "+" in item[0]]) == 2
    # The running one comes first: it goes on costing.
    first = answer["items"][0]
    assert (first["id"], first["running"], first["ended"], first["name"]) == (long, True, None, NAME)
    assert 0 <= known[long][2] - first["elapsed_s"] <= 5
    hours = sum(gpus * seconds for _id, _state, gpus, seconds in items) / 3600
    assert answer["gpu_hours"] == pytest.approx(hours, abs=0.0001) and hours > 0
    assert answer["gpus_now"] == 1
    done = cluster.run(["handwash", "usage", "--since", "24h"], user="alice")
    assert done.returncode == 0 and "GPU-hours for each further hour: 1" in done.stdout and "\x1b" not in done.stdout
    # Other people's jobs are nobody else's.
    assert usage(cluster, user="bob")[1]["items"] == []
    cluster.run(["scancel", long], user="alice", check=True)
    assert cluster.wait_no_jobs(30)


def test_only_the_hours_since(cluster_accounting: Cluster) -> None:
    """Of a job that began before, the hours since then; what was over by then is not there; a time zone changes nothing."""
    cluster = cluster_accounting
    with running(cluster, "--gres=gpu:2", "-w", "n1") as job:
        cluster.run(["srun", "--gres=gpu:1", "true"], user="alice", check=True)
        has_run_for(cluster, job, 4)
        whole = by_id(usage(cluster)[1])[job]
        begun = datetime.fromisoformat(whole["started"]).timestamp()
        for zone in ("UTC0", "Asia/Shanghai"):
            code, answer = usage(cluster, word(begun + 3), env={"TZ": zone})
            assert code == 0 and datetime.fromisoformat(answer["since"]).timestamp() == begun + 3
            item = by_id(answer)[job]
            assert item["elapsed_s"] - item["counted_s"] == 3
            assert item["gpu_hours"] == pytest.approx(2 * item["counted_s"] / 3600, abs=0.0001)
            assert datetime.fromisoformat(item["started"]).timestamp() == begun


def test_suspended(cluster_accounting: Cluster) -> None:
    """Time in suspension does not count, neither while it lasts nor afterwards."""
    cluster = cluster_accounting
    with running(cluster, "--gres=gpu:1") as job:
        has_run_for(cluster, job, 2)
        cluster.run(["scontrol", "suspend", job], check=True)
        until(cluster, job, "SUSPENDED")
        time_then = time.time()
        before = by_id(usage(cluster)[1])[job]
        assert before["running"] and wait_until(lambda: time.time() > time_then + 3, 10)
        after = by_id(usage(cluster)[1])[job]
        assert after["elapsed_s"] - before["elapsed_s"] <= 1 and after["suspended_s"] >= before["suspended_s"] + 2
        # Began before, and asleep since: at least what it must have been.
        code, answer = usage(cluster, word(time_then + 1))
        assert code == 3 and job in answer["why"] and by_id(answer)[job]["exact"] is False
        cluster.run(["scontrol", "resume", job], check=True)
        until(cluster, job, "RUNNING")


def test_slurmdbd_does_not_answer(cluster_accounting: Cluster) -> None:
    """Said, with what the queue still shows: jobs that run, and those that ended a moment ago. Afterwards all is as before."""
    cluster = cluster_accounting
    with running(cluster, "--gres=gpu:1") as job:
        has_run_for(cluster, job, 1)
        code, whole = usage(cluster)
        assert code == 0
        accounting.stop_slurmdbd(cluster)
        try:
            started = time.monotonic()
            code, answer = usage(cluster, env={"HANDWASH_DEADLINE": "1"})
            assert time.monotonic() - started < 10 + 3
            assert (code, answer["known"], answer["source"]) == (3, False, "squeue") and "sacct" in answer["why"]
            # All of them ended less than five minutes ago; those that ended at once have cost nothing.
            costly = {item["id"] for item in whole["items"] if item["elapsed_s"]}
            assert {item["id"] for item in answer["items"]} == costly
            assert answer["gpu_hours"] == pytest.approx(whole["gpu_hours"], abs=0.02)
            assert by_id(answer)[job]["running"] and answer["gpus_now"] == 1
            done = cluster.run(["handwash", "usage"], user="alice", env={"HANDWASH_DEADLINE": "1"})
            assert done.returncode == 3 and "At least" in done.stdout
        finally:
            accounting.start_slurmdbd(cluster)
        assert wait_until(lambda: usage(cluster)[0] == 0, 30, 0.2)


def test_records_without_gpus(cluster_accounting: Cluster) -> None:
    """The site no longer tracks GPUs: jobs from now on have none on record, and the queue tells of them as long as it can."""
    cluster = cluster_accounting
    text = cluster.slurm_conf.read_text()
    assert "AccountingStorageTRES=gres/gpu\n" in text
    cluster.stop_controller()
    cluster.slurm_conf.write_text(text.replace("AccountingStorageTRES=gres/gpu\n", ""))
    cluster.start_controller()
    try:
        with running(cluster, "--gres=gpu:2", "-w", "n1") as job:
            has_run_for(cluster, job, 1)
            begun = datetime.fromisoformat(by_id(usage(cluster)[1])[job]["started"]).isoformat()
            code, answer = usage(cluster, begun)
            assert (code, answer["source"]) == (3, "squeue") and "AccountingStorageTRES" in answer["why"]
            assert by_id(answer)[job]["gpus"] == 2 and answer["gpu_hours"] > 0
            # Beside older jobs with GPUs on record.
            assert by_id(usage(cluster)[1])[job]["gpus"] == 2
    finally:
        cluster.stop_controller()
        cluster.slurm_conf.write_text(text)
        cluster.start_controller()


def test_without_accounting(any_cluster: Cluster) -> None:
    """Slurm's own words for it, and the jobs in the queue."""
    job = submit(any_cluster, "--gres=gpu:1")
    try:
        assert wait_until(lambda: usage(any_cluster)[1]["gpu_hours"], 30, 0.1)
        code, answer = usage(any_cluster)
        assert (code, answer["source"]) == (3, "squeue") and "accounting storage is disabled" in answer["why"]
        assert by_id(answer)[job]["gpus"] == 1
    finally:
        any_cluster.run(["scancel", job], user="alice")
        assert any_cluster.wait_no_jobs(30)


def test_the_database_ends_with_the_cluster(cluster_accounting: Cluster) -> None:
    """The test bed knows its own slurmdbd and database; no other process has a file of the cluster's database open."""
    found = remains.daemons(cluster_accounting.directory, accounting.DAEMONS)
    assert sorted(processes.program(pid) for pid in found) == ["mariadbd", "slurmdbd"]
