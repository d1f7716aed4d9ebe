"""`safe-srun --bcast`: sbcast copies the program in srun's place. What runs, what does not, and what is left when it fails.

That it does the same as srun is in `command_lines.txt`, that nothing is left in `test_shapes.py`.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.slurm.bystanders import bystanders
from tests.slurm.test_safe_srun import queue, receipt, safe
from tests.slurm.test_safe_srun_pty import Terminal
from tests.testbed import processes
from tests.testbed.cluster import Cluster
from tests.testbed.processes import wait_until

pytestmark = pytest.mark.usefixtures("handwash_venv")


@pytest.fixture
def folder(any_cluster: Cluster) -> Iterator[Path]:
    """alice's, with a program and a folder into which nobody may write."""
    path = any_cluster.home("alice") / "bcast"
    script = """
    mkdir bcast bcast/shut; chmod 500 bcast/shut; cd bcast
    printf '#!/bin/sh\\necho fresh\\n' >fresh; printf '#!/bin/sh\\necho stale; touch ran\\n' >stale; chmod 755 fresh stale
    """
    any_cluster.run(["bash", "-c", script], user="alice", cwd=path.parent, check=True)
    yield path
    any_cluster.run(["bash", "-c", "chmod 700 bcast/shut; rm -r bcast"], user="alice", cwd=path.parent, check=True)


def sessions(cluster: Cluster) -> list[dict]:
    """What safe-srun has written down, the newest first."""
    done = cluster.run(["handwash", "sessions", "--json"], user="alice")
    return json.loads(done.stdout)["items"]


def test_the_copy_runs_and_others_of_the_same_program_stay(any_cluster: Cluster, folder: Path) -> None:
    """The program itself, run by another job from where it was copied, goes on."""
    (folder / "nap").write_bytes(Path("/bin/sleep").read_bytes())
    (folder / "nap").chmod(0o755)
    with bystanders(any_cluster):
        other = any_cluster.popen(["srun", "-w", "n2", "./nap", "108.1"], user="alice", cwd=folder)
        assert wait_until(lambda: napping(any_cluster, "108.1"), 10)
        script = "safe-srun -w n2 --bcast=$PWD/copy bash -c 'cp $PWD/nap $PWD/n3; $PWD/n3 108.2 & ./nap 108.3 & exit 4'"
        done = any_cluster.run(["bash", "-c", script], user="alice", cwd=folder, env={"PWD": str(folder)})
        assert done.returncode == 4
        assert "2 processes ended; the job has left the queue" in receipt(done)
        assert not napping(any_cluster, "108.2") and not napping(any_cluster, "108.3")
        assert napping(any_cluster, "108.1")
        other.terminate()
        other.wait(20)


def napping(cluster: Cluster, nap: str) -> list[int]:
    """alice's sleepers of this length, srun itself left aside."""
    return [pid for pid in cluster.processes("alice") if processes.arguments(pid)[1:] == [nap]]


def test_what_cannot_be_copied_is_not_started(any_cluster: Cluster, folder: Path) -> None:
    """Nor what stands at the target from before; a job of srun's own is given back, and the record says so."""
    for target in ("shut/copy", "none/copy", "stale"):
        if target == "stale":
            (folder / "stale").chmod(0o555)
        done = safe(any_cluster, "-N2", f"--bcast={folder}/{target}", "./fresh", cwd=folder)
        assert done.returncode == 1 and done.stdout == ""
        assert f"srun: fatal: Failed to broadcast '{folder}/./fresh'. Step launch aborted.\n" in done.stderr
        assert "srun ended before it had started anything; the job" in receipt(done)
        assert "has left the queue" in receipt(done)
        assert queue(any_cluster) == [] and not (folder / "ran").exists()
        assert sessions(any_cluster)[0]["outcome"] == "clean"


def test_an_allocation_is_not_taken_away(any_cluster: Cluster, folder: Path) -> None:
    """Where srun has made a step only. As with plain srun that stays in the queue; nobody waits for it."""
    script = f"safe-srun --bcast={folder}/none/copy ./fresh; echo code $?; squeue -h -j $SLURM_JOB_ID -o %T"
    done = any_cluster.run(["salloc", "-Q", "bash", "-c", script], user="alice", cwd=folder)
    assert done.stdout == "code 1\nRUNNING\n"
    assert "srun ended before it had started anything" in receipt(done)
    assert sessions(any_cluster)[0]["outcome"] == "unconfirmed"


def test_sbcast_that_answers_0_and_has_failed(any_cluster: Cluster, folder: Path) -> None:
    """Its status is an error number of Slurm's, cut to eight bits. A warning is none."""
    stand_in(folder, "echo 'sbcast: error: REQUEST_FILE_BCAST(n1): No word' >&2")
    done = safe(any_cluster, f"--bcast={folder}/stale", "./fresh", cwd=folder, env=path_with(any_cluster, folder))
    assert (done.returncode, done.stdout) == (1, "")
    assert "\nsrun: error: REQUEST_FILE_BCAST(n1): No word\nsrun: fatal: " in f"\n{done.stderr}"
    stand_in(folder, "echo 'sbcast: error: Warning: odd' >&2")
    done = safe(any_cluster, f"--bcast={folder}/fresh", "./stale", cwd=folder, env=path_with(any_cluster, folder))
    assert (done.returncode, done.stdout) == (0, "fresh\n")
    assert done.stderr.startswith("srun: error: Warning: odd\n")


def stand_in(folder: Path, *lines: str) -> None:
    """A script in the place of sbcast."""
    (folder / "sbcast").write_text("\n".join(["#!/bin/sh", *lines, ""]))
    (folder / "sbcast").chmod(0o755)


def path_with(cluster: Cluster, folder: Path) -> dict[str, str]:
    """A folder before the rest of PATH."""
    return {"PATH": f"{folder}:{cluster.env('alice')['PATH']}"}


@pytest.mark.parametrize("victim", ["safe-srun", "srun"])
def test_killed_while_it_copies(any_cluster: Cluster, folder: Path, victim: str) -> None:
    """The job is given back, nothing is started, and the prolog, which fails long after, kills nobody."""
    stand_in(folder, 'echo $PPID >"$0.begun"', 'until [ -e "$0.go" ]; do sleep 0.02; done', "exit 1")
    env = path_with(any_cluster, folder)
    child = any_cluster.popen(["safe-srun", f"--bcast={folder}/copy", "./fresh"], user="alice", cwd=folder, env=env)
    begun = folder / "sbcast.begun"
    assert wait_until(lambda: begun.exists() and begun.read_text(), 20)
    srun = ancestor(int(begun.read_text()), "srun")
    os.kill(child.pid if victim == "safe-srun" else srun, signal.SIGKILL)
    child.wait(20)
    assert wait_until(lambda: queue(any_cluster) == [], 20)
    any_cluster.run(["touch", folder / "sbcast.go"], user="alice", check=True)
    assert wait_until(lambda: not any_cluster.processes("alice"), 20)
    assert not (folder / "copy").exists()


def ancestor(pid: int, name: str) -> int:
    """The nearest ancestor that runs this program."""
    while pid > 1 and processes.program(pid) != name:
        pid = processes.stat(pid).parent
    assert pid > 1
    return pid


def test_the_terminal_is_as_it_was(any_cluster: Cluster, folder: Path) -> None:
    """srun, which has set it for a job by then, is killed when the copy fails."""
    terminal = Terminal(any_cluster)
    try:
        before = terminal.run("stty -g")
        said = terminal.run(f"cd {folder}; safe-srun --pty --bcast={folder}/none/copy ./fresh; echo code=$?")
        assert "code=1" in said and "Step launch aborted." in said
        assert before.split("\n")[1] == terminal.run("stty -g").split("\n")[1]
    finally:
        terminal.close()
