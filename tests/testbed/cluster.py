"""A throw-away two-node Slurm in a folder of its own, with two ordinary users on it.

As a program (``python3 tests/testbed/cluster.py --help``) it starts, enters and stops one for people and the demo; tests use
the class. Everything that it makes (daemons, users, device files, cgroups, the folder) is gone after ``stop``.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import secrets
import shutil
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import NamedTuple

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.testbed import accounting, configuration, installed, machine, processes, remains
from tests.testbed.configuration import NODES, tool
from tests.testbed.daemons import ClusterError, Daemons
from tests.testbed.machine import register
from tests.testbed.processes import identity, wait_until

__all__ = ["Cluster", "ClusterError", "Job", "stop_orphans"]

PROGRAMS = Path(__file__).resolve().parent / "programs"


class Job(NamedTuple):
    """One row of the queue."""

    id: str
    state: str
    user: str
    name: str


class Cluster(Daemons):
    """A two-node Slurm; a context manager that starts and stops it.

    *proctrack* is linuxproc, pgid or cgroup; *directory* a folder that does not exist yet (default: a new one under /tmp);
    *port* the first of its port numbers (default: free ones); *settings* are lines of slurm.conf that replace or join
    ours. A *detached* cluster outlives this process; any other is stopped when this process ends, and by the next start
    of a cluster on this machine where this process was killed. With *accounting* it has slurmdbd and a database, and puts
    GPUs on record.
    """

    def __init__(
        self,
        proctrack: str = "linuxproc",
        *,
        directory: str | Path | None = None,
        port: int | None = None,
        settings: Sequence[str] = (),
        detached: bool = False,
        accounting: bool = False,
    ) -> None:
        if proctrack not in configuration.PROCTRACKS:
            raise ValueError(f"proctrack is one of {', '.join(configuration.PROCTRACKS)}, not {proctrack}")
        super().__init__()
        self.proctrack = proctrack
        self.settings = tuple(settings)
        self.detached = detached
        self.accounting = accounting
        self.slot = -1
        self.users: tuple[str, ...] = ()
        self.uids: dict[str, int] = {}
        self.venv: Path | None = None
        self._port = port
        self._started = False
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
        cluster._started = True
        if (where / "venv" / "bin").is_dir():
            cluster.venv = where / "venv"
        return cluster

    # Start and stop

    def start(self) -> Cluster:
        """Starts everything and waits until both nodes are idle."""
        stop_orphans()
        for name in ("munged", "slurmctld", "slurmd", "srun", "scontrol", "useradd"):
            tool(name)
        if self.accounting:
            accounting.require()
        configuration.cgroup_conf(self.proctrack)
        self.directory = self._place or Path(f"/tmp/handwash-cluster-{secrets.token_hex(4)}")
        if self.directory.exists():
            raise ClusterError(f"{self.directory} exists already")
        closed = [str(above) for above in self.directory.parents if above.exists() and not above.stat().st_mode & 0o001]
        if closed:
            raise ClusterError(f"ordinary users cannot pass through {', '.join(closed)}")
        self._started = True
        _guard(self)
        try:
            self._prepare()
            self.start_daemons()
            if self.detached:
                self._let_go()
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
            # Written down before anything is made: a kill at any point leaves something that can be found and stopped.
            content.add(str(self.directory), {"slot": slot, "owner": machine.owner(), "proctrack": self.proctrack})
            self._take_slot(slot)
            self.directory.mkdir()
            self.directory.chmod(0o755)
            content.add_devices()
            (self.directory / "home").mkdir()
            for name in self.users:
                machine.add_user(name, self.directory / "home" / name)
            self._take_slot(slot)
        # The checkout may lie where ordinary users cannot look, below /root for instance.
        shutil.copytree(PROGRAMS, self.programs)
        for name in ("log", "state", "spool", "munge", *(f"spool/{node}" for node in NODES)):
            (self.directory / name).mkdir()
        count = 4 if self.accounting else 3
        ports = configuration.free_ports(slot, count) if self._port is None else [self._port + n for n in range(count)]
        more = accounting.write(self.directory, ports[3]) if self.accounting else []
        configuration.write(self.directory, self.proctrack, ports, remains.first_job(slot), more, self.settings)

    def _let_go(self) -> None:
        with register() as content:
            content.holders[str(self.directory)]["owner"] = None
        _alive.discard(self)

    def _take_slot(self, slot: int) -> None:
        self.slot = slot
        self.users = machine.user_names(slot)
        accounts = [machine.account(name) for name in self.users]
        self.uids = {entry.pw_name: entry.pw_uid for entry in accounts if entry}

    def stop(self) -> None:
        """Ends and removes everything of this cluster; raises ClusterError where something is left."""
        if not self._started:
            return
        mounts = remains.mounts(self.directory)
        if mounts:
            raise ClusterError(f"mounted: {', '.join(mounts)}; nothing is removed through a mount")
        if self._registered():
            self._end_everything()
        for child in self.children:
            child.wait(5)
        with register() as content:
            # Where "stop" of another process was faster, names and uids may be somebody else's already.
            if self._holds(content):
                self._remove(content)
        self._started = False
        _alive.discard(self)

    def _holds(self, content: machine.Register) -> bool:
        return content.holders.get(str(self.directory), {}).get("slot") == self.slot

    def _registered(self) -> bool:
        with register() as content:
            return self._holds(content)

    def _end_everything(self) -> None:
        directory, uids = self.directory, self.uids.values()
        # The daemons first, so that none of them starts anything anew while the rest is ended.
        left = processes.end_all(lambda: remains.daemons(directory, ("slurmctld", "slurmd")))
        if self.proctrack == "cgroup":
            remains.thaw(self.slot, uids)
        left += processes.end_all(lambda: remains.everybody(directory, uids))
        left += processes.end_all(lambda: remains.daemons(directory, remains.DAEMONS))
        if left:
            raise ClusterError("cannot be ended:\n" + "\n".join(map(processes.describe, left)))

    def _remove(self, content: machine.Register) -> None:
        if self.proctrack == "cgroup":
            others = [entry for key, entry in content.holders.items() if key != str(self.directory)]
            last = not any(entry.get("proctrack") == "cgroup" for entry in others)
            remains.remove_cgroups(self.slot, self.uids.values(), last=last)
        for name in self.users:
            machine.remove_user(name)
        shutil.rmtree(self.directory, ignore_errors=True)
        rest = [name for name in self.users if machine.account(name)]
        rest += [str(self.directory)] if self.directory.exists() else []
        # What could not be removed keeps its entry, and can be stopped again.
        if rest:
            raise ClusterError(f"left behind: {', '.join(rest)}")
        content.drop(str(self.directory))

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
        done = self.run(["squeue", "-h", "-a", "-o", "%i\x1f%T\x1f%u\x1f%j\x1e"])
        if done.returncode or done.stderr:
            raise ClusterError(f"squeue: {done.stderr}")
        # A name can hold a newline.
        return [Job(*row.split("\x1f", 3)) for row in done.stdout.split("\x1e\n")[:-1]]

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
        keys = []
        for key in content.orphans():
            if content.holders[key]["slot"] is None:
                content.drop(key)
            else:
                # Ours from now on, so that nobody else stops it at the same time.
                content.holders[key]["owner"] = machine.owner()
                keys.append(key)
    for key in keys:
        with contextlib.suppress(ClusterError):
            Cluster.attach(key).stop()


if __name__ == "__main__":
    from tests.testbed.command import main

    sys.exit(main())
