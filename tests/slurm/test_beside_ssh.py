"""A person's other ssh logins on the node: whatever is ended, they are not, nor what runs in them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest
from tests.shells.terminal import Terminal
from tests.slurm.bystanders import napping
from tests.slurm.person import person
from tests.slurm.test_check import left_by_a_job
from tests.testbed import processes
from tests.testbed.cluster import Cluster
from tests.testbed.processes import Identity, identity, running, wait_until
from tests.testbed.sshd import Sshd

NAP = "103.7"
# An ssh login into the node of a job that is over by now keeps that job's variables.
STALE = "SLURM_JOB_ID=999999 SLURMD_NODENAME=n1"


class Logins:
    """alice's terminals by way of a real sshd."""

    def __init__(self, cluster: Cluster, sshd: Sshd) -> None:
        self.cluster = cluster
        self.sshd = sshd
        self.name = cluster.account("alice").pw_name
        self.terminals: list[Terminal] = []

    def open(self, *variables: str) -> Terminal:
        words = " ".join(("exec env TERM=xterm HANDWASH_BANNER=off PROMPT_COMMAND=", *variables, "bash -i"))
        path = self.cluster.env("alice")["PATH"]
        argv = self.sshd.ssh("-tt", f"{self.name}@127.0.0.1", f"PATH={path}; export PATH; {words}")
        terminal = Terminal([str(shutil.which("ssh")), *argv[1:]], {"PATH": "/usr/bin:/bin", "TERM": "xterm"})
        self.terminals.append(terminal)
        return terminal

    def close(self) -> None:
        for terminal in self.terminals:
            terminal.close()


@pytest.fixture
def logins(handwash_venv: object, cluster_linuxproc: Cluster) -> Iterator[Logins]:
    cluster = cluster_linuxproc
    folder = cluster.directory / "sshd"
    folder.mkdir(mode=0o755)
    # sshd takes the `!` of a new account for locked.
    subprocess.run(["usermod", "-p", "*", cluster.account("alice").pw_name], check=True)
    sshd = Sshd(folder, SLURM_CONF=cluster.env("alice")["SLURM_CONF"])
    try:
        with person(cluster):
            found = Logins(cluster, sshd)
            try:
                yield found
            finally:
                found.close()
                assert wait_until(lambda: not cluster.processes("alice"), 20)
    finally:
        sshd.stop()
        shutil.rmtree(folder)


@pytest.fixture
def others(logins: Logins) -> Iterator[list[Identity]]:
    """Two logins beside the one that cleans, one of which has outlived its job, each with something that runs: with their
    shells and their sshd, all alive afterwards, and they answer."""
    terminals = [logins.open(), logins.open(STALE)]
    for terminal in terminals:
        terminal.run(f"sleep {NAP} &")
    assert wait_until(lambda: len(napping(logins.cluster, "alice", NAP)) == 2, 10)
    people = [who for pid in logins.cluster.processes("alice") if (who := identity(pid))]
    names = sorted(processes.program(who.pid).partition("-")[0] for who in people)
    assert names == sorted(2 * ["bash", "sleep", "sshd"]), names
    yield people
    lost = [processes.describe(who.pid) for who in people if not running(who)]
    assert not lost, f"cut: {lost}"
    assert [terminal.run("echo still").strip() for terminal in terminals] == ["still", "still"]


def test_clean(logins: Logins, others: list[Identity]) -> None:
    """From one's own login, and from one that has outlived its job too."""
    for variables in ((), (STALE,)):
        terminal = logins.open(*variables)
        with left_by_a_job(logins.cluster) as (_job, sleepers):
            said = terminal.run("handwash clean --yes")
            assert terminal.status == 0 and "3 processes ended" in said, said
            assert not any(map(running, sleepers)) and all(map(running, others))
        assert terminal.run("echo here").strip() == "here"


def test_leave(logins: Logins, others: list[Identity]) -> None:
    """With what is left over being ended at exit: the connection ends by itself, with the shell's status."""
    for variables in ((), (STALE,)):
        terminal = logins.open("HANDWASH_ON_EXIT=clean", *variables)
        with left_by_a_job(logins.cluster) as (_job, sleepers):
            terminal.child.sendline("exit 3")
            assert terminal.ends() == 3
            assert "3 processes ended" in terminal.rest and not any(map(running, sleepers))
            assert all(map(running, others))


def test_the_teardown_of_a_session(logins: Logins, others: list[Identity]) -> None:
    """safe-srun, typed in a login, ends its own alone; and when the login goes with its terminal, too."""
    terminal = logins.open()
    said = terminal.run("safe-srun leaky.sh 4")
    assert terminal.status == 4 and "5 processes ended; the job has left the queue" in said, said
    terminal.child.sendline("safe-srun -n1 bash -c 'leaky.sh; exec sleep 103.8'")
    assert wait_until(lambda: napping(logins.cluster, "alice", "103.8"), 20)
    terminal.close()
    assert wait_until(lambda: set(logins.cluster.processes("alice")) == {who.pid for who in others}, 20)
    assert logins.cluster.wait_no_jobs(20)
