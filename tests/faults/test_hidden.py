"""Where /proc shows nobody else's processes (hidepid=2), it does not show one's own either that are not dumpable."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.testbed import processes
from tests.testbed.processes import identity, running, wait_until

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a /proc and become somebody else")

NOBODY = 65534
# Seconds that no other run of these tests sleeps.
NAP, OTHER = (f"109.{os.getpid()}{number}" for number in (1, 2))
# prctl(2): PR_SET_DUMPABLE is 4.
HIDDEN = (
    "/usr/bin/python3 -I -S -c 'import ctypes, os, signal, sys, time; {before}ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); "
    f'open("ready", "w").close(); time.sleep(109)\' {NAP} >/dev/null 2>&1 </dev/null & '
    "until [ -e ready ]; do sleep 0.01; done; rm ready; "
)


class Nobody:
    """An ordinary user with a home, in a world whose /proc is mounted so."""

    def __init__(self, home: Path, venv: Path) -> None:
        self.home = home
        self.env = {"PATH": f"{venv}/bin:/usr/bin:/bin", "HOME": str(home), "HANDWASH_GRACE": "0.5", "LANG": "C.UTF-8"}

    def popen(self, *argv: str) -> subprocess.Popen[str]:
        script = 'mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"'
        return subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", script, "sh", *argv], env=self.env, cwd=self.home,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def is_held(self) -> bool:
        """Whether this session's guardian has a pidfd; an earlier test's may be on its way out."""
        mine = [pid for pid in processes.pids() if processes.environment(pid).get("HOME") == str(self.home)]
        return any("anon_inode:[pidfd]" in processes.open_files(pid) for pid in mine)

    def supervised(self, script: str) -> subprocess.Popen[str]:
        return self.popen("safe-srun", "--local", "bash", "-c", script)


def marked(mark: str) -> list[int]:
    return [pid for pid in processes.pids() if mark in processes.arguments(pid)[-1:] and identity(pid)]


@pytest.fixture
def nobody(handwash_venv: Path) -> Iterator[Nobody]:
    folder = Path(tempfile.mkdtemp(prefix="handwash-hidden-"))
    os.chown(folder, NOBODY, NOBODY)
    somebody = Nobody(folder, handwash_venv)
    bystander = somebody.popen("bash", "-c", HIDDEN.format(before="").replace(NAP, OTHER) + "echo up; wait")
    assert bystander.stdout is not None and bystander.stdout.readline() == "up\n", bystander.communicate()
    (other,) = map(identity, marked(OTHER))
    yield somebody
    assert other is not None and running(other)
    os.kill(other.pid, signal.SIGKILL)
    bystander.communicate(timeout=10)
    left = processes.end_all(lambda: marked(NAP))
    shutil.rmtree(folder)
    assert not left


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("", "1 process ended"),
        ("os.setsid(); ", "1 process ended"),
        ("signal.signal(15, signal.SIG_IGN); ", "1 process ended (1 needed KILL)"),
        ("os.fork(); ", "2 processes ended"),
    ],
    ids=["child", "setsid", "ignores-TERM", "two"],
)
def test_one_that_is_not_dumpable(nobody: Nobody, before: str, said: str) -> None:
    child = nobody.supervised(HIDDEN.format(before=before) + "exit 3")
    out, errors = child.communicate(timeout=30)
    assert (child.returncode, out, errors) == (3, "", f"handwash: {said}\n")
    assert marked(NAP) == []


def test_an_ssh_agent(nobody: Nobody) -> None:
    if not shutil.which("ssh-agent"):
        pytest.skip("ssh-agent is not installed")
    child = nobody.supervised('ssh-agent -a "$HOME/agent" >/dev/null; exit 4')
    _out, errors = child.communicate(timeout=30)
    agent = f"{nobody.home}/agent"
    assert (child.returncode, errors) == (4, "handwash: 1 process ended\n")
    assert not [pid for pid in processes.pids() if agent in processes.arguments(pid) and identity(pid)]


@pytest.mark.parametrize(
    "before", ["os.setsid(); ", "signal.signal(15, signal.SIG_IGN); "], ids=["setsid", "ignores-TERM"]
)
def test_both_supervisors_killed(nobody: Nobody, before: str) -> None:
    """The guardian has taken hold of it before."""
    child = nobody.supervised(HIDDEN.format(before=before) + "echo up; exec sleep 109")
    assert child.stdout is not None and child.stdout.readline() == "up\n"
    (hidden,) = marked(NAP)
    # Its looks become rare on a busy machine, so as to take no part in it.
    assert wait_until(nobody.is_held, 60)
    chain = [child.pid, *(int(pid) for pid in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split())]
    assert len(chain) == 2
    for pid in chain:
        os.kill(pid, signal.SIGKILL)
    child.communicate(timeout=20)
    assert wait_until(lambda: identity(hidden) is None, 20)
