"""Whoever of the chain is killed, nothing of the session stays, and nobody else is touched."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.slurm.bystanders import bystanders
from tests.testbed import processes
from tests.testbed.cluster import Cluster
from tests.testbed.processes import wait_until

from handwash.teardown import identity, tree

pytestmark = pytest.mark.usefixtures("handwash_venv")

# Six escapees, one of which ignores TERM, below a script that goes on.
SCRIPT = (
    "leaky.sh; (trap '' TERM; exec setsid sleep 110.6 >/dev/null 2>&1) & pid=$!; "
    "for _ in {1..200}; do read -r name </proc/$pid/comm; [ $name != sleep ] || break; sleep 0.02; done; "
    "echo up; sleep 110.7"
)
ESCAPEES = [f"110.{number}" for number in range(1, 8)]


@pytest.fixture(autouse=True)
def everybody_else_survives(cluster: Cluster, handwash_venv: Path) -> Iterator[None]:
    with bystanders(cluster):
        yield


class Session:
    """A running safe-srun with its processes by name."""

    def __init__(self, cluster: Cluster, **env: str) -> None:
        self.cluster = cluster
        self.child = cluster.popen(
            ["safe-srun", "-w", "n1", "bash", "-c", SCRIPT], user="alice", stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={"HANDWASH_GRACE": "1", **env},
        )  # fmt: skip
        assert self.child.stdout is not None
        for line in self.child.stdout:
            if line == "up\n":
                break
        assert wait_until(lambda: len(self.escapees()) == len(ESCAPEES), 10)
        safe = self.child.pid
        tasks = self.by_script("task.py")
        self.members = {
            "safe-srun": [safe],
            "srun": [pid for pid in tree.children(safe) or [] if processes.program(pid) == "srun"],
            "keeper": [pid for pid in self.by_script("entry.py") if pid != safe],
            "guardian": self.guardians(),
            "outer": [pid for pid in tasks if identity.read(pid).ppid not in (1, *tasks)],
            "inner": [pid for pid in tasks if identity.read(pid).ppid in tasks],
        }
        assert all(len(pids) == 1 for pids in self.members.values()), self.members

    def by_script(self, name: str) -> list[int]:
        return [
            pid
            for pid in self.cluster.processes("alice")
            if any(word.endswith(f"/handwash/srun/{name}") for word in processes.arguments(pid)[:5])
            and processes.program(pid) != "srun"
        ]

    def guardians(self) -> list[int]:
        return [pid for pid in self.by_script("task.py") if (who := identity.read(pid)) and who.alive and who.ppid == 1]

    def escapees(self) -> list[int]:
        return [pid for pid in self.cluster.processes("alice") if set(processes.arguments(pid)[1:2]) & set(ESCAPEES)]

    def kill(self, *names: str) -> None:
        for name in names:
            for pid in self.members[name]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def is_over(self, limit: float = 25.0) -> None:
        """Nothing of it runs, and its job has left the queue."""
        assert wait_until(lambda: not self.escapees(), limit)
        _out, self.errors = self.child.communicate(timeout=40)
        ours = [*self.by_script("task.py"), *self.by_script("entry.py")]
        assert wait_until(lambda: not [pid for pid in ours if processes.identity(pid)], 15)
        assert wait_until(lambda: [row.name for row in self.cluster.jobs()] == ["bystander"], 15)

    def outcome(self) -> str:
        done = self.cluster.run(["handwash", "sessions", "--json"], user="alice")
        return json.loads(done.stdout)["items"][0]["outcome"]


@pytest.mark.parametrize(
    "names",
    [
        ("safe-srun",),
        ("srun",),
        ("safe-srun", "srun"),
        ("outer",),
        ("inner",),
        ("outer", "inner"),
        ("outer", "inner", "safe-srun"),
    ],
    ids="+".join,
)
def test_killed(cluster: Cluster, names: tuple[str, ...]) -> None:
    session = Session(cluster)
    session.kill(*names)
    session.is_over()
    assert session.child.returncode in (137, -signal.SIGKILL)
    assert session.outcome() == "clean"
    if "safe-srun" not in names:
        assert "the job has left the queue" in session.errors or "the job was cancelled" in session.errors


@pytest.mark.parametrize("name", ["keeper", "guardian"])
def test_a_watcher_killed_changes_nothing_while_the_others_live(cluster: Cluster, name: str) -> None:
    """The command goes on, and the end is as clean as ever: another guardian has taken the place of the dead one."""
    session = Session(cluster)
    session.kill(name)
    if name == "guardian":
        assert wait_until(lambda: set(session.guardians()) - set(session.members["guardian"]), 10)
    sleeper = next(pid for pid in session.escapees() if processes.arguments(pid)[1] == "110.7")
    os.kill(sleeper, signal.SIGTERM)
    session.is_over()
    assert session.child.returncode == 143
    assert "the job has left the queue" in session.errors
    assert session.outcome() == "clean"


@pytest.mark.parametrize("then", [signal.SIGTERM, signal.SIGKILL])
def test_guardian_killed_and_then_safe_srun(cluster: Cluster, then: signal.Signals) -> None:
    session = Session(cluster)
    session.kill("guardian")
    assert wait_until(lambda: set(session.guardians()) - set(session.members["guardian"]), 10)
    os.kill(session.child.pid, then)
    session.is_over()
    assert session.outcome() == "clean"


@pytest.mark.parametrize("names", [(), ("outer", "inner")], ids=["alone", "with both supervisors"])
def test_slurmstepd_killed(cluster: Cluster, names: tuple[str, ...]) -> None:
    """Nobody could end the step any more: its processes are ended, and the job is given back. srun itself waits for as long
    as it does (32 seconds), so the end of it is not waited for here."""
    session = Session(cluster)
    outer = identity.read(session.members["outer"][0])
    assert outer is not None and processes.program(outer.ppid).startswith("slurmstepd")
    os.kill(outer.ppid, signal.SIGKILL)
    session.kill(*names)
    assert wait_until(lambda: not session.escapees(), 25)
    assert wait_until(lambda: [row.name for row in cluster.jobs()] == ["bystander"], 25)
    for name in ("keeper", "safe-srun", "srun"):
        session.kill(name)
    session.child.communicate(timeout=10)
    assert wait_until(lambda: not session.by_script("task.py"), 15)
