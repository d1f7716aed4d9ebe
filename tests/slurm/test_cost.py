"""What `handwash cost` says of a command line, beside what a real Slurm allocates for the very same one."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.testbed.cluster import Cluster
from tests.testbed.machine import Unavailable
from tests.testbed.processes import wait_until

pytestmark = pytest.mark.usefixtures("handwash_venv")

PARTITIONS = (
    "PartitionName=short Nodes=n1,n2 DefaultTime=10 MaxTime=60 State=UP",
    "PartitionName=capped Nodes=n1,n2 MaxTime=2:30:00 State=UP",
    "PartitionName=whole Nodes=n1,n2 OverSubscribe=EXCLUSIVE MaxTime=30 State=UP",
)
# A job that is cancelled before its script has begun takes that long to go.
QUICK = ("KillWait=2",)
# Options: each is submitted as it stands. Where Slurm may take fewer nodes than cost counts, that is marked.
LINES = (
    "--gres=gpu:1 -t 5",
    "--gres=gpu:a100:2 -t 1:30",
    "--gres=gpu -t 0:61",
    "--gpus=2 -t 1:00:01",
    "-G a100:1 -t 1-0:30",
    "-G1 -t 1-",
    "-N2 --gpus-per-node=1 -t 2-0",
    "-N2 --gpus-per-node=a100:2 -t 2-03:04:05",
    "-N2 --gres=gpu:1 -t 7",
    "-n2 --gpus-per-task=1 -t 7",
    "-N2 --gpus-per-task=1 -t 7",
    "-N2 --ntasks-per-node=2 --gpus-per-task=1 -t 7",
    "-n4 --ntasks-per-gpu=2 -t 7",
    "-N2 --gpus-per-socket=1 --sockets-per-node=1 -t 7",
    "-G3 -n3 -t 7",
    "-w n2 -N1 --gres=gpu:2 -t 7",
    "--nodelist=n[1-2] --gres=gpu:1 -t 7",
    "--tasks-per-node=1 -N2 --gres gpu:1 -t7",
    "--exclusive -t 7",
    "--exclusive --gres=gpu:1 -N2 -t 7",
    "--exclusive=user --gres=gpu:1 -t 7",
    "-p whole",
    "-p whole --gres=gpu:1 -t 7",
    "-p short --gres=gpu:1",
    "-p capped --gres=gpu:1",
    "-p capped,short --gres=gpu:1 -t 7",
    "--gres=gpu:1",
    "--gres=gpu:1 -t 0",
    "--gres=gpu:1 -t UNLIMITED",
    "-n3 -t 7",
    "--gres=none -t 7",
    "-n4 --ntasks-per-node=2 --gres=gpu:1 -t 7",
    "-w n[1-2] -n1 --gres=gpu:1 -t 7",
    "-N2 -n1 --gres=gpu:1 -t 7",
    "-w n[1-2] -m arbitrary --gres=gpu:1 -t 7",
    "-N2 --threads-per-core=1 --gpus-per-task=1 -t 7",
    "-N1 --sockets-per-node=2 --gpus-per-task=1 -t 7",
    "--exclusive -G3 -t 7",
    "--exclusive -s --gres=gpu:1 -t 7",
    "-G1 -t 7 : -G2 -t 8",
    "--gpus-per-socket=1 --sockets-per-node=2 -t 7 # at most",
    "-N1-2 --gres=gpu:1 -t 7 # at most",
    "-n4 --gres=gpu:1 -t 7 # at most",
    "-N1-2 --exclusive -t 7 # at most",
    "-N2 -B 1:1 --gpus-per-task=1 -t 7",
    "-B 2 --gpus-per-task=1 -t 7",
    "-N1 -B 2:*:1 --gpus-per-task=1 -t 7",
    "-N2 --ntasks-per-gpu=2 -t 7",
    "-N2 --ntasks-per-gpu=1 --sockets-per-node=2 -t 7",
    "-n4 --ntasks-per-gpu=2 --spread-job -t 7",
    "-N2 -w n1 -m arbitrary --gres=gpu:1 -t 7",
    "--spread-job --ntasks-per-gpu=2 --gres=gpu:1 -t 7 # at most",
)
SCRIPTS = {
    "quoting and comments": (
        '#SBATCH -J "a b" --gres=gpu:1 # --gres=gpu:2\n#SBATCH -t7 --comment=\\#x\n\nexec sleep 600\n#SBATCH -G4'
    ),
    "heterogeneous": "#SBATCH -G1 -t 7\n#SBATCH hetjob --gres=gpu:2\n#SBATCH -G2 -t 9\nexec sleep 600",
    "packjob": "#SBATCH -G1\n#SBATCH -t 7\n#SBATCH packjob\n#SBATCH -t 9\nexec sleep 600",
    "array": "#SBATCH -a 1-9:4,2%7\n#SBATCH --gres=gpu:1 -t 7\nexec sleep 600",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster with partitions of several kinds."""
    try:
        made = Cluster("linuxproc", settings=QUICK).start()
    except Unavailable as missing:
        pytest.skip(f"no test cluster: {missing}")
    with made:
        for line in PARTITIONS:
            made.run(["scontrol", "create", *line.split()], check=True)
        yield made


@pytest.fixture
def cluster_with_shards() -> Iterator[Cluster]:
    """A cluster whose nodes cut their two GPUs into eight shards."""
    try:
        made = Cluster("linuxproc", settings=QUICK).start()
    except Unavailable as missing:
        pytest.skip(f"no test cluster: {missing}")
    with made:
        made.stop_controller()
        for node in ("n1", "n2"):
            made.stop_slurmd(node)
        text = made.slurm_conf.read_text().replace("GresTypes=gpu", "GresTypes=gpu,shard")
        made.slurm_conf.write_text(text.replace("Gres=gpu:a100:2", "Gres=gpu:a100:2,shard:8"))
        with (made.directory / "gres.conf").open("a") as file:
            file.write("NodeName=n[1-2] Name=shard Count=8\n")
        made.start_controller()
        for node in ("n1", "n2"):
            made.start_slurmd(node)
        made.revive()
        yield made


def said(cluster: Cluster, *words: str, **options: Any) -> dict[str, Any]:
    done = cluster.run(["handwash", "cost", "--json", *words], user="alice", **options)
    assert done.stdout, done
    answer: dict[str, Any] = json.loads(done.stdout)
    assert not answer["unknown"], answer
    return answer


@contextmanager
def running(cluster: Cluster, *argv: str, **options: Any) -> Iterator[list[dict[str, str]]]:
    """Submits a job and gives scontrol's records of it, one for each component or task, once all of them run."""
    done = cluster.run(argv, user="alice", **options)
    number = re.search(r"^\d+|(?<=Granted job allocation )\d+", done.stdout + done.stderr)
    assert done.returncode == 0 and number, done
    try:
        assert wait_until(lambda: {row["JobState"] for row in records(cluster, number[0])} == {"RUNNING"}, 40), records(
            cluster, number[0]
        )
        yield records(cluster, number[0])
    finally:
        cluster.run(["scancel", number[0]])
        assert cluster.wait_no_jobs(40), cluster.jobs()


def records(cluster: Cluster, job: str) -> list[dict[str, str]]:
    text = cluster.run(["scontrol", "-d", "-o", "show", "job", job]).stdout
    return [dict(word.partition("=")[::2] for word in line.split(" ")) for line in text.splitlines()]


def gpus(record: dict[str, str]) -> int:
    """`JOB_GRES=gpu:a100:2` of a job that runs; it is missing where there is no resource."""
    return sum(int(item.rpartition(":")[2]) for item in record.get("JOB_GRES", "").split(",") if item.startswith("gpu"))


def seconds(record: dict[str, str]) -> int | None:
    text = record["TimeLimit"]
    # A job without a limit in a partition without one has a year (22.05), which is no limit to a person.
    if text in ("UNLIMITED", "365-00:00:00"):
        return None
    days, _dash, clock = text.rpartition("-")
    hours, minutes, rest = map(int, clock.split(":"))
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + rest


def compare(answer: dict[str, Any], found: list[dict[str, str]], exact: bool = True) -> None:
    held = sum(map(gpus, found))
    limits = [seconds(record) for record in found if gpus(record)]
    assert answer["gpus"] == held if exact else held <= answer["gpus"] <= 2 * held, (answer, held)
    assert answer["verdict"] == ("yes" if held else "no"), (answer, held)
    if not held:
        assert answer["max_gpu_hours"] == 0
    elif None in limits:
        assert answer["limit_s"] is None and answer["max_gpu_hours"] is None, (answer, limits)
    else:
        assert answer["limit_s"] == max(limits), (answer, limits)
        hours = sum(gpus(record) * (seconds(record) or 0) for record in found) / 3600
        if exact:
            assert answer["max_gpu_hours"] == pytest.approx(hours, abs=1e-5), (answer, hours)
        else:
            assert answer["max_gpu_hours"] >= hours - 1e-5, (answer, hours)


@pytest.mark.parametrize("line", LINES)
def test_a_command_line(cluster: Cluster, line: str) -> None:
    words = shlex.split(line, comments=True)
    answer = said(cluster, "--", "sbatch", *words, "--wrap", "exec sleep 600")
    with running(cluster, "sbatch", "--parsable", *words, "--wrap", "exec sleep 600") as found:
        compare(answer, found, exact="# at most" not in line)


# Where srun and salloc differ in how many tasks they make of it, it is no line for this.
@pytest.mark.parametrize("line", [line for line in LINES[::4] if "--sockets-per-node" not in line])
def test_salloc_and_srun_read_it_alike(cluster: Cluster, line: str) -> None:
    words = shlex.split(line, comments=True)
    with running(cluster, "salloc", "--no-shell", *words) as found:
        exact = "# at most" not in line
        compare(said(cluster, "--", "salloc", "--no-shell", *words), found, exact)
        compare(said(cluster, "--", "srun", *words, "sleep", "600"), found, exact)
        # A step in it adds nothing; the job's own rate is told.
        job = {"SLURM_JOB_ID": found[0]["JobId"]}
        step = said(cluster, "--", "srun", "--gres=gpu:2", "hostname", env=job)
        assert step["verdict"] == "no" and step["max_gpu_hours"] == 0
        assert found[0]["JobId"] in " ".join(step["why"])


@pytest.mark.parametrize(("name", "more"), [*((name, ()) for name in SCRIPTS), ("heterogeneous", ("-t", "11"))])
def test_a_script(cluster: Cluster, name: str, more: tuple[str, ...]) -> None:
    path = cluster.home("alice") / "job.sh"
    path.write_text("#!/bin/bash\n" + SCRIPTS[name] + "\n")
    path.chmod(0o644)
    answer = said(cluster, *(("--", "sbatch", *more) if more else ()), str(path))
    with running(cluster, "sbatch", "--parsable", *more, str(path)) as found:
        compare(answer, found)


def test_parts_of_a_gpu(cluster_with_shards: Cluster) -> None:
    """Shards, as sinfo names them on a node that has them: the part of a GPU that they are."""
    for words in (("--gres=shard:1",), ("-N2", "--gres=shard:3"), ("--gres=shard:a100:2",)):
        job = (*words, "-t", "60", "--wrap", "exec sleep 600")
        answer = said(cluster_with_shards, "--", "sbatch", *job)
        with running(cluster_with_shards, "sbatch", "--parsable", *job) as (record,):
            name, _colon, count = record["JOB_GRES"].rpartition(":")
            assert name.startswith("shard")
            # Eight on two GPUs.
            assert (answer["verdict"], answer["gpus"], answer["limit_s"]) == ("yes", int(count) / 4, seconds(record))
            assert answer["max_gpu_hours"] == int(count) / 4


def test_where_a_script_is_looked_for(cluster: Cluster) -> None:
    """In the working directory, in that of --chdir, and along the PATH."""
    folder = cluster.home("alice") / "folder"
    # Hers: the job writes its output there.
    cluster.run(["mkdir", "folder"], user="alice", check=True)
    (folder / "here.sh").write_text("#!/bin/sh\n#SBATCH -G1 -t 7\nexec sleep 600\n")
    folder.chmod(0o755)
    (folder / "here.sh").chmod(0o755)
    by_path = {"PATH": f"{folder}:{cluster.env('alice')['PATH']}"}
    options: list[tuple[tuple[str, ...], dict[str, Any]]] = [
        ((), {"cwd": folder}),
        ((), {"env": by_path}),
        (("-D", "folder"), {}),
    ]
    for words, place in options:
        answer = said(cluster, "--", "sbatch", *words, "here.sh", **place)
        with running(cluster, "sbatch", "--parsable", *words, "here.sh", **place) as found:
            compare(answer, found)
    words = ("sbatch", "-D", str(folder), "./here.sh")
    assert cluster.run(words, user="alice").returncode != 0
    assert cluster.run(["handwash", "cost", "--", *words], user="alice").returncode == 3


def test_the_environment(cluster: Cluster) -> None:
    """Its options are taken as the commands take them: above the script's, below the command line's."""
    env = {"SBATCH_GPUS": "2", "SBATCH_TIMELIMIT": "9", "SBATCH_EXCLUSIVE": "user"}
    words = ("-t", "7", "--wrap", "exec sleep 600")
    answer = said(cluster, "--", "sbatch", *words, env=env)
    with running(cluster, "sbatch", "--parsable", *words, env=env) as found:
        compare(answer, found)
        assert (answer["gpus"], answer["limit_s"]) == (2, 420)


def test_what_stands_behind_the_script_is_its_own(cluster: Cluster) -> None:
    """A colon and options there: sbatch submits all the same."""
    path = cluster.home("alice") / "own.sh"
    path.write_text("#!/bin/bash\nexec sleep 600\n")
    path.chmod(0o644)
    words = ("-G1", "-t", "7", str(path), ":", "--help")
    answer = said(cluster, "--", "sbatch", *words)
    with running(cluster, "sbatch", "--parsable", *words) as found:
        compare(answer, found)


def test_the_older_name_of_a_jobs_number(cluster: Cluster) -> None:
    """SLURM_JOBID alone makes no step: srun makes a job."""
    words = ("srun", "-G1", "-t", "7", "sleep", "600")
    env = {"SLURM_JOBID": "99999"}
    answer = said(cluster, "--", *words, env=env)
    child = cluster.popen([*words], user="alice", env=env)
    try:
        assert wait_until(lambda: any(job.state == "RUNNING" for job in cluster.jobs()), 20)
        (job,) = cluster.jobs()
        compare(answer, records(cluster, job.id))
    finally:
        cluster.run(["scancel", "--user", cluster.account("alice").pw_name])
        child.wait(40)
    assert cluster.wait_no_jobs(40)


def test_srun_itself(cluster: Cluster) -> None:
    """What srun makes, and what it does with the number of a job that is over."""
    env = {"SLURM_GPUS": "1", "SLURM_TIMELIMIT": "8", "SLURM_NTASKS": "2"}
    answer = said(cluster, "--", "srun", "-N1", "sleep", "600", env=env)
    child = cluster.popen(["srun", "-N1", "sleep", "600"], user="alice", env=env)
    try:
        assert wait_until(lambda: any(job.state == "RUNNING" for job in cluster.jobs()), 20)
        (job,) = cluster.jobs()
        compare(answer, records(cluster, job.id))
    finally:
        cluster.run(["scancel", "--user", cluster.account("alice").pw_name])
        child.wait(40)
    assert cluster.wait_no_jobs(40)
    gone = {"SLURM_JOB_ID": job.id}
    answer = said(cluster, "--", "srun", "--gres=gpu:1", "true", env=gone)
    assert answer["verdict"] == "no" and "not in your queue" in answer["why"][0]
    refused = cluster.run(["srun", "--gres=gpu:1", "true"], user="alice", env=gone)
    assert refused.returncode != 0 and cluster.jobs() == []


def test_a_limit_above_the_partitions(cluster: Cluster) -> None:
    """Slurm does not start it; cost says so."""
    answer = said(cluster, "--", "sbatch", "-p", "short", "-G1", "-t", "2:00:00", "--wrap", "true")
    assert "more than partition short allows (1:00:00)" in " ".join(answer["why"])
    done = cluster.run(["sbatch", "--parsable", "-p", "short", "-G1", "-t", "2:00:00", "--wrap", "true"], user="alice")
    if done.returncode == 0:
        try:
            (record,) = records(cluster, done.stdout.strip())
            assert record["JobState"] == "PENDING" and record["Reason"].startswith("Partition"), record
        finally:
            cluster.run(["scancel", done.stdout.strip()])
    assert cluster.wait_no_jobs(20)


def test_in_a_job_and_beside_it(cluster: Cluster) -> None:
    """A program in a job's shell costs no more than the job; a job that is made there does."""
    inside = ["srun", "-N1", "--gres=gpu:1", "handwash", "cost", "--json", "--"]
    for words, verdict in ((["python3", "train.py"], "no"), (["sbatch", "-G1", "-t5", "--wrap", "x"], "yes")):
        done = cluster.run([*inside, *words], user="alice")
        answer = json.loads(done.stdout)
        assert answer["verdict"] == verdict, done
        if verdict == "no":
            assert "holds 1 GPU" in " ".join(answer["why"]), answer
    assert cluster.wait_no_jobs(20)
