"""safe-srun where the queue or the disk does not answer as it should."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator

import pytest
from tests.testbed import processes
from tests.testbed.cluster import Cluster
from tests.testbed.processes import wait_until

pytestmark = pytest.mark.usefixtures("handwash_venv")


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
