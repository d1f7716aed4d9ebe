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
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Callable, ClassVar, NamedTuple

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.testbed import configuration, installed, machine, processes
from tests.testbed.configuration import NODES, PATH, tool
from tests.testbed.machine import Unavailable, register
from tests.testbed.processes import identity, wait_until

# The mark by which stop() finds what root started on a cluster; what the two users run is found by their uids.
MARK = "HANDWASH_TESTBED"
DAEMONS = ("munged", "slurmctld", "slurmd", "slurmstepd")
JOB_IDS_PER_SLOT = 10000


class ClusterError(RuntimeError):
    """The cluster did not start, did not stop, or left something behind."""


class Job(NamedTuple):
    """One row of the queue."""

    id: str
    state: str
    user: str
    name: str


class Cluster:
    """A two-node Slurm; a context manager that starts and stops it.

    *proctrack* is linuxproc, pgid or cgroup; *directory* a folder that does not exist yet (default: a new one under /tmp);
    *port* the first of three port numbers (default: free ones); *settings* are lines of slurm.conf that replace or join
    ours. A *detached* cluster outlives this process; any other is stopped when this process ends, and by the next start
    of a cluster on this machine where this process was killed.
    """

    shared_venv: ClassVar[Path | None] = None
    """Where handwash is installed for every cluster of this process that has no installation of its own."""

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
        self._children: list[subprocess.Popen[bytes]] = []
        self._directory = Path(directory).resolve() if directory else None

    @classmethod
    def attach(cls, directory: str | Path) -> Cluster:
        """The cluster that was started in this folder, by whomever."""
        where = Path(directory).resolve()
        with register() as content:
            entry = content.holders.get(str(where))
        if entry is None:
            raise ClusterError(f"no cluster was started in {where}")
        cluster = cls(entry["proctrack"], directory=where, detached=True)
        cluster._take_slot(entry["slot"])
        if (where / "venv" / "bin").is_dir():
            cluster.venv = where / "venv"
        return cluster

    @property
    def directory(self) -> Path:
        """The cluster's folder."""
        assert self._directory is not None, "the cluster was not started"
        return self._directory

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
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="handwash-cluster-", dir="/tmp"))
        else:
            self._directory.mkdir()
        self._directory.chmod(0o755)
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
        first_job = slot * JOB_IDS_PER_SLOT + 1
        configuration.write(self.directory, self.proctrack, ports, first_job, self.settings)

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
        with (self.directory / "log" / f"{log}.out").open("ab") as output:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                env={"PATH": PATH, "SLURM_CONF": str(self.slurm_conf)},
                start_new_session=True,
                **({"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []} if entry else {}),
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
        """Starts the slurmd of one node."""
        self._spawn(node, [tool("slurmd"), "-D", "-f", str(self.slurm_conf), "-N", node])

    def stop_slurmd(self, node: str) -> None:
        """Ends the slurmd of one node; running steps stay."""
        self._end_daemon("slurmd", node)

    def restart_slurmd(self, node: str) -> None:
        """Ends and starts the slurmd of one node."""
        self.stop_slurmd(node)
        self.start_slurmd(node)

    def daemon(self, name: str, *words: str) -> list[int]:
        """The pids of a daemon of this cluster whose command line holds these words."""
        return [pid for pid in self._daemons((name,)) if set(words) <= set(processes.arguments(pid))]

    def _end_daemon(self, name: str, *words: str) -> None:
        for pid in self.daemon(name, *words):
            who = identity(pid)
            if who:
                processes.send(who, signal.SIGTERM)
                if not wait_until(lambda who=who: not processes.running(who), 10):
                    raise ClusterError(f"{name} does not end:\n{self.logs()}")

    def stop(self) -> None:
        """Ends and removes everything of this cluster; raises ClusterError where something is left."""
        if self._directory is None:
            return
        directory = self._directory
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        if any(Path(mount) == directory or directory in Path(mount).parents for mount in mounts):
            raise ClusterError(f"something is mounted beneath {directory}; not removing through a mount")
        # The daemons first, so that none of them starts anything anew while the rest is ended.
        left = processes.end_all(lambda: self._daemons(DAEMONS[1:3]))
        self._thaw()
        left += processes.end_all(self._everybody)
        left += processes.end_all(lambda: self._daemons(DAEMONS))
        if left:
            raise ClusterError("cannot be ended:\n" + "\n".join(map(processes.describe, left)))
        for child in self._children:
            child.wait(5)
        with register() as content:
            if str(directory) in content.holders:
                last = not any(
                    entry.get("proctrack") == "cgroup"
                    for key, entry in content.holders.items()
                    if key != str(directory)
                )
                self._remove_cgroups(last)
                for name in self.users:
                    machine.remove_user(name)
                content.drop(str(directory))
        shutil.rmtree(directory, ignore_errors=True)
        _alive.pop(id(self), None)
        rest = [name for name in self.users if machine.account(name)]
        rest += [str(directory)] if directory.exists() else []
        if rest:
            raise ClusterError(f"left behind: {', '.join(rest)}")
        self._directory = None

    def _daemons(self, names: Sequence[str]) -> list[int]:
        found = []
        folder = f"{self.directory}/"
        for pid in processes.pids():
            # Debian's slurmd is a link to slurmd-wlm.
            name = processes.program(pid).replace("-wlm", "")
            if name not in names:
                continue
            # slurmstepd writes its command line over: it is known by the log and the spool folder that it has open.
            words = processes.open_files(pid) if name == "slurmstepd" else processes.arguments(pid)
            if any(folder in word for word in words):
                found.append(pid)
        return found

    def _everybody(self) -> list[int]:
        """All processes of the two users, and what root started through this cluster."""
        uids = set(self.uids.values())
        spared = processes.ancestors()
        mark = str(self.directory)
        return [
            pid
            for pid in processes.pids()
            if pid not in spared and (processes.uid(pid) in uids or processes.environment(pid).get(MARK) == mark)
        ]

    def _workers(self) -> list[int]:
        """All processes of the two users, and those of root's jobs."""
        uids = set(self.uids.values())
        return [
            pid
            for pid in self._everybody()
            if processes.uid(pid) in uids
            or (not processes.program(pid).startswith("slurmstepd") and "SLURM_JOB_ID" in processes.environment(pid))
        ]

    def _job_cgroups(self) -> list[Path]:
        """The folders of this cluster's jobs and their steps below the freezer, the deepest first."""
        top = configuration.freezer()
        if self.proctrack != "cgroup" or top is None:
            return []
        low = self.slot * JOB_IDS_PER_SLOT
        jobs = [
            *(path for uid in self.uids.values() for path in top.glob(f"slurm*/uid_{uid}")),
            *(path for path in top.glob("slurm*/uid_0/job_*") if low < int(path.name[4:]) <= low + JOB_IDS_PER_SLOT),
        ]
        return sorted((sub for job in jobs for sub in (job, *job.rglob("*")) if sub.is_dir()), reverse=True)

    def _thaw(self) -> None:
        # slurmstepd freezes a step to kill it; ended in between it leaves processes that no signal reaches.
        for path in self._job_cgroups():
            with contextlib.suppress(OSError):
                (path / "freezer.state").write_text("THAWED")

    def _remove_cgroups(self, last: bool) -> None:
        for path in self._job_cgroups():
            wait_until(lambda path=path: not (path / "cgroup.procs").read_text(), 5)
            path.rmdir()
        top = configuration.freezer()
        if self.proctrack == "cgroup" and top is not None and last:
            # The nodes' own folders are shared with every cgroup cluster on this machine, whose nodes have the same names.
            for node in NODES:
                for path in (top / f"slurm_{node}" / "uid_0", top / f"slurm_{node}"):
                    with contextlib.suppress(FileNotFoundError):
                        path.rmdir()

    def __enter__(self) -> Cluster:
        return self if self._started else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Use

    def account(self, user: str) -> pwd.struct_passwd:
        """The account of one of the two users, by name or as "alice" and "bob"."""
        name = dict(zip(("alice", "bob"), self.users)).get(user, user)
        if name not in self.users:
            raise ValueError(f"{user} is not one of {', '.join(self.users)}")
        return pwd.getpwnam(name)

    def home(self, user: str) -> Path:
        """The home of a user."""
        return Path(self.account(user).pw_dir)

    def env(self, user: str | None = None) -> dict[str, str]:
        """A whole environment for a program of this user (None: root) on this cluster."""
        entry = self.account(user) if user else pwd.getpwuid(0)
        venv = self.venv or Cluster.shared_venv
        path = PATH if user is None else "/usr/local/bin:/usr/bin:/bin"
        return {
            "HOME": entry.pw_dir,
            "LANG": "C.UTF-8",
            "LOGNAME": entry.pw_name,
            "PATH": f"{venv}/bin:{path}" if venv else path,
            "SHELL": entry.pw_shell,
            "SLURM_CONF": str(self.slurm_conf),
            "USER": entry.pw_name,
        }

    def become(self, user: str) -> Callable[[], None]:
        """What a child calls before exec to be this user, at home, owning its terminal (the preexec_fn of pexpect)."""
        entry = self.account(user)
        groups = os.getgrouplist(entry.pw_name, entry.pw_gid)

        def change() -> None:
            if os.isatty(0):
                os.fchown(0, entry.pw_uid, entry.pw_gid)
            os.setgroups(groups)
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)
            os.chdir(entry.pw_dir)

        return change

    def install_handwash(self, source: str | Path) -> Path:
        """Installs a wheel of this checkout for the users and puts it first on their PATH; the environment's folder."""
        folder = self.directory / "venv"
        installed.install(source, folder)
        self.venv = folder
        return folder

    def popen(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[Any]:
        """Starts a program as this user, at home, in a session of its own; *env* is added to env(user)."""
        if user is not None:
            entry = self.account(user)
            groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
            options.update(user=entry.pw_uid, group=entry.pw_gid, extra_groups=groups)
            options.setdefault("cwd", entry.pw_dir)
        options.setdefault("cwd", self.directory)
        options.setdefault("start_new_session", True)
        whole = {**self.env(user), MARK: str(self.directory), **(env or {})}
        # subprocess would look a program up in the caller's PATH.
        found = shutil.which(argv[0], path=whole["PATH"])
        return subprocess.Popen([found or argv[0], *argv[1:]], env=whole, **options)

    def run(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
        input: str | None = None,
        check: bool = False,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program as popen does, to its end, with its output captured as text.

        After *timeout* seconds its process group is killed and TimeoutExpired raised.
        """
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("stdin", subprocess.DEVNULL if input is None else subprocess.PIPE)
        child = self.popen(argv, user=user, env=env, encoding="utf-8", errors="replace", **options)
        try:
            out, err = child.communicate(input, timeout)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
        done = subprocess.CompletedProcess(list(map(str, argv)), child.returncode, out, err)
        if check:
            done.check_returncode()
        return done

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
        processes.end_all(self._workers)
        if not self.wait_no_jobs(30):
            raise ClusterError(f"the jobs do not go: {self.jobs()}\n{self.logs()}")

    def logs(self, lines: int = 15) -> str:
        """The last lines of every log."""
        parts = []
        for path in sorted([*self.directory.glob("log/*"), *self.directory.glob("munge/log")]):
            tail = path.read_text(errors="replace").splitlines()[-lines:]
            parts.append("\n".join([f"--- {path}", *tail]))
        return "\n".join(parts)


_alive: dict[int, Cluster] = {}


def _guard(cluster: Cluster) -> None:
    """Sees to it that a cluster ends with this process, by whichever signal that ends, KILL excepted."""
    _alive[id(cluster)] = cluster
    if cluster.detached:
        return
    process = os.getpid()

    def finish() -> None:
        if os.getpid() == process and id(cluster) in _alive:
            cluster.stop()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if os.getpid() == process:
            for other in list(_alive.values()):
                if not other.detached:
                    other.stop()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    atexit.register(finish)
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, on_signal)


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
