"""A person on a PBS cluster: handwash through its front door, as an ordinary user with a home and the stand-in's commands."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pexpect
import pytest
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from tests.testbed import processes
from tests.testbed.installed import interpreters
from tests.testbed.pbs import Pbs
from tests.testbed.processes import wait_until

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "handwash"
# With accounts on every Linux, and no processes: root's own work is judged by rules of its own, and is somebody's here.
NOBODIES = ("games", "nobody")
LIMIT = 30.0


class PbsWorld:
    """`run` and `json` as the World of Slurm's front-door tests; `env` is a login's, `inside` gives that of a job.

    `me`: the person, who is not root where the tests are. Everything started by `start` is ended by its identity.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.account = pwd.getpwuid(os.getuid())
        self.person: dict[str, Any] = {}
        if os.getuid() == 0:
            self.account = next(account for name in NOBODIES for account in pwd.getpwall() if account.pw_name == name)
            self.person = {"user": self.account.pw_uid, "group": self.account.pw_gid, "extra_groups": []}
        self.me = self.account.pw_name
        self.home = folder / "home"
        self.home.mkdir()
        os.chown(self.home, self.account.pw_uid, self.account.pw_gid)
        # This checkout may be somewhere that others cannot read.
        self.package = folder / "lib" / "handwash"
        shutil.copytree(PACKAGE, self.package, ignore=shutil.ignore_patterns("__pycache__", "*.mo"))
        catalogue = self.package / "messages" / "locale" / "zh_CN" / "LC_MESSAGES" / "handwash.po"
        with catalogue.open("rb") as words, catalogue.with_suffix(".mo").open("wb") as compiled:
            write_mo(compiled, read_po(words, "zh_CN"))
        python = next(path for path in (sys.executable, *interpreters()) if self._can_start(path))
        self.python = python
        self.handwash = [python, "-I", "-S", str(self.package / "__main__.py")]
        self.servers = 0
        self.pbs = self.server()
        self.env: dict[str, str] = {}
        self.on_login_node()
        self._started: dict[int, processes.Identity] = {}

    def _can_start(self, python: str) -> bool:
        try:
            return subprocess.run([python, "-I", "-c", ""], capture_output=True, cwd="/", **self.person).returncode == 0
        except OSError:
            return False

    def server(self, **options: Any) -> Pbs:
        """A server that this host belongs to, and that the person may ask."""
        self.servers += 1
        made = Pbs(self.folder / f"pbs{self.servers}", python=self.python, **options)
        made.node = os.uname().nodename.partition(".")[0]
        made.folder.chmod(0o777)
        (made.folder / "lock").touch()
        (made.folder / "lock").chmod(0o666)
        return made

    def _common(self) -> dict[str, str]:
        names = {"HOME": str(self.home), "LOGNAME": self.me, "USER": self.me, "LANG": "C.UTF-8"}
        return {**names, "XDG_CONFIG_DIRS": str(self.folder / "etc"), "SLURM_CONF": str(self.folder / "slurm.conf")}

    def _on(self, mom: bool) -> None:
        text = self.pbs.config.read_text()
        self.pbs.config.write_text(text.replace(f"PBS_START_MOM={int(not mom)}", f"PBS_START_MOM={int(mom)}"))
        self.env = {**self._common(), **self.pbs.environment()}

    def on_login_node(self) -> None:
        """By pbs.conf this host runs no jobs."""
        self._on(mom=False)

    def on_compute_node(self) -> None:
        """By pbs.conf this host runs jobs."""
        self._on(mom=True)

    def inside(self, job: str) -> dict[str, str]:
        """The environment that MOM gives to a job's processes."""
        return {**self._common(), **self.pbs.inside(job)}

    def job(self, **wanted: Any) -> str:
        """One of the person's, interactive and with a GPU."""
        return self.pbs.add(self.me, **{"interactive": True, "gpus": 1, **wanted})

    def start(self, *argv: str, env: Mapping[str, str] | None = None) -> int:
        """A program of the person's, in a session that its leader has left, with no terminal; gives its pid.

        Not a child of the tests, from which handwash is started as well: what descends from the asking shell is its own.
        """
        done = subprocess.run(
            ["/bin/sh", "-c", '"$@" <&- >&- 2>&- & echo $!', "sh", *argv], env=dict(self.env if env is None else env),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True, cwd="/", start_new_session=True,
            **self.person,
        )  # fmt: skip
        pid = int(done.stdout)
        who = processes.identity(pid)
        assert who is not None
        self._started[pid] = who
        # So far it may be a copy of that shell.
        assert wait_until(lambda: processes.arguments(pid) == list(argv), 10)
        return pid

    def sleeper(self, env: Mapping[str, str] | None = None) -> int:
        """Something that runs longer than any test."""
        return self.start("/bin/sleep", "110", env=env)

    def lives(self, pid: int) -> bool:
        """Whether one that `start` has started still runs."""
        return processes.running(self._started[pid])

    def close(self) -> None:
        for who in self._started.values():
            processes.send(who, signal.SIGKILL)

    def run(
        self, *words: str, env: Mapping[str, str | None] | None = None, whole: bool = False
    ) -> tuple[int, str, str]:
        """(exit code, stdout, stderr). `env` goes over a login's, or is all of it (`whole`).

        Refuses a `clean --yes` that would end anything but what `start` has started.
        """
        if words[:1] == ("clean",) and "--yes" in words:
            assert set(self.would_end(env=env, whole=whole)) <= set(self._started), "somebody else's processes"
        names = {**({} if whole else self.env), **(env or {})}
        done = subprocess.run(
            [*self.handwash, *words], env={name: value for name, value in names.items() if value is not None},
            stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", timeout=60, cwd="/",
            **self.person,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout, done.stderr

    def json(self, *words: str, **options: Any) -> tuple[int, dict[str, Any]]:
        code, out, err = self.run(*words, "--json", **options)
        assert out, err
        answer = json.loads(out)
        assert answer["schema"] == 1 and out.isascii()
        return code, answer

    def row(self, pid: int, **options: Any) -> dict[str, Any]:
        """One process as `check` has it."""
        rows = self.json("check", **options)[1]["processes"]["items"]
        return next(row for row in rows if row["pid"] == pid)

    def would_end(self, **options: Any) -> list[int]:
        """What `clean` would end."""
        return [row["pid"] for row in self.json("clean", "--dry-run", **options)[1].get("would_end", [])]

    def become(self) -> Callable[[], None]:
        """What a child on a terminal calls to be the person there."""

        def change() -> None:
            if self.person:
                os.fchown(0, self.account.pw_uid, self.account.pw_gid)
                os.setgroups([])
                os.setgid(self.account.pw_gid)
                os.setuid(self.account.pw_uid)
            os.chdir("/")

        return change

    def terminal(self, argv: list[str], env: Mapping[str, str] | None = None) -> pexpect.spawn:
        """A program of the person's on a terminal of its own."""
        names = {**(self.env if env is None else env), "TERM": "dumb"}
        return pexpect.spawn(
            argv[0], argv[1:], env=names, encoding="utf-8", codec_errors="replace", timeout=LIMIT,
            preexec_fn=self.become(), dimensions=(50, 200), echo=False,
        )  # fmt: skip


@pytest.fixture
def pbs_world(tmp_path: Path) -> Iterator[PbsWorld]:
    """A login node of a PBS cluster that answers, with nothing in the queue."""
    # pytest's own folder is closed to others.
    folder = Path(tempfile.mkdtemp(prefix="handwash-pbs-", dir="/var/tmp")) if os.getuid() == 0 else tmp_path
    folder.chmod(0o755)
    made = None
    try:
        made = PbsWorld(folder)
        yield made
    finally:
        if made is not None:
            made.close()
        if folder != tmp_path:
            shutil.rmtree(folder)
