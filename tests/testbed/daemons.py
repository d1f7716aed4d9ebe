"""The daemons of a cluster: munged, slurmctld and two slurmd."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.testbed import accounting, configuration, processes, remains
from tests.testbed.configuration import NODES, PATH, tool
from tests.testbed.people import People
from tests.testbed.processes import identity, wait_until


class ClusterError(RuntimeError):
    """The cluster did not start, did not stop, or left something behind."""


class Daemons(People):
    """The part of a cluster that starts and ends single daemons."""

    def __init__(self) -> None:
        # Kept to be waited for: an ended daemon would stay a zombie of this process.
        self.children: list[subprocess.Popen[Any]] = []

    @property
    def slurm_conf(self) -> Path:
        """The cluster's slurm.conf, the value of SLURM_CONF."""
        return self.directory / "slurm.conf"

    def start_daemons(self) -> None:
        """Starts all four, and the accounting's where there is one, and waits until both nodes are idle."""
        self._start_munged()
        if (self.directory / "slurmdbd.conf").exists():
            accounting.start(self)
        self.start_controller()
        for node in NODES:
            self.start_slurmd(node)
        self._await_nodes()

    def _await_nodes(self) -> None:
        states = ["sinfo", "-h", "-N", "-o", "%N %T"]
        wanted = [f"{node} idle" for node in NODES]
        if not wait_until(lambda: self.run(states).stdout.splitlines() == wanted, 20):
            raise ClusterError(f"the nodes do not become idle:\n{self.run(['sinfo', '-N', '-l']).stdout}{self.logs()}")

    def _start_munged(self) -> None:
        folder = self.directory / "munge"
        key = folder / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        try:
            entry: pwd.struct_passwd | None = pwd.getpwnam("munge")
        except KeyError:
            entry = None
        if entry:
            for path in (folder, key):
                os.chown(path, entry.pw_uid, entry.pw_gid)
        places = [f"--{name}-file={folder / name}" for name in ("key", "pid", "log", "seed")]
        self.spawn(
            "munged", [tool("munged"), "--foreground", "--force", f"--socket={folder / 'socket'}", *places], entry=entry
        )
        if not wait_until((folder / "socket").exists, 10):
            raise ClusterError(f"munged does not start:\n{self.logs()}")

    def spawn(
        self, log: str, argv: list[str], env: Mapping[str, str] | None = None, entry: pwd.struct_passwd | None = None
    ) -> None:
        """Starts a daemon, as root unless an *entry* says otherwise; *env* joins its environment."""
        whom: dict[str, Any] = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []} if entry else {}
        with (self.directory / "log" / f"{log}.out").open("ab") as output:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                env={"PATH": PATH, "SLURM_CONF": str(self.slurm_conf), **(env or {})},
                start_new_session=True,
                **whom,
            )
        self.children.append(child)

    def start_controller(self) -> None:
        """Starts slurmctld and waits until it answers."""
        self.spawn("slurmctld", [tool("slurmctld"), "-D", "-f", str(self.slurm_conf)])
        if not wait_until(lambda: "UP" in self.run(["scontrol", "ping"]).stdout, 15):
            raise ClusterError(f"slurmctld does not answer:\n{self.logs()}")

    def stop_controller(self) -> None:
        """Ends slurmctld; it saves its state, and start_controller finds the jobs again."""
        self.end_daemon("slurmctld")

    def start_slurmd(self, node: str) -> None:
        """Starts the slurmd of one node and waits until it listens."""
        self.spawn(node, [tool("slurmd"), "-D", "-f", str(self.slurm_conf), "-N", node])
        port = configuration.node_port(self.slurm_conf, node)
        if not wait_until(lambda: configuration.listening(port), 15):
            raise ClusterError(f"the slurmd of {node} does not listen:\n{self.logs()}")

    def stop_slurmd(self, node: str) -> None:
        """Ends the slurmd of one node; running steps stay."""
        self.end_daemon("slurmd", node)

    def restart_slurmd(self, node: str) -> None:
        """Ends and starts the slurmd of one node."""
        self.stop_slurmd(node)
        self.start_slurmd(node)

    def restart_dead(self) -> list[str]:
        """Starts the slurmd of nodes on which it has died; their names.

        Debian's 22.05.8 was seen to crash in the allocator at the end of a thread, with many steps starting at once.
        """
        dead = [node for node in ("n1", "n2") if not self.daemon("slurmd", node)]
        for node in dead:
            # Down for a moment: that ends its jobs, which would stay COMPLETING.
            self.run(["scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=crashed"])
            self.start_slurmd(node)
            self.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"])
        return dead

    def revive(self) -> None:
        """Waits until both nodes are idle or at work; puts those to use again that Slurm has drained.

        It does so where a step's processes do not go ("Kill task failed").
        """
        states = ["sinfo", "-h", "-N", "-o", "%N %T"]

        def useless() -> list[str]:
            rows = [line.split() for line in self.run(states).stdout.splitlines()]
            return [name for name, state in rows if state not in ("idle", "mixed", "allocated")]

        if wait_until(lambda: not useless(), 5):
            return
        for node in useless():
            self.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"])
        if not wait_until(lambda: not useless(), 15):
            raise ClusterError(f"not all nodes can be used:\n{self.run(['sinfo', '-N', '-l']).stdout}{self.logs()}")

    def daemon(self, name: str, *words: str) -> list[int]:
        """The pids of a daemon of this cluster whose command line holds these words."""
        return [pid for pid in remains.daemons(self.directory, (name,)) if set(words) <= set(processes.arguments(pid))]

    def end_daemon(self, name: str, *words: str) -> None:
        """Ends a daemon in good order."""
        for pid in self.daemon(name, *words):
            who = identity(pid)
            if who and not processes.terminate(who, 10):
                raise ClusterError(f"{name} does not end:\n{self.logs()}")

    def logs(self, lines: int = 15) -> str:
        """The last lines of every log."""
        parts = []
        for path in sorted([*self.directory.glob("log/*"), *self.directory.glob("munge/log")]):
            tail = path.read_text(errors="replace").splitlines()[-lines:]
            parts.append("\n".join([f"--- {path}", *tail]))
        return "\n".join(parts)
