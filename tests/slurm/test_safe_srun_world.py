"""safe-srun where the queue or the disk does not answer as it should."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from tests.slurm.test_check import ask
from tests.testbed import processes
from tests.testbed.cluster import Cluster
from tests.testbed.processes import wait_until

pytestmark = pytest.mark.usefixtures("handwash_venv")

ROOT = Path(__file__).resolve().parents[2]


def put_before(cluster: Cluster, program: str, script: str) -> dict[str, str]:
    """An environment in which safe-srun finds this script under the program's name."""
    folder = cluster.home("alice") / f"before-{program}"
    folder.mkdir(exist_ok=True)
    (folder / program).write_text(f"#!/bin/sh\n{script}\n")
    (folder / program).chmod(0o755)
    return {"PATH": f"{folder}:{cluster.env('alice')['PATH']}"}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exec sleep 60", "squeue did not answer in time"),
        ("exit 1", "squeue failed with exit code 1"),
        ("exit 0", "squeue printed nothing at all"),
        ("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 0", "Unable to contact"),
        ("printf '1:RUN\\033[31mNING\\n'", "could not be read"),
    ],
    ids=["hangs", "fails", "says-nothing", "error-with-exit-0", "escape-sequence"],
)
def test_squeue_that_cannot_be_believed(cluster_pgid: Cluster, script: str, said: str) -> None:
    """The command's code and the teardown are the same, the receipt says that it could not tell, in bounded time."""
    begun = time.monotonic()
    done = cluster_pgid.run(
        ["safe-srun", "leaky.sh", "4"], user="alice", env=put_before(cluster_pgid, "squeue", script)
    )
    assert time.monotonic() - begun < 20
    assert done.returncode == 4
    assert not [line for line in done.stdout.splitlines() if processes.identity(int(line.split()[1]))]
    assert "could not tell whether the job has left the queue" in done.stderr
    assert said in done.stderr and "\033" not in done.stderr
    assert "has left the queue;" not in done.stderr
    assert cluster_pgid.wait_no_jobs()


# What a person may have set for their own use of these commands: filters, formats, questions, other clusters.
HOSTILE = {
    "SQUEUE_FORMAT": "%j",
    "SQUEUE_FORMAT2": "name",
    "SQUEUE_STATES": "CD",
    "SQUEUE_PARTITION": "none",
    "SQUEUE_USERS": "root",
    "SQUEUE_NAMES": "none",
    "SQUEUE_SORT": "x",
    "SQUEUE_CLUSTERS": "none",
    "SINFO_FORMAT": "%P",
    "SINFO_PARTITION": "none",
    "SINFO_SORT": "x",
    "SCONTROL_ALL": "1",
    "SCONTROL_FEDERATION": "1",
    "SCANCEL_STATE": "PENDING",
    "SCANCEL_INTERACTIVE": "1",
    "SCANCEL_NAME": "none",
    "SCANCEL_USER": "root",
    "SCANCEL_PARTITION": "none",
    "SLURM_TIME_FORMAT": "relative",
    "SLURM_BITSTR_LEN": "1",
}


def test_a_persons_own_settings_of_slurms_commands(cluster_pgid: Cluster) -> None:
    """Each call has an environment of its own: safe-srun's confirmation, its scancel, doctor, and clean on all nodes.

    The commands themselves keep what the person has set.
    """
    env = HOSTILE
    assert cluster_pgid.run(["squeue", "-h"], user="alice", env=env).stderr, "these settings break nothing"
    done = cluster_pgid.run(["safe-srun", "--gres=gpu:1", "bash", "-c", "leaky.sh 4; code=$?; env; exit $code"],
                            user="alice", env=env)  # fmt: skip
    assert done.returncode == 4 and {f"{name}={value}" for name, value in env.items()} <= set(done.stdout.split("\n"))
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("handwash: ")]
    assert "5 processes ended; the job has left the queue; 0.00" in said and "(1 × " in said

    killed = put_before(cluster_pgid, "srun", f"{KILLED}kill -KILL $$")
    done = cluster_pgid.run(["safe-srun", "true"], user="alice", env={**env, **killed})
    assert "the job was cancelled and has left the queue" in done.stderr and cluster_pgid.jobs() == []

    # SLURM_CLUSTERS is srun's own too, which would ask the accounting for that cluster.
    env = {**env, "SLURM_CLUSTERS": "none"}
    code, answer = ask(cluster_pgid, "handwash", "doctor", env=env)
    assert code == 0 and answer["unknown"] == [], answer
    assert [(one["name"], one["gpus"]) for one in answer["partitions"]] == [("main", 4)]
    assert "login-node" in {one["id"] for one in answer["findings"]}
    quoted = " ".join(f"{name}='{value}'" for name, value in env.items())
    script = f"srun -N1 -n1 -w n1 --overlap env {quoted} handwash clean --all-nodes --dry-run --json"
    done = cluster_pgid.run(["salloc", "-Q", "-N2", "bash", "-c", script], user="alice")
    (node,) = json.loads(done.stdout)["nodes"]
    assert (done.returncode, node["node"], node["known"]) == (0, "n2", True), done


@pytest.fixture
def impatient(cluster_pgid: Cluster) -> Iterator[Path]:
    """A copy of handwash that waits three seconds for a job to leave the queue, in place of thirty."""
    folder = cluster_pgid.directory / "impatient"
    for name in ("src/handwash", "wrappers"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "src/handwash/srun/confirm.py"
    text = path.read_text()
    assert "\nPATIENCE = 30.0\n" in text
    path.write_text(text.replace("\nPATIENCE = 30.0\n", "\nPATIENCE = 3.0\n"))
    yield folder
    shutil.rmtree(folder)


def completing(cluster: Cluster) -> tuple[dict[str, str], Path]:
    """An environment in which a job that is asked for by its number stays COMPLETING, and the file with the time of each
    question."""
    log = cluster.home("alice") / "asked"
    log.unlink(missing_ok=True)
    script = (
        f'for word do [ "$last" != -j ] || number=$word; last=$word; done\n'
        f'[ -n "$number" ] || exec {shutil.which("squeue")} "$@"\n'
        f"date +%s.%N >>{log}; echo JOBID:STATE; echo $number:COMPLETING"
    )
    env = put_before(cluster, "squeue", script)
    scancel = put_before(cluster, "scancel", f'echo scancel "$@" >>{log}; exec {shutil.which("scancel")} "$@"')
    first = scancel["PATH"].partition(":")[0]
    return {"PATH": f"{first}:{env['PATH']}"}, log


def test_a_job_that_stays_in_cg(cluster_pgid: Cluster, impatient: Path) -> None:
    """Waited for, ever more seldom, and said to be there: never called gone, nor cancelled once more."""
    env, log = completing(cluster_pgid)
    done = cluster_pgid.run([impatient / "wrappers/safe-srun", "leaky.sh", "4"], user="alice", env=env)
    assert done.returncode == 4
    said = done.stderr.splitlines()[-1]
    number = said.partition("handwash: job ")[2].partition(":")[0]
    assert f"5 processes ended; the job is still in the queue (COMPLETING): try `scancel {number}`" in said
    times = [float(line) for line in log.read_text().splitlines()]
    pauses = [later - earlier for earlier, later in zip(times, times[1:])]
    assert len(times) <= 8 and times[-1] - times[0] > 2.5 and max(pauses) > 3 * min(pauses), pauses
    items = json.loads(cluster_pgid.run(["handwash", "sessions", "--json"], user="alice").stdout)["items"]
    assert (items[0]["job"], items[0]["outcome"]) == (number, "unconfirmed")
    assert cluster_pgid.wait_no_jobs()


def test_a_cancelled_job_that_stays_in_cg(cluster_pgid: Cluster, impatient: Path, handwash_venv: Path) -> None:
    """`clean` cancels it after a yes, waits, and says that it is still there."""
    made = cluster_pgid.run(["salloc", "--no-shell", "--gres=gpu:1"], user="alice", check=True)
    job = made.stderr.split("job allocation ")[1].split()[0]
    env, log = completing(cluster_pgid)
    main = [f"{handwash_venv}/bin/python", "-I", "-S", f"{impatient}/src/handwash/__main__.py", "clean"]
    shell = pexpect.spawn(
        main[0], main[1:], env={**cluster_pgid.env("alice"), **env, "TERM": "dumb"}, encoding="utf-8", timeout=20,
        preexec_fn=cluster_pgid.become("alice"),
    )  # fmt: skip
    try:
        shell.expect(rf"Job {job} .* Cancel it\? \[y/N\] ")
        shell.sendline("y")
        shell.expect(pexpect.EOF)
    finally:
        shell.close(force=True)
    assert f"Job {job} is still in the queue: squeue -j {job}" in shell.before and "has left" not in shell.before
    lines = log.read_text().splitlines()
    assert lines[0] == f"scancel {job}" and not [line for line in lines[1:] if "scancel" in line]
    assert len(lines) <= 9
    assert cluster_pgid.wait_no_jobs()


@pytest.fixture
def no_state(cluster_pgid: Cluster) -> Iterator[None]:
    home = cluster_pgid.home("alice")
    kept = home / ".local-kept"
    if (home / ".local").exists():
        (home / ".local").rename(kept)
    (home / ".local").write_text("in the way")
    yield
    (home / ".local").unlink()
    if kept.exists():
        kept.rename(home / ".local")


def test_a_state_folder_that_cannot_be_written_costs_the_record_only(cluster_pgid: Cluster, no_state: None) -> None:
    """Teardown and exit code are the same; without the nodes' words nothing is called confirmed."""
    done = cluster_pgid.run(["safe-srun", "leaky.sh", "4"], user="alice")
    assert done.returncode == 4
    assert not [line for line in done.stdout.splitlines() if processes.identity(int(line.split()[1]))]
    assert "no word from 1 node" in done.stderr and "nothing was left" not in done.stderr
    assert "the job has left the queue" in done.stderr


@pytest.mark.parametrize("manner", ['exec safe-srun "$@"', 'safe-srun "$@"; exit $?'], ids=["exec", "child"])
@pytest.mark.parametrize("name", ["srun", "safe-srun"])
def test_a_site_that_calls_safe_srun_srun(cluster_pgid: Cluster, manner: str, name: str) -> None:
    """A script `srun` before the real one that starts safe-srun: one session, one receipt, nothing left, the command's own
    environment, whichever of the two names was typed."""
    env = put_before(cluster_pgid, "srun", manner)
    done = cluster_pgid.run([name, "bash", "-c", "leaky.sh 4; code=$?; env; exit $code"], user="alice", env=env)
    assert done.returncode == 4, done.stderr
    left = [line.split()[1] for line in done.stdout.splitlines() if line.split()[1:2] and line.split()[1].isdigit()]
    assert len(left) >= 3 and not [pid for pid in left if processes.identity(int(pid))]
    assert done.stderr.count("the job has left the queue") == 1
    assert "HANDWASH_SRUN=" not in done.stdout and "HANDWASH_SESSION=" in done.stdout


KILLED = "salloc --quiet --no-shell -J true -n1 -w n1 --overcommit; "


@pytest.mark.parametrize("safe_srun_too", [False, True], ids=["srun", "srun-and-safe-srun"])
def test_srun_killed_between_its_allocation_and_its_launch(cluster_pgid: Cluster, safe_srun_too: bool) -> None:
    """Its job is found and given back; another one of the same name, from another session, stays."""
    made = [*KILLED.rstrip("; ").split()]
    cluster_pgid.run(made, user="alice", check=True)
    (bystander,) = cluster_pgid.jobs()
    also = "kill -KILL $PPID; " if safe_srun_too else ""
    env = put_before(cluster_pgid, "srun", f"{KILLED}{also}kill -KILL $$")
    done = cluster_pgid.run(["safe-srun", "true"], user="alice", env=env)
    assert done.returncode in (137, -9)
    if not safe_srun_too:
        assert "srun ended before it had started anything; the job was cancelled and has left the queue" in done.stderr
    assert wait_until(lambda: [row.id for row in cluster_pgid.jobs()] == [bystander.id], 20)

    def outcome() -> str:
        said = cluster_pgid.run(["handwash", "sessions", "--json"], user="alice").stdout
        return str(json.loads(said)["items"][0]["outcome"])

    assert wait_until(lambda: outcome() == "clean", 20)
    cluster_pgid.run(["scancel", bystander.id], user="alice")
    assert cluster_pgid.wait_no_jobs()


@pytest.mark.parametrize(
    "more",
    [KILLED, "env -u SLURM_PROLOG srun.real -J true -n1 -w n1 --overcommit sleep 60 >srun.log 2>&1 & sleep 1; "],
    ids=["two", "attended"],
)
def test_a_job_that_may_be_somebody_elses_is_left_alone(cluster_pgid: Cluster, more: str) -> None:
    """Two that could be it, or one in which a living srun may sit: nothing is cancelled, and the receipt says so."""
    real = shutil.which("srun")
    first = more if "srun.real" in more else KILLED + more
    env = put_before(cluster_pgid, "srun", f"{first.replace('srun.real', str(real))}kill -KILL $$")
    done = cluster_pgid.run(["safe-srun", "true"], user="alice", env=env)
    assert "could not tell which job this was" in done.stderr and "has left" not in done.stderr
    rows = cluster_pgid.jobs()
    assert len(rows) == (1 if "srun.real" in more else 2) and {row.state for row in rows} == {"RUNNING"}
    cluster_pgid.run(["scancel", *(row.id for row in rows)], user="alice")
    assert cluster_pgid.wait_no_jobs()


# Kills each guardian that it sees, as long as there are new ones: the process of handwash that is init's child.
KILLS = """
import os, time
calm = 0
while calm < 10:
    calm += 1
    for name in os.listdir("/proc"):
        try:
            words = open(f"/proc/{name}/cmdline", "rb").read()
            stat = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()
        except OSError:
            continue
        if b"/node/task.py" in words and stat[1] == "1" and os.stat(f"/proc/{name}").st_uid == os.getuid():
            os.kill(int(name), 9)
            calm = 0
    time.sleep(0.05)
"""


def test_a_last_word_though_guardians_were_killed_in_a_row(cluster_pgid: Cluster) -> None:
    """Too many of them are given up for the time; at the end another one is made."""
    program = cluster_pgid.home("alice") / "kills.py"
    program.write_text(KILLS)
    begun = time.monotonic()
    done = cluster_pgid.run(["safe-srun", "/usr/bin/python3", str(program)], user="alice")
    assert done.returncode == 0
    assert "nothing was left running; the job has left the queue" in done.stderr
    assert time.monotonic() - begun < 10
