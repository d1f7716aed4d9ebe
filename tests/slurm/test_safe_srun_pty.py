"""`safe-srun --pty bash` at a real terminal: job control, window size, terminal settings, Ctrl-C once and twice."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pexpect
import pytest
from tests.testbed import processes
from tests.testbed.cluster import Cluster
from tests.testbed.processes import identity, wait_until

pytestmark = pytest.mark.usefixtures("handwash_venv")
PROMPT = "READY:"


class Terminal:
    """bash at the submit host, as alice; programs are started in it as a person would."""

    def __init__(self, cluster: Cluster) -> None:
        env = {**cluster.env("alice"), "TERM": "xterm", "PS1": PROMPT, "HANDWASH_BANNER": "off"}
        self.child = pexpect.spawn(
            "/bin/bash", ["--norc", "--noprofile", "-i"], env=env, preexec_fn=cluster.become("alice"), timeout=20,
            encoding="utf-8", dimensions=(30, 100),
        )  # fmt: skip
        self.child.expect(PROMPT)
        self.run("bind 'set enable-bracketed-paste off' 2>/dev/null")

    def run(self, line: str) -> str:
        """A line to the next prompt; what was printed."""
        self.child.sendline(line)
        self.child.expect_exact(line[-20:])
        self.child.expect(f"\n{PROMPT}|\n.*{PROMPT}")
        return self.child.before + self.child.after

    def close(self) -> None:
        self.child.close(force=True)


@pytest.fixture
def terminal(cluster: Cluster, handwash_venv) -> Iterator[Terminal]:
    found = Terminal(cluster)
    yield found
    found.close()


def enter(terminal: Terminal, words: str = "safe-srun -w n1 --pty bash --norc --noprofile -i") -> str:
    """Into an interactive job; its id."""
    terminal.child.sendline(words)
    terminal.child.expect("READY:")
    return re.search(r"job=(\d+)", terminal.run("echo job=$SLURM_JOB_ID")).group(1)


def test_job_control_in_the_job(terminal: Terminal, cluster: Cluster) -> None:
    """Ctrl-C ends the foreground program only, Ctrl-Z stops it, fg continues it, the shell stays."""
    enter(terminal)
    child = terminal.child
    child.sendline("sleep 100")
    wait_until(lambda: sleepers(cluster, "100"), 10)
    child.sendintr()
    child.expect("READY:")
    assert "code=130" in terminal.run("echo code=$?")
    child.sendline("sleep 101")
    assert wait_until(lambda: sleepers(cluster, "101"), 10)
    child.sendcontrol("z")
    child.expect("Stopped")
    child.expect("READY:")
    assert processes.stat(sleepers(cluster, "101")[0]).state == "T"
    child.sendline("fg")
    assert wait_until(lambda: processes.stat(sleepers(cluster, "101")[0]).state == "S", 10)
    child.sendcontrol("\\")
    child.expect("READY:")
    assert "code=131" in terminal.run("echo code=$?")
    terminal.run("setsid sleep 102 & sleep 103 &")
    child.sendline("exit 5")
    child.expect("handwash: job [0-9]+: 2 processes ended; the job has left the queue")
    child.expect("READY:")
    assert "code=5" in terminal.run("echo code=$?")
    assert not sleepers(cluster, "102") and not sleepers(cluster, "103")


def sleepers(cluster: Cluster, seconds: str) -> list[int]:
    return [pid for pid in cluster.processes("alice") if processes.arguments(pid)[1:] == [seconds]]


def test_the_window_size_follows(terminal: Terminal) -> None:
    enter(terminal)
    assert "30 100" in terminal.run("stty size")
    terminal.child.setwinsize(44, 123)
    assert wait_until(lambda: "44 123" in terminal.run("stty size"), 10)
    terminal.child.sendline("exit")
    terminal.child.expect("READY:")


def test_the_terminal_settings_are_restored(terminal: Terminal) -> None:
    """After a program in the job that changed them and died, and after a normal end."""

    def settings():
        terminal.run(":")
        return terminal.run("stty -a")

    before = settings()
    enter(terminal)
    terminal.child.sendline("stty -echo raw; kill -9 $$")
    terminal.child.expect("READY:")
    assert settings() == before


def test_ctrl_c_once_reports_and_twice_ends(terminal: Terminal, cluster: Cluster) -> None:
    """As srun does it without --pty: the first one shows the tasks' states, a second within a second ends the step."""
    child = terminal.child
    child.sendline("safe-srun -w n1 bash -c 'trap \"\" INT; setsid sleep 104 & sleep 105'")
    assert wait_until(lambda: sleepers(cluster, "104") and sleepers(cluster, "105"), 10)
    child.sendintr()
    child.expect("one more within 1 sec to abort")
    child.expect("task 0: running")
    assert sleepers(cluster, "105")
    child.sendintr()
    child.sendintr()
    child.expect("handwash: job [0-9]+: .*the job .*has left the queue")
    child.expect("READY:")
    assert wait_until(lambda: not sleepers(cluster, "104") and not sleepers(cluster, "105"), 10)


def test_ctrl_z_stops_srun_and_safe_srun_together(terminal: Terminal, cluster: Cluster) -> None:
    """The shell sees a stopped job, fg brings it back, and it ends as it would have."""
    child = terminal.child
    child.sendline("safe-srun -w n1 bash -c 'until [ -e go ]; do sleep 0.1; done; rm go; exit 6'")
    assert wait_until(lambda: sleepers(cluster, "0.1"), 10)
    child.sendcontrol("z")
    child.expect("Stopped")
    child.expect("READY:")
    assert "Stopped" in terminal.run("jobs")
    child.sendline("touch go; fg")
    child.expect("handwash: job [0-9]+: nothing was left running; the job has left the queue")
    child.expect("READY:")
    assert "code=6" in terminal.run("echo code=$?")


def test_a_closed_terminal_ends_the_session(terminal: Terminal, cluster: Cluster) -> None:
    """The window is closed over a job with escapees: they end, and so does the job."""
    enter(terminal)
    terminal.run("setsid sleep 106 & sleep 107 &")
    assert wait_until(lambda: sleepers(cluster, "106") and sleepers(cluster, "107"), 10)
    pids = sleepers(cluster, "106") + sleepers(cluster, "107")
    terminal.close()
    assert wait_until(lambda: not [pid for pid in pids if identity(pid)], 15)
    assert wait_until(lambda: not cluster.jobs(), 15)


def test_local_is_stopped_and_continued_like_the_command(terminal: Terminal, cluster: Cluster) -> None:
    """Ctrl-Z, bg, fg and Ctrl-C of `safe-srun --local` at a shell."""
    child = terminal.child
    child.sendline("safe-srun --local sleep 108")
    assert wait_until(lambda: sleepers(cluster, "108"), 10)
    child.sendcontrol("z")
    child.expect("Stopped")
    child.expect("READY:")
    assert processes.stat(sleepers(cluster, "108")[0]).state == "T"
    terminal.run("bg")
    assert wait_until(lambda: processes.stat(sleepers(cluster, "108")[0]).state == "S", 10)
    child.sendline("fg")
    child.expect("sleep 108")
    # bash says the job's name before it hands the terminal over.
    group = os.getpgid(sleepers(cluster, "108")[0])
    assert wait_until(lambda: os.tcgetpgrp(child.child_fd) == group, 10)
    child.sendintr()
    child.expect("READY:")
    assert "code=130" in terminal.run("echo code=$?")
    assert not sleepers(cluster, "108")
