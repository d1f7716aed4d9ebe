"""A throw-away two-node Slurm in a folder of its own, with two ordinary users on it.

As a program (``python3 tests/testbed/cluster.py --help``) it starts, enters and stops one for people and the demo; tests use
the class. Everything that it makes (daemons, users, device files, cgroups, the folder) is gone after ``stop``.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NamedTuple

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.testbed import configuration, installed, machine, processes, remains
from tests.testbed.configuration import NODES, PATH, tool
from tests.testbed.machine import Unavailable, register
from tests.testbed.people import People
from tests.testbed.processes import identity, wait_until


class ClusterError(RuntimeError):
    """The cluster did not start, did not stop, or left something behind."""


class Job(NamedTuple):
    """One row of the queue."""

    id: str
    state: str
    user: str
    name: str


class Cluster(People):
    """A two-node Slurm; a context manager that starts and stops it.

    *proctrack* is linuxproc, pgid or cgroup; *directory* a folder that does not exist yet (default: a new one under /tmp);
    *port* the first of three port numbers (default: free ones); *settings* are lines of slurm.conf that replace or join
    ours. A *detached* cluster outlives this process; any other is stopped when this process ends, and by the next start
    of a cluster on this machine where this process was killed.
    """

    def __init__(
        self,
        proctrack: str = "linuxproc",
        *,
        directory: str | Path | None = None,
        port: int | None = None,
        settings: Sequence[str] = (),
        detached: bool = False,
    ) -> None:
        if proctrack not in configuration.PROCTRACKS:
            raise ValueError(f"proctrack is one of {', '.join(configuration.PROCTRACKS)}, not {proctrack}")
        self.proctrack = proctrack
        self.settings = tuple(settings)
        self.detached = detached
        self.slot = -1
        self.users: tuple[str, ...] = ()
        self.uids: dict[str, int] = {}
        self.venv: Path | None = None
        self._port = port
        self._started = False
        self._children: list[subprocess.Popen[Any]] = []
        self._place = Path(directory).resolve() if directory else None

    @classmethod
    def attach(cls, directory: str | Path) -> Cluster:
        """The cluster that was started in this folder, by whomever."""
        where = Path(directory).resolve()
        with register() as content:
            entry = content.holders.get(str(where))
        if entry is None:
            raise ClusterError(f"no cluster was started in {where}")
        cluster = cls(entry["proctrack"], detached=True)
        cluster.directory = where
        cluster._take_slot(entry["slot"])
        if (where / "venv" / "bin").is_dir():
            cluster.venv = where / "venv"
        return cluster

    @property
    def slurm_conf(self) -> Path:
        """The cluster's slurm.conf, the value of SLURM_CONF."""
        return self.directory / "slurm.conf"

    # Start and stop

    def start(self) -> Cluster:
        """Starts everything and waits until both nodes are idle."""
        if os.geteuid():
            raise Unavailable("the test cluster needs root, to have users of its own and to be slurmd")
        for name in ("munged", "slurmctld", "slurmd", "srun", "scontrol", "useradd"):
            tool(name)
        configuration.cgroup_conf(self.proctrack)
        self._started = True
        stop_orphans()
        if self._place is None:
            self.directory = Path(tempfile.mkdtemp(prefix="handwash-cluster-", dir="/tmp"))
        else:
            try:
                self._place.mkdir()
            except OSError as error:
                raise ClusterError(f"cannot make the cluster's folder: {error}") from error
            self.directory = self._place
        self.directory.chmod(0o755)
        if not self.detached:
            _guard(self)
        try:
            self._prepare()
            self._start_daemons()
        except BaseException:
            self.stop()
            raise
        return self

    def _prepare(self) -> None:
        with register() as content:
            slot = next(
                n
                for n in itertools.count()
                if n not in content.slots() and not any(machine.account(name) for name in machine.user_names(n))
            )
            content.holders[str(self.directory)] = {
                "slot": slot,
                "owner": None if self.detached else machine.owner(),
                "proctrack": self.proctrack,
            }
            self._take_slot(slot)
            content.add_devices()
            (self.directory / "home").mkdir()
            for name in self.users:
                machine.add_user(name, self.directory / "home" / name)
            self._take_slot(slot)
        for name in ("log", "state", "spool", "munge", *(f"spool/{node}" for node in NODES)):
            (self.directory / name).mkdir()
        ports = configuration.free_ports(slot, 3) if self._port is None else [self._port + n for n in range(3)]
        configuration.write(self.directory, self.proctrack, ports, remains.first_job(slot), self.settings)

    def _take_slot(self, slot: int) -> None:
        self.slot = slot
        self.users = machine.user_names(slot)
        accounts = [machine.account(name) for name in self.users]
        self.uids = {entry.pw_name: entry.pw_uid for entry in accounts if entry}

    def _start_daemons(self) -> None:
        self._start_munged()
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
        self._spawn(
            "munged", [tool("munged"), "--foreground", "--force", f"--socket={folder / 'socket'}", *places], entry
        )
        if not wait_until((folder / "socket").exists, 10):
            raise ClusterError(f"munged does not start:\n{self.logs()}")

    def _spawn(self, log: str, argv: list[str], entry: pwd.struct_passwd | None = None) -> None:
        whom: dict[str, Any] = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []} if entry else {}
        with (self.directory / "log" / f"{log}.out").open("ab") as output:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                env={"PATH": PATH, "SLURM_CONF": str(self.slurm_conf)},
                start_new_session=True,
                **whom,
            )
        self._children.append(child)

    def start_controller(self) -> None:
        """Starts slurmctld and waits until it answers."""
        self._spawn("slurmctld", [tool("slurmctld"), "-D", "-f", str(self.slurm_conf)])
        if not wait_until(lambda: "UP" in self.run(["scontrol", "ping"]).stdout, 15):
            raise ClusterError(f"slurmctld does not answer:\n{self.logs()}")

    def stop_controller(self) -> None:
        """Ends slurmctld; it saves its state, and start_controller finds the jobs again."""
        self._end_daemon("slurmctld")

    def start_slurmd(self, node: str) -> None:
        """Starts the slurmd of one node and waits until it listens."""
        self._spawn(node, [tool("slurmd"), "-D", "-f", str(self.slurm_conf), "-N", node])
        port = configuration.node_port(self.slurm_conf, node)
        if not wait_until(lambda: configuration.listening(port), 15):
            raise ClusterError(f"the slurmd of {node} does not listen:\n{self.logs()}")

    def stop_slurmd(self, node: str) -> None:
        """Ends the slurmd of one node; running steps stay."""
        self._end_daemon("slurmd", node)

    def restart_slurmd(self, node: str) -> None:
        """Ends and starts the slurmd of one node."""
        self.stop_slurmd(node)
        self.start_slurmd(node)

    def daemon(self, name: str, *words: str) -> list[int]:
        """The pids of a daemon of this cluster whose command line holds these words."""
        return [pid for pid in remains.daemons(self.directory, (name,)) if set(words) <= set(processes.arguments(pid))]

    def _end_daemon(self, name: str, *words: str) -> None:
        for pid in self.daemon(name, *words):
            who = identity(pid)
            if who and not processes.terminate(who, 10):
                raise ClusterError(f"{name} does not end:\n{self.logs()}")

    def stop(self) -> None:
        """Ends and removes everything of this cluster; raises ClusterError where something is left."""
        directory = self.directory
        mounts = remains.mounts(directory)
        if mounts:
            raise ClusterError(f"mounted: {', '.join(mounts)}; nothing is removed through a mount")
        # The daemons first, so that none of them starts anything anew while the rest is ended.
        uids = self.uids.values()
        left = processes.end_all(lambda: remains.daemons(directory, ("slurmctld", "slurmd")))
        if self.proctrack == "cgroup":
            remains.thaw(self.slot, uids)
        left += processes.end_all(lambda: remains.everybody(directory, uids))
        left += processes.end_all(lambda: remains.daemons(directory, remains.DAEMONS))
        if left:
            raise ClusterError("cannot be ended:\n" + "\n".join(map(processes.describe, left)))
        for child in self._children:
            child.wait(5)
        with register() as content:
            if str(directory) in content.holders:
                if self.proctrack == "cgroup":
                    others = [entry for key, entry in content.holders.items() if key != str(directory)]
                    last = not any(entry.get("proctrack") == "cgroup" for entry in others)
                    remains.remove_cgroups(self.slot, uids, last=last)
                for name in self.users:
                    machine.remove_user(name)
                content.drop(str(directory))
        shutil.rmtree(directory, ignore_errors=True)
        self._started = False
        _alive.discard(self)
        rest = [name for name in self.users if machine.account(name)]
        rest += [str(directory)] if directory.exists() else []
        if rest:
            raise ClusterError(f"left behind: {', '.join(rest)}")

    def __enter__(self) -> Cluster:
        return self if self._started else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Use

    def install_handwash(self, source: str | Path) -> Path:
        """Installs a wheel of this checkout for the users and puts it first on their PATH; the environment's folder."""
        folder = self.directory / "venv"
        installed.install(source, folder)
        self.venv = folder
        return folder

    def jobs(self) -> list[Job]:
        """The whole queue; ClusterError where it could not be had."""
        done = self.run(["squeue", "-h", "-a", "-o", "%i\x1f%T\x1f%u\x1f%j"])
        if done.returncode or done.stderr:
            raise ClusterError(f"squeue: {done.stderr}")
        return [Job(*line.split("\x1f", 3)) for line in done.stdout.splitlines()]

    def wait_no_jobs(self, limit: float = 10) -> bool:
        """Waits until the queue is empty; False when it was not within *limit* seconds."""
        return wait_until(lambda: not self.jobs(), limit, 0.05)

    def processes(self, user: str) -> list[int]:
        """The living processes of a user; zombies do not count."""
        uid = self.account(user).pw_uid
        return [pid for pid in processes.pids() if processes.uid(pid) == uid and identity(pid)]

    def leftovers(self) -> list[str]:
        """A line for each job in the queue and each process of the two users."""
        found = [f"job {job.id} {job.state} {job.user} {job.name!r}" for job in self.jobs()]
        return found + [processes.describe(pid) for user in self.users for pid in self.processes(user)]

    def clear(self) -> None:
        """Cancels every job and kills every process of the two users and of root's jobs."""
        jobs = self.jobs()
        if jobs:
            self.run(["scancel", *(job.id for job in jobs)])
        # scancel asks with TERM and waits KillWait; where nothing is left to ask the job goes at once.
        processes.end_all(lambda: remains.workers(self.directory, self.uids.values()))
        if not self.wait_no_jobs(30):
            raise ClusterError(f"the jobs do not go: {self.jobs()}\n{self.logs()}")

    def logs(self, lines: int = 15) -> str:
        """The last lines of every log."""
        parts = []
        for path in sorted([*self.directory.glob("log/*"), *self.directory.glob("munge/log")]):
            tail = path.read_text(errors="replace").splitlines()[-lines:]
            parts.append("\n".join([f"--- {path}", *tail]))
        return "\n".join(parts)


_alive: set[Cluster] = set()


def _guard(cluster: Cluster) -> None:
    """Sees to it that a cluster ends with this process, by whichever signal that ends, KILL excepted."""
    _alive.add(cluster)
    process = os.getpid()

    def finish() -> None:
        if os.getpid() == process and cluster in _alive:
            cluster.stop()

    def interrupt(number: int, _frame: FrameType | None) -> None:
        # Stopping right here could meet a lock that the interrupted code holds. pytest and every "with" end in good order
        # after KeyboardInterrupt; a second signal does not disturb them.
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    atexit.register(finish)
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, interrupt)


def stop_orphans() -> None:
    """Stops the clusters whose owning process was killed."""
    with register() as content:
        keys = content.orphans()
        for key in keys:
            if content.holders[key]["slot"] is None:
                content.drop(key)
    for key in keys:
        with contextlib.suppress(ClusterError):
            Cluster.attach(key).stop()


if __name__ == "__main__":
    from tests.testbed.command import main

    sys.exit(main())
