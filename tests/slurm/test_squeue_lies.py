"""A scheduler that does not answer, or not the truth: right or "could not tell", within the deadline."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.slurm.test_check import ask, batch, left_by_a_job
from tests.testbed.cluster import Cluster
from tests.testbed.processes import wait_until

pytestmark = pytest.mark.usefixtures("handwash_venv")

DEADLINE = 0.8
# Starting the interpreter, rendering, a busy machine with two cores.
LATE = 1.5

LIARS = {
    "hangs": "exec sleep 100",
    "hangs and ignores TERM": "trap '' TERM HUP INT; sleep 100 & wait; sleep 100",
    "hangs in a child that holds the output": "sleep 100 & exit 0",
    "exits 1": "exit 1",
    "exits 1 with an answer": '/usr/bin/squeue "$@"; exit 1',
    "an error with exit code 0": "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2",
    "an error on standard output": "echo 'slurm_load_jobs error: Unable to contact slurm controller'",
    "an answer and a complaint": '/usr/bin/squeue "$@"; echo "squeue: error: something" >&2',
    "breaks off": "printf '12345\\03712345\\037RUNNING\\0371'",
    "garbage": "head -c 4096 /dev/urandom",
    "one hundred megabytes": "head -c 100000000 /dev/zero",
    "endless": "exec yes 12345",
    "floods standard error": "yes >&2",
    "dies": "kill -SEGV $$",
    "empty JSON": 'echo \'{"jobs": [], "errors": ["no controller"]}\'',
}


@pytest.mark.parametrize("liar", LIARS)
def test_a_liar(any_cluster: Cluster, liar: str) -> None:
    """Exit code 3, the verdict unknown, the other looks taken, and no process of the liar's left."""
    folder = any_cluster.directory / "liars"
    folder.mkdir(exist_ok=True)
    program = folder / "squeue"
    program.write_text(f"#!/bin/bash\n{LIARS[liar]}\n")
    program.chmod(0o755)
    path = f"{folder}:{any_cluster.env('alice')['PATH']}"
    env = {"PATH": path, "HANDWASH_DEADLINE": str(DEADLINE)}
    started = time.monotonic()
    code, answer = ask(any_cluster, "handwash", "check", env=env)
    assert time.monotonic() - started < DEADLINE + LATE
    assert (code, answer["verdict"], answer["jobs"]["known"]) == (3, "unknown", False), answer["jobs"]
    assert answer["jobs"]["why"] and answer["jobs"]["items"] == []
    assert answer["processes"]["known"]
    assert wait_until(lambda: not any_cluster.processes("alice"), 5)


def test_no_controller(any_cluster: Cluster) -> None:
    """With slurmctld stopped: could not tell, in time, in Slurm's words where they came in time."""
    with batch(any_cluster) as job:
        any_cluster.stop_controller()
        try:
            started = time.monotonic()
            code, answer = ask(any_cluster, "handwash", "check", env={"HANDWASH_DEADLINE": str(DEADLINE)})
            assert time.monotonic() - started < DEADLINE + LATE
            assert (code, answer["verdict"]) == (3, "unknown")
            assert "whose" not in answer["jobs"] and answer["jobs"]["known"] is False
            # Its processes may belong to a living job, and are not called left over.
            found = [item for item in answer["processes"]["items"] if item["job"] == job]
            assert found and {(item["whose"], item["fate"]) for item in found} == {("living-job", "unknown")}
        finally:
            any_cluster.start_controller()
        assert ask(any_cluster, "handwash", "check")[0] == 0


def test_a_configuration_that_is_not_there(any_cluster: Cluster, tmp_path: Path) -> None:
    """SLURM_CONF names nothing: squeue fails in its own way, and that is not an empty queue."""
    env = {"SLURM_CONF": str(tmp_path / "none"), "HANDWASH_DEADLINE": str(DEADLINE)}
    started = time.monotonic()
    assert ask(any_cluster, "handwash", "check", env=env)[0] == 3
    assert time.monotonic() - started < DEADLINE + LATE


def test_a_squeue_that_lies_hides_nothing_found_before(cluster_linuxproc: Cluster) -> None:
    """What an ended job has left is not left over as long as nobody says that the job has ended; afterwards it is."""
    with left_by_a_job(cluster_linuxproc) as (_job, sleepers):
        cluster_linuxproc.stop_controller()
        try:
            code, answer = ask(cluster_linuxproc, "handwash", "check", env={"HANDWASH_DEADLINE": str(DEADLINE)})
            assert code == 3 and not [item for item in answer["processes"]["items"] if item["leftover"]]
        finally:
            cluster_linuxproc.start_controller()
        code, answer = ask(cluster_linuxproc, "handwash", "check")
        assert code == 1 and len([item for item in answer["processes"]["items"] if item["leftover"]]) == len(sleepers)
