"""Leaving an interactive job of PBS, at a real terminal: what goes on, what ends with the job, and the question at exit.

PBS ends the session that its shell leads, and waits before that for as long as anything holds the terminal.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from tests.testbed import processes
from tests.testbed.pbs_world import PbsWorld

PROMPT = "ready> "
AWAY = "</dev/null >/dev/null 2>&1"


class Shell:
    """An interactive bash in a job, leader of its session, as on `qsub -I`'s terminal but for MOM above it."""

    def __init__(self, world: PbsWorld, env: dict[str, str]) -> None:
        self.world = world
        self.env = env
        self.mine: list[processes.Identity] = []
        names = {**env, "PS1": PROMPT, "HISTFILE": "/dev/null"}
        self.child = world.terminal(["/bin/bash", "--norc", "--noprofile", "-i"], names)
        self.child.expect_exact(PROMPT)

    def type(self, line: str) -> str:
        """What a command line says."""
        self.child.sendline(line)
        self.child.expect_exact(PROMPT)
        return str(self.child.before)

    def background(self, how: str = "", streams: str = AWAY) -> int:
        """Something that runs for minutes, put into the background; its pid. setsid starts it as a child of its own."""
        path = Path(self.world.home) / "pid"
        self.type(f"{how} sh -c 'echo $$ >~/new; mv ~/new ~/pid; exec sleep 110' {streams} &")
        assert processes.wait_until(path.exists, 10)
        pid = int(path.read_text())
        path.unlink()
        who = processes.identity(pid)
        assert who is not None
        self.mine.append(who)
        assert processes.wait_until(lambda: processes.arguments(pid) == ["sleep", "110"], 10)
        return pid

    def handwash(self, *words: str) -> str:
        return shlex.join([*self.world.handwash, *words])

    def check(self) -> tuple[int, dict[str, Any]]:
        """`handwash check --json` typed here: its exit code and answer."""
        path = Path(self.world.home) / "answer"
        code = self.type(f"{self.handwash('check', '--json')} >{path}; echo =$?").rpartition("=")[2]
        return int(code), json.loads(path.read_text())

    def fates(self, *pids: int) -> list[tuple[str, str, bool]]:
        rows = {row["pid"]: row for row in self.check()[1]["processes"]["items"]}
        return [(rows[pid]["whose"], rows[pid]["fate"], rows[pid]["leftover"]) for pid in pids]

    def close(self) -> None:
        for who in self.mine:
            processes.send(who, 9)
        self.child.close(force=True)


ENDS, SURVIVES = ("session", "ends-with-job", True), ("session", "survives", True)


@pytest.fixture
def shell(pbs_world: PbsWorld) -> Iterator[Shell]:
    pbs_world.on_compute_node()
    made = Shell(pbs_world, pbs_world.inside(pbs_world.job()))
    try:
        yield made
    finally:
        made.close()


def test_nothing_was_left(shell: Shell) -> None:
    """A shell in a job with nothing beside it is clean, and leaves without a word, though it holds a terminal itself."""
    code, answer = shell.check()
    assert (code, answer["verdict"]) == (0, "clean"), answer
    assert shell.type(f"{shell.handwash('leave', 'exit')}; echo =$?").split() == ["=0"]


def test_what_leaves_the_terminal_alone(shell: Shell) -> None:
    """nohup with its streams elsewhere ends with the session; setsid leads one of its own, and goes on."""
    stays = shell.background("nohup")
    leaves = shell.background("setsid")
    assert shell.fates(stays, leaves) == [ENDS, SURVIVES]
    # A pager is no leftover, and keeps nothing.
    said = shell.type(f"{shell.handwash('check')} | cat")
    assert "ends with the job" in said and "goes on" in said


def test_what_holds_the_terminal_keeps_everything(shell: Shell) -> None:
    """A plain `sleep &`: neither it nor anything beside it ends, until it has gone."""
    quiet = shell.background("nohup")
    assert shell.fates(quiet) == [ENDS]
    holds = shell.background(streams="")
    assert shell.fates(quiet, holds) == [SURVIVES, SURVIVES]
    processes.send(shell.mine[-1], 9)
    assert processes.wait_until(lambda: not processes.running(shell.mine[-1]), 10)
    assert shell.fates(quiet) == [ENDS]


@pytest.mark.parametrize(("answer", "code"), [("", 75), ("s", 75), ("l", 0)])
def test_leaving(shell: Shell, answer: str, code: int) -> None:
    """Asked once, with what will become of each; staying is the default, and leaving as it is ends nothing."""
    stays = shell.background("nohup")
    leaves = shell.background("setsid")
    shell.child.sendline(f"{shell.handwash('leave', 'exit')}; echo =$?")
    shell.child.expect_exact("stay (default): ")
    said = shell.child.before
    assert f"inside your job {shell.env['PBS_JOBID']}" in said
    assert f"These go on after you leave and may cost GPU-hours: {leaves}" in said
    assert f"These end with this session: {stays}" in said
    shell.child.sendline(answer)
    shell.child.expect(r"=(\d+)")
    assert int(shell.child.match[1]) == code
    assert all(map(processes.running, shell.mine))
    # The second attempt in a row is not held.
    shell.child.expect_exact(PROMPT)
    assert shell.type(f"{shell.handwash('leave', 'exit', '--again')}; echo =$?").split()[-1] == "=0"


def test_cleaning_up_at_exit(shell: Shell) -> None:
    """What this session has left, and nothing of another job of the same person's on the same node."""
    world = shell.world
    other = world.sleeper(world.inside(world.job(interactive=False)))
    shell.background("nohup")
    shell.background(streams="")
    shell.child.sendline(f"{shell.handwash('leave', 'exit')}; echo =$?")
    shell.child.expect_exact("stay (default): ")
    assert str(other) not in shell.child.before
    shell.child.sendline("c")
    shell.child.expect(r"=(\d+)")
    assert int(shell.child.match[1]) == 0
    assert not any(map(processes.running, shell.mine)) and world.lives(other)
    assert world.pbs.asked() == []


def test_the_end_of_the_terminal(shell: Shell) -> None:
    """With nobody to ask it lets go and leaves a note, which the next banner shows."""
    left = shell.background("setsid")
    assert shell.type(f"{shell.handwash('leave', 'hup')}; echo =$?").split()[-1] == "=0"
    assert all(map(processes.running, shell.mine))
    assert f"{left} sleep" in shell.type(shell.handwash("banner"))


def test_the_job_is_over(shell: Shell) -> None:
    """A shell that outlives its job, as one that something kept: said so, and what it has left is left over."""
    job = shell.env["PBS_JOBID"]
    quiet = shell.background("nohup")
    shell.world.pbs.end(job)
    assert f"outlives its job {job}" in shell.type(shell.handwash("check"))
    assert shell.fates(quiet) == [("ended-job", "survives", True)]


def test_a_hanging_server_holds_nobody(shell: Shell) -> None:
    """At exit too: said, in time, and let go; with something of this session found it asks all the same."""
    shell.world.pbs.hang()
    shell.type("export HANDWASH_DEADLINE=1")
    said = shell.type(f"{shell.handwash('leave', 'exit')}; echo =$?")
    assert "could not tell" in said and said.split()[-1] == "=0"
    pid = shell.background("nohup")
    shell.child.sendline(f"{shell.handwash('leave', 'exit')}; echo =$?")
    assert shell.child.expect_exact(["stay (default): ", pexpect.EOF]) == 0
    assert str(pid) in shell.child.before
    shell.child.sendline("l")
    shell.child.expect("=0")
