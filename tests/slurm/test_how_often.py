"""How often a real cluster's controller is asked: by a login, an exit, a clean, and a whole session of safe-srun."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.slurm.person import QUESTION, person
from tests.slurm.test_check import left_by_a_job
from tests.testbed.cluster import Cluster
from tests.testbed.processes import running, wait_until

pytestmark = pytest.mark.usefixtures("handwash_venv")

COMMANDS = ("squeue", "scontrol", "sinfo", "sacct", "sacctmgr", "scancel")


class Counted:
    """A folder first on the PATH in which each of Slurm's commands writes down that it was asked, and becomes the real one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "asked"
        folder.mkdir()
        for name in COMMANDS:
            (folder / name).write_text(f'#!/bin/sh\necho {name} >>{self.log}\nexec {shutil.which(name)} "$@"\n')
            (folder / name).chmod(0o755)
        self.forget()

    def forget(self) -> None:
        self.log.write_text("")
        self.log.chmod(0o666)

    def take(self) -> Counter[str]:
        """What was asked since the last time."""
        found = Counter(self.log.read_text().split())
        self.forget()
        return found


@pytest.fixture
def counted(cluster_linuxproc: Cluster) -> Iterator[Counted]:
    found = Counted(cluster_linuxproc.directory / "counted")
    # The site's settings are asked for once a day: here they are known.
    cluster_linuxproc.run(["handwash", "check"], user="alice", check=True)
    yield found
    shutil.rmtree(found.folder)


def path(cluster: Cluster, counted: Counted) -> str:
    return f"{counted.folder}:{cluster.env('alice')['PATH']}"


def test_a_login_and_an_exit(cluster_linuxproc: Cluster, counted: Counted) -> None:
    """One look each, with something left over and a question asked; none for a prompt, nor for the second exit in a row."""
    cluster = cluster_linuxproc
    with left_by_a_job(cluster), person(cluster, HANDWASH_BANNER="full", PATH=path(cluster, counted)) as alice:
        # A banner's look was the last one before the state folder went with the person before.
        cluster.run(["handwash", "check"], user="alice")
        counted.forget()
        terminal = alice.opens()
        assert counted.take() == {"squeue": 1}
        terminal.run("true")
        assert counted.take() == {}
        terminal.child.sendline("exit")
        terminal.child.expect(QUESTION)
        terminal.child.sendline("s")
        terminal.prompt()
        assert counted.take() == {"squeue": 1}
        terminal.child.sendline("exit")
        terminal.ends()
        assert counted.take() == {}


def test_clean(cluster_linuxproc: Cluster, counted: Counted) -> None:
    """One look at the queue, however long the ending takes."""
    cluster = cluster_linuxproc
    with left_by_a_job(cluster) as (_job, sleepers):
        done = cluster.run(["handwash", "clean", "--yes"], user="alice", env={"PATH": path(cluster, counted)})
        assert done.returncode == 0 and not any(map(running, sleepers))
        assert counted.take() == {"squeue": 1}


def test_a_session_of_safe_srun(cluster_linuxproc: Cluster, counted: Counted) -> None:
    """The job's GPUs are asked for once, at its start; then nothing until the command has ended; then whether it is gone."""
    cluster = cluster_linuxproc
    ready = cluster.home("alice") / "over"
    script = f"until [ -e {ready} ]; do sleep 0.05; done; leaky.sh 3"
    env = {"PATH": path(cluster, counted)}
    child = cluster.popen(["safe-srun", "--gres=gpu:1", "bash", "-c", script], user="alice", env=env)
    try:
        assert wait_until(counted.log.read_text, 20)
        assert not wait_until(lambda: counted.log.read_text() != "scontrol\n", 1.5)
        counted.forget()
        cluster.run(["touch", ready], user="alice", check=True)
        assert child.wait(30) == 3
        found = counted.take()
        # More than once where the job takes its time to leave.
        assert set(found) == {"squeue"} and found["squeue"] <= 4, found
    finally:
        cluster.run(["touch", ready], user="alice")
        child.wait(30)
        ready.unlink()
