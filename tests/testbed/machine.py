"""What all clusters of one machine share: the register of who is there, the fake device files, the ordinary users.

The register is a folder with a lock and a small JSON file. Whoever holds something has an entry with a slot number (from
which user names, ports and job ids follow) and, where it should end with a process, that process as its owner.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import pwd
import shutil
import stat as stat_module
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.testbed.processes import Identity, running, stat, wait_until

REGISTER = Path("/run/handwash-testbed")
DEVICES = (*(Path(f"/dev/nvidia{n}") for n in range(4)), Path("/dev/nvidiactl"), Path("/dev/nvidia-uvm"))
NULL_DEVICE = os.makedev(1, 3)
SBIN = "/usr/sbin:/usr/bin:/sbin:/bin"
_serial = itertools.count()


class Unavailable(RuntimeError):
    """A part that the test bed needs is missing on this machine; tests turn it into a skip."""


class Register:
    """The register while its lock is held."""

    def __init__(self, text: str) -> None:
        data: dict[str, Any] = json.loads(text) if text else {}
        self.holders: dict[str, dict[str, Any]] = data.get("holders", {})
        self.devices: list[str] = data.get("devices", [])

    def save(self) -> None:
        """Writes the register down, or removes it when nothing is in it."""
        if self.holders or self.devices:
            fresh = REGISTER / "register.new"
            fresh.write_text(json.dumps({"holders": self.holders, "devices": self.devices}, indent=1))
            fresh.replace(REGISTER / "register.json")
        else:
            shutil.rmtree(REGISTER)

    def add(self, key: str, entry: dict[str, Any]) -> None:
        """Adds a holder, on disk at once."""
        self.holders[key] = entry
        self.save()

    def slots(self) -> set[int]:
        """The slots that are taken."""
        return {entry["slot"] for entry in self.holders.values() if entry["slot"] is not None}

    def orphans(self) -> list[str]:
        """Holders whose owning process is gone."""
        return [
            key
            for key, entry in self.holders.items()
            if entry["owner"] is not None and not running(Identity(*entry["owner"]))
        ]

    def add_devices(self) -> None:
        """Makes the fake device files that are not there."""
        missing = [path for path in DEVICES if not path.exists()]
        self.devices += map(str, missing)
        self.save()
        for path in missing:
            try:
                os.mknod(path, 0o666 | stat_module.S_IFCHR, NULL_DEVICE)
            except OSError as error:
                raise Unavailable(f"cannot make the device file {path}: {error}") from error
            os.chmod(path, 0o666)

    def drop(self, key: str) -> None:
        """Strikes a holder out; the last one takes the device files with it."""
        self.holders.pop(key, None)
        if not self.holders:
            for path in self.devices:
                # A real driver loaded meanwhile has put its own device there: not ours to remove.
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(path).st_rdev == NULL_DEVICE:
                        os.unlink(path)
            self.devices = []


@contextlib.contextmanager
def register() -> Iterator[Register]:
    """The machine-wide register, locked; written back even after an error, removed when it has become empty."""
    if os.geteuid():
        raise Unavailable("the test cluster needs root, to have users of its own and to be slurmd")
    while True:
        REGISTER.mkdir(mode=0o700, exist_ok=True)
        try:
            lock = (REGISTER / "lock").open("a")
        except FileNotFoundError:
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(lock.fileno()), os.stat(REGISTER / "lock")):
                break
        lock.close()
    with lock:
        file = REGISTER / "register.json"
        content = Register(file.read_text() if file.exists() else "")
        try:
            yield content
        finally:
            content.save()


def owner() -> list[int]:
    """This process, as an entry's owner."""
    found = stat(os.getpid())
    assert found is not None
    return [os.getpid(), found.started]


@contextlib.contextmanager
def fake_devices() -> Iterator[tuple[Path, ...]]:
    """The fake NVIDIA device files for a test that needs no cluster; shared with every cluster on this machine."""
    key = f"devices {os.getpid()}.{next(_serial)}"
    with register() as content:
        for gone in content.orphans():
            if content.holders[gone]["slot"] is None:
                content.drop(gone)
        content.add(key, {"slot": None, "owner": owner()})
        content.add_devices()
    try:
        yield DEVICES
    finally:
        with register() as content:
            content.drop(key)


def user_names(slot: int) -> tuple[str, str]:
    """The two ordinary users of the cluster in this slot."""
    return (f"hwalice{slot or ''}", f"hwbob{slot or ''}")


def account(name: str) -> pwd.struct_passwd | None:
    """The account of this name, if there is one."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def add_user(name: str, home: Path) -> None:
    """Makes an ordinary user with bash and an empty home."""
    # sshd takes a password that begins with "!" for a locked account where it runs without PAM; "*" merely never matches.
    done = subprocess.run(
        ["useradd", "-M", "-U", "-d", str(home), "-s", "/bin/bash", "-p", "*", "-c", "handwash test user", name],
        env={"PATH": SBIN},
        capture_output=True,
        text=True,
    )
    entry = account(name)
    if done.returncode or entry is None:
        raise Unavailable(f"cannot add the user {name}: {done.stderr.strip()}")
    home.mkdir(mode=0o755)
    os.chown(home, entry.pw_uid, entry.pw_gid)


def remove_user(name: str) -> None:
    """Removes a user that add_user made; the home goes with the cluster's folder."""

    def gone() -> bool:
        if account(name):
            subprocess.run(["userdel", name], env={"PATH": SBIN}, capture_output=True)
        return account(name) is None

    # userdel refuses while there is a process of the user, be it a zombie that init has not collected yet.
    wait_until(gone, 10)
