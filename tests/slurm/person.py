"""A person of the test cluster at a terminal: bash with the installed hook, on the login node or inside a job."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.shells.terminal import BASH, Terminal, until
from tests.testbed.cluster import Cluster

PROGRAMS = Path(__file__).resolve().parents[1] / "testbed" / "programs"
QUESTION = r"\[s\] stay \(default\): "


class Person:
    """One of the cluster's users, with the hook in `.bashrc` as `handwash install` writes it."""

    def __init__(self, cluster: Cluster, user: str = "alice", **env: str) -> None:
        self.cluster = cluster
        self.user = user
        self.env = {
            **cluster.env(user),
            "TERM": "xterm",
            "HANDWASH_BANNER": "off",
            "HANDWASH_GRACE": "1",
            # Debian's /etc/bash.bashrc would set another prompt.
            "PROMPT_COMMAND": "",
            **env,
        }
        self.home = cluster.home(user)
        self.terminals: list[Terminal] = []
        (self.home / ".bashrc").write_text("PS1='[$?]> '\nunset HISTFILE\n")
        (self.home / ".inputrc").write_text("set enable-bracketed-paste off\nset bell-style none\n")
        for name in (".bashrc", ".inputrc"):
            shutil.chown(self.home / name, cluster.account(user).pw_uid)
        done = cluster.run(["handwash", "install", "--shell", "bash"], user=user)
        assert done.returncode == 0, done.stdout + done.stderr

    def opens(self, *argv: str, expect_prompt: bool = True, **env: str) -> Terminal:
        """A terminal, as ssh gives one, with bash or a command in it."""
        entry = self.cluster.account(self.user)
        identity = ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--init-groups"]
        words = argv or (BASH, "-i")
        terminal = Terminal([*identity, *words], {**self.env, **env}, cwd=str(self.home), expect_prompt=expect_prompt)
        self.terminals.append(terminal)
        return terminal

    def in_job(self, *launcher: str) -> tuple[Terminal, str]:
        """A terminal with `LAUNCHER --pty bash` in it, and the job's number."""
        terminal = self.opens()
        terminal.run(f"{' '.join(launcher)} --pty bash -i")
        job = re.search(r"job=(\d+)", terminal.run("echo job=$SLURM_JOB_ID"))
        assert job, "the shell is not in a job"
        return terminal, job.group(1)

    def holds_gpu(self, terminal: Terminal, *options: str) -> int:
        """Starts a process in the background that holds a GPU; its pid."""
        said = terminal.run(
            f"/usr/bin/python3 {PROGRAMS / 'hold_gpu.py'} {' '.join(options)} >ready 2>&1 & "
            "until grep -q ready ready; do :; done; rm ready; echo pid=$!"
        )
        found = re.search(r"pid=(\d+)", said)
        assert found, said
        return int(found.group(1))

    def leaves(self) -> None:
        for terminal in self.terminals:
            terminal.close()
        for path in (".bashrc", ".inputrc", ".local", ".bash_profile"):
            target = self.home / path
            shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)


@contextmanager
def person(cluster: Cluster, user: str = "alice", **env: str) -> Iterator[Person]:
    somebody = Person(cluster, user, **env)
    try:
        yield somebody
    finally:
        somebody.leaves()


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


__all__ = ["PROGRAMS", "QUESTION", "Person", "alive", "person", "until"]
