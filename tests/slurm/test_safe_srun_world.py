"""safe-srun where the queue or the disk does not answer as it should."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.testbed import processes
from tests.testbed.cluster import Cluster

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
