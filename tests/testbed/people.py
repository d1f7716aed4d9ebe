"""Running programs as root or as one of a cluster's two ordinary users."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, ClassVar

from tests.testbed.configuration import PATH
from tests.testbed.remains import MARK


class People:
    """The part of a cluster that runs programs on it: needs only its folder and the names of its users."""

    shared_venv: ClassVar[Path | None] = None
    """Where handwash is installed for every cluster of this process that has no installation of its own."""

    directory: Path
    users: tuple[str, ...]
    venv: Path | None

    @property
    def programs(self) -> Path:
        """The folder of the programs that tests run in jobs, last on everybody's PATH."""
        return self.directory / "programs"

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
        venv = self.venv or type(self).shared_venv
        path = f"{'/usr/local/bin:/usr/bin:/bin' if user else PATH}:{self.programs}"
        return {
            "HOME": entry.pw_dir,
            "LANG": "C.UTF-8",
            "LOGNAME": entry.pw_name,
            "PATH": f"{venv}/bin:{path}" if venv else path,
            "SHELL": entry.pw_shell,
            "SLURM_CONF": str(self.directory / "slurm.conf"),
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
        finally:
            for stream in (child.stdin, child.stdout, child.stderr):
                if stream:
                    stream.close()
        done = subprocess.CompletedProcess(list(map(str, argv)), child.returncode, out, err)
        if check and child.returncode:
            raise AssertionError(f"{done.args} ended with {child.returncode}\n{out or ''}{err or ''}")
        return done
