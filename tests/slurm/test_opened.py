"""A real ssh session into a compute node, which no pam_slurm_adopt puts into a job: it is told when the job there is over.

The node is a name of the machine's own (UTS namespace) with an sshd in it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.shells.terminal import Terminal, until
from tests.slurm.person import Person, person
from tests.testbed.cluster import Cluster

pytestmark = pytest.mark.usefixtures("handwash_venv")
OUTLIVES = "This shell outlives your job "


class Node:
    """The host n1 of a cluster, with an sshd, for one person."""

    def __init__(self, somebody: Person, folder: Path) -> None:
        self.somebody = somebody
        self.folder = folder
        self.made_run = False
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        # Read as the person, who may not look into this folder.
        self.key = Path(shutil.copy(folder / "user.pub", somebody.home / "opened.pub"))
        self.key.chmod(0o644)
        # /etc/profile sets a PATH of its own.
        (somebody.home / ".bash_profile").write_text(f"export PATH={somebody.env['PATH']}\n. ~/.bashrc\n")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        # Of the account of a test user the password is locked, and with it, without PAM, every way in.
        user = somebody.cluster.account(somebody.user).pw_name
        rows = Path("/etc/shadow").read_text().splitlines()
        (folder / "shadow").write_text(
            "".join(f"{user}:*:19000:0:99999:7:::\n" if row.startswith(f"{user}:") else row + "\n" for row in rows)
        )
        set_env = " ".join(f'"{name}={somebody.env[name]}"' for name in ("SLURM_CONF", "LANG"))
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {self.key}\nStrictModes no\nPasswordAuthentication no\n"
            f"KbdInteractiveAuthentication no\nPrintMotd no\nPrintLastLog no\nSetEnv {set_env}\n"
        )
        if not Path("/run/sshd").exists():
            Path("/run/sshd").mkdir(mode=0o755)
            self.made_run = True
        sshd = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin")
        inside = f"hostname n1 && mount --bind {folder}/shadow /etc/shadow && exec {sshd} -D -e -f {folder}/sshd_config"
        with open(folder / "log", "wb") as log:
            self.sshd = subprocess.Popen(
                ["unshare", "--uts", "--mount", "--propagation", "private", "sh", "-c", inside],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        until(lambda: self._answers() or self.sshd.poll() is not None, "sshd does not listen")
        assert self.sshd.poll() is None, (folder / "log").read_text()

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def login(self) -> Terminal:
        """What `ssh n1` opens, with the hook in it."""
        entry = self.somebody.cluster.account(self.somebody.user)
        argv = [
            *("ssh", "-tt", "-F", "none", "-i", str(self.folder / "user"), "-p", str(self.port), "-o", "BatchMode=yes"),
            *("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"),
            f"{entry.pw_name}@127.0.0.1",
        ]
        terminal = Terminal(argv, {"TERM": "xterm", "PATH": "/usr/bin:/bin", "HOME": str(self.folder)})
        self.somebody.terminals.append(terminal)
        return terminal

    def stop(self) -> None:
        self.sshd.terminate()
        self.sshd.wait()
        self.key.unlink()
        if self.made_run:
            Path("/run/sshd").rmdir()


@pytest.fixture
def node(any_cluster: Cluster, tmp_path: Path) -> Iterator[Node]:
    path = os.environ["PATH"] + ":/usr/sbin"
    missing = [t for t in ("sshd", "ssh", "ssh-keygen", "unshare") if shutil.which(t, path=path) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)}: not installed")
    if subprocess.run(["unshare", "--uts", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no permission for a host name of one's own")
    with person(any_cluster) as somebody:
        one = Node(somebody, tmp_path)
        try:
            yield one
        finally:
            somebody.leaves()
            one.stop()


@contextmanager
def job_on_it(cluster: Cluster) -> Iterator[str]:
    """A batch job on n1, which runs, submitted from the login node; over at the end of the context."""
    done = cluster.run(
        ["sbatch", "--parsable", "-w", "n1", "-o", "/dev/null", "--wrap", "sleep 60"], user="alice", check=True
    )
    job = done.stdout.strip()
    until(
        lambda: cluster.run(["squeue", "-h", "-j", job, "-o", "%T"], user="alice").stdout == "RUNNING\n",
        "it does not run",
    )
    try:
        yield job
    finally:
        cluster.run(["scancel", job], user="alice", check=True)
        assert cluster.wait_no_jobs(20)


def test_it_is_told_when_the_job_is_over(node: Node) -> None:
    cluster = node.somebody.cluster
    with job_on_it(cluster) as job:
        terminal = node.login()
        assert "n1: compute node, but this shell is not inside a job of yours" in terminal.greeting
        assert OUTLIVES not in terminal.greeting + checked(terminal)
    for command in ("handwash check", "handwash", "handwash doctor", "bash -i -c 'handwash check'"):
        assert f"{OUTLIVES}{job}, which ran on this node" in terminal.run(command), command
    # There may be a reason to be here again.
    with job_on_it(cluster):
        assert OUTLIVES not in checked(terminal)
    assert f"{OUTLIVES}{job}," in checked(terminal)
    # Whoever comes when it is over does not outlive it.
    other = node.login()
    assert OUTLIVES not in other.greeting + checked(other)


def checked(terminal: Terminal) -> str:
    """What `handwash check` says."""
    said = terminal.run("handwash check")
    assert "n1: compute node" in said, said
    return said
