"""A session with the zoo in it, under plain srun or safe-srun: its processes by name, and how it ends."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import termios
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.testbed import outside, processes
from tests.testbed.cluster import Cluster, ClusterError
from tests.testbed.processes import Identity, identity, running, wait_until
from tests.testbed.programs.zoo import ESCAPEES, PYTHON

PLAIN, SAFE = "srun", "safe-srun"
# Of what started only just before its supervisors die the guardian does not claim that it saw it.
SETTLED = 0.6


class Ended(NamedTuple):
    """How a session ended. Times are seconds since the deed that ended it; None where it had not happened by the end.

    `at_word`: what still ran when safe-srun had said its last word, or its record where safe-srun was killed; with plain srun,
    when the job had left the queue. `left`: what ran when nothing changed any more, with its age at the time of the deed in
    `ages`; `chain`: what of handwash and srun ran then. `claim`: whether it said that all is gone.
    """

    at_word: Counter[str]
    left: Counter[str]
    ages: list[tuple[str, float]]
    chain: list[str]
    status: int | None
    tool_s: float | None
    word_s: float | None
    queue_s: float | None
    outcome: str
    claim: bool
    said: str


def carriers(token: str) -> Iterator[tuple[Identity, list[str], str]]:
    """Every living process with a word TOKEN or TOKEN:NAME in its command line, with that and the name."""
    for pid in processes.pids():
        words = processes.arguments(pid)
        for word in words:
            base = word.rpartition("/")[2]
            if base == token or base.startswith(f"{token}:"):
                who = identity(pid)
                if who is not None:
                    yield who, words, base.partition(":")[2]
                break


class Session:
    """One run; a context manager that leaves nothing of it behind."""

    def __init__(
        self,
        cluster: Cluster,
        tool: str = SAFE,
        *,
        names: Sequence[str] = tuple(ESCAPEES),
        options: Sequence[str] = (),
        terminal: bool = False,
        grace: float = 0.5,
        full_disk: bool = False,
    ) -> None:
        self.cluster = cluster
        self.tool = tool
        self.names = list(names)
        self.options = list(options)
        self.terminal = terminal
        self.grace = grace
        self.full_disk = full_disk
        self.token = f"zoo-{secrets.token_hex(4)}"
        self.place = cluster.home("alice") / self.token
        self.master = -1
        self.deed: float | None = None
        self.spared: set[Identity] = set()
        self.job = ""

    def __enter__(self) -> Session:
        self.clean = contextlib.ExitStack()
        try:
            self._start()
        except BaseException:
            self.clean.close()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self.clean.close()

    def _start(self) -> None:
        entry = self.cluster.account("alice")
        self.place.mkdir()
        # A process that has become another user's says here that it is ready.
        self.place.chmod(0o777)
        self.clean.callback(shutil.rmtree, self.place)
        state = self.place / "state"
        state.mkdir(mode=0o700)
        os.chown(state, entry.pw_uid, entry.pw_gid)
        if self.full_disk:
            self._fill(state, entry.pw_uid)
        if "other-user" in self.names:
            self._copy_of_python(self.cluster.account("bob").pw_uid)
        self.clean.callback(self._end)
        command = [PYTHON, "-I", "-S", str(self.cluster.programs / "zoo.py"), self.token, str(self.place), *self.names]
        argv = [self.tool, "-w", "n1", "-J", self.token, *self.options, *command]
        streams: dict[str, Any] = {}
        if self.terminal:
            self.master, slave = os.openpty()
            os.fchown(slave, entry.pw_uid, entry.pw_gid)
            streams = {"stdin": slave, "stdout": slave, "stderr": slave}

            def take_terminal() -> None:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)

            streams["preexec_fn"] = take_terminal
        else:
            # Files, since what is left holds the ends of pipes open.
            output, errors = (open(self.place / name, "wb") for name in ("out", "err"))
            streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": errors}
        self.env = {"HANDWASH_GRACE": str(self.grace), "XDG_STATE_HOME": str(state)}
        self.started = time.monotonic()
        self.child = self.cluster.popen(argv, user="alice", env=self.env, **streams)
        for stream in {streams["stdout"], streams["stderr"]}:
            os.close(stream) if isinstance(stream, int) else stream.close()

    def _fill(self, state: Path, uid: int) -> None:
        """A disk of a few pages that is full."""
        options = f"size=16k,mode=700,uid={uid}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", state], check=True)
        self.clean.callback(subprocess.run, ["umount", "-l", state], check=True)
        folder = state / "handwash" / "sessions"
        folder.mkdir(parents=True, mode=0o700)
        for path in (folder, folder.parent):
            os.chown(path, uid, uid)
        with contextlib.suppress(OSError), (state / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))

    def _copy_of_python(self, uid: int) -> None:
        copy = self.place / "python-of-another"
        shutil.copy(os.path.realpath(PYTHON), copy)
        os.chown(copy, uid, self.cluster.account("alice").pw_gid)
        copy.chmod(0o4750)

    def _end(self) -> None:
        """Whatever is left of it, and its job."""
        self.hang_up()
        everything = [*self.found(), *self.chain()]
        left = processes.end_all(lambda: [who.pid for who, _name in [*self.found(), *self.chain()]], 20)
        assert not left, f"cannot be ended: {left} of {everything}"
        self.child.wait(20)
        number = self.in_queue()
        if number:
            self.cluster.run(["scancel", "--signal=KILL", number])
            self.cluster.run(["scancel", number])
            wait_until(lambda: not self.in_queue(), 60, 0.2)

    # Looking at it

    def _with_token(self) -> Iterator[tuple[Identity, list[str], str]]:
        return (row for row in carriers(self.token) if row[0] not in self.spared)

    def found(self) -> list[tuple[Identity, str]]:
        """Every living process of the command, with the escapee's name ("command" for the zoo itself)."""
        rows = []
        for who, words, name in self._with_token():
            if name:
                rows.append((who, name))
            elif words[3:4] == [str(self.cluster.programs / "zoo.py")]:
                rows.append((who, "command"))
        return rows

    def chain(self) -> list[tuple[Identity, str]]:
        """Every living process of srun and of handwash for this session."""
        rows = []
        for who, words, name in self._with_token():
            if not name and words[3:4] != [str(self.cluster.programs / "zoo.py")]:
                rows.append((who, Path(words[3]).stem if len(words) > 3 and words[1:2] == ["-I"] else words[0]))
        return rows

    def counted(self) -> Counter[str]:
        return Counter(name for _who, name in self.found())

    def members(self) -> dict[str, list[int]]:
        """The pids of those who may die, by name."""
        chain = [(who.pid, name) for who, name in self.chain()]
        parents = {pid: (found.parent if (found := processes.stat(pid)) else 0) for pid, _name in chain}
        tasks = [pid for pid, name in chain if name == "task"]
        commands = [who.pid for who, name in self.found() if name == "command"]
        outer = [pid for pid in tasks if processes.program(parents[pid]).startswith("slurmstepd")]
        inner = [pid for pid in tasks if parents[pid] in outer]
        first = outer or [pid for pid in commands if (found := processes.stat(pid)) and found.parent != 1]
        steps = {found.parent for pid in first if (found := processes.stat(pid))}
        safe = self.child.pid
        return {
            SAFE: [pid for pid, name in chain if pid == safe and name == "entry"],
            "srun": [
                pid
                for pid, _name in chain
                if processes.program(pid) == "srun" and (parents[pid] == safe if self.tool == SAFE else pid == safe)
            ],
            "keeper": [pid for pid, name in chain if name == "entry" and safe not in (pid, parents[pid])],
            "twin": [pid for pid, name in chain if name == "entry" and parents[pid] == safe],
            "guardian": [pid for pid in tasks if pid not in outer and pid not in inner],
            "outer": outer,
            "inner": inner,
            "slurmstepd": [pid for pid in steps if processes.program(pid).startswith("slurmstepd")],
        }

    def is_up(self) -> bool:
        return (self.place / "ready-all").exists()

    def in_queue(self) -> str | None:
        """The number of its job, empty when there is none; None where that could not be told."""
        try:
            return next((row.id for row in self.cluster.jobs() if row.name == self.token), "")
        except ClusterError:
            return None

    def outcome(self) -> str:
        """What the record says; "none" where there is none."""
        done = self.cluster.run(["handwash", "sessions", "--json"], user="alice", env=self.env)
        items = json.loads(done.stdout)["items"] if done.stdout.startswith("{") else []
        return str(items[0]["outcome"]) if items else "none"

    def said(self) -> str:
        """What the tool has written to its standard error, or to its terminal."""
        if not self.terminal:
            return (self.place / "err").read_text(errors="replace")
        text = b""
        if self.master >= 0:
            os.set_blocking(self.master, False)
            with contextlib.suppress(OSError):
                while chunk := os.read(self.master, 65536):
                    text += chunk
        return text.decode(errors="replace")

    # What is done to it

    def await_up(self) -> None:
        """Until every escapee is there."""
        up = wait_until(lambda: self.is_up() or self.child.poll() is not None, 40)
        assert up and self.is_up(), f"the zoo does not start: {self.said()}"
        self.job = self.in_queue() or ""

    def settle(self) -> None:
        """Until every escapee has been there for long enough to be known."""
        time.sleep(SETTLED)

    def knows_outsiders(self) -> bool:
        """Whether the guardian has written down that not all of it is in the step's cgroup; always so where there is none."""
        parts = (self.place / "state").rglob("*.part")
        return any("\ncgroup\t0\n" in part.read_text(errors="replace") for part in parts)

    def begin(self) -> None:
        """The deed that ends it is done now."""
        self.deed = time.monotonic()
        self.deed_since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)

    def age_at_deed(self, who: Identity) -> float:
        """How many seconds old a process was when the deed was done; negative for one that was started later."""
        return self.deed_since_boot - who.started / os.sysconf("SC_CLK_TCK")

    def order(self, text: str, *, after_deed: bool = False) -> None:
        """Tells the command how to end; that is the deed unless another one was done before and lasts."""
        if not after_deed:
            self.begin()
        scratch = self.place / "order.new"
        scratch.write_text(text)
        scratch.rename(self.place / "order")

    def signal(self, number: int) -> None:
        """A signal to the tool itself."""
        self.begin()
        os.kill(self.child.pid, number)

    def type(self, key: bytes) -> None:
        self.begin()
        os.write(self.master, key)

    def hang_up(self) -> None:
        """The terminal is closed."""
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def kill(self, *names: str) -> None:
        """KILL to these, all found first."""
        members = self.members()
        missing = [name for name in names if not members[name]]
        assert not missing, f"no {missing} in {members}"
        self.begin()
        for name in names:
            for pid in members[name]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # Its end

    def watch(self, patience: float) -> Ended:
        """Until nothing of it changes any more, for *patience* seconds at most."""
        assert self.deed is not None
        deed = self.deed
        limit = deed + patience
        tool_s = word_s = queue_s = None
        at_word: Counter[str] = Counter()
        outcome = "none"
        while time.monotonic() < limit:
            if tool_s is None and self.child.poll() is not None:
                tool_s = time.monotonic() - deed
            if word_s is None and self.tool == SAFE and tool_s is not None:
                if self.child.returncode != -signal.SIGKILL:
                    at_word, word_s = self.counted(), tool_s
                    outcome = self.outcome()
                elif (outcome := self.outcome()) not in ("running", "none"):
                    at_word, word_s = self.counted(), time.monotonic() - deed
            if queue_s is None and self.in_queue() == "":
                queue_s = time.monotonic() - deed
                if self.tool == PLAIN:
                    at_word, word_s = self.counted(), queue_s
            if tool_s is not None and queue_s is not None:
                # Where there is no record nobody will say a word: then its end is when nothing runs.
                if word_s is not None or (outcome == "none" and not self.found() and not self.chain()):
                    break
            time.sleep(0.05)
        if word_s is None:
            at_word = self.counted()
        if self.tool == SAFE:
            wait_until(lambda: not self.found() and not self.chain(), 5)
        rows = self.found()
        left = Counter(name for _who, name in rows)
        ages = [(name, self.age_at_deed(who)) for who, name in rows]
        chain = [f"{who.pid} {name}" for who, name in self.chain()] if self.tool == SAFE else []
        said = self.said()
        return Ended(
            at_word=at_word,
            left=left,
            ages=ages,
            chain=chain,
            status=self.child.poll(),
            tool_s=tool_s,
            word_s=word_s,
            queue_s=queue_s,
            outcome=outcome,
            claim=outcome == "clean" or claims(said),
            said=said,
        )


def claims(said: str) -> bool:
    """Whether safe-srun's receipt says that everything of the session has gone."""
    doubts = ("could not", "no word", "not confirmed", "still in the queue", "not looked at")
    receipts = [line for line in said.splitlines() if line.startswith(("handwash: job", "handwash: step"))]
    return any(not any(doubt in line for doubt in doubts) for line in receipts)


@contextlib.contextmanager
def strangers(session: Session) -> Iterator[list[Identity]]:
    """Who looks like the session and is not of it: the same command as an escapee's, of alice and of bob."""
    command = ["bash", "-c", f"exec -a {session.token}:background sleep 100"]
    children = [session.cluster.popen(command, user=user) for user in ("alice", "bob")]
    try:
        people = [who for child in children if (who := identity(child.pid))]
        # The look-alikes of this run carry its token: they are not its processes.
        session.spared.update(people)
        yield people
    finally:
        for child in children:
            child.kill()
            child.wait()


@contextlib.contextmanager
def heir(session: Session) -> Iterator[list[Identity]]:
    """A process of alice outside of the session that has a pid which a process of the session had before it."""
    pids = [int(word) for word in (session.place / "lenders").read_text().split()]
    (session.place / "lend").touch()
    assert wait_until((session.place / "ready-to-lend").exists, 10)

    def start() -> tuple[int, subprocess.Popen[Any]]:
        child = session.cluster.popen(["sleep", "105.5"], user="alice")
        return child.pid, child

    def drop(child: subprocess.Popen[Any]) -> None:
        child.kill()
        child.wait()

    child = outside.start_as(pids, start, drop)
    try:
        yield [who for who in [identity(child.pid)] if who]
    finally:
        drop(child)


def lost(people: Collection[Identity]) -> list[str]:
    """Those of them that do not live any more."""
    return [f"{who.pid}" for who in people if not running(who)]
