"""`handwash leave` where something could not be told: it says what and why, and lets go, in time."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Callable

import pexpect
import pytest
from tests.contract.test_front_door import HANDWASH, World, lives, until
from tests.contract.test_front_door import world as world
from tests.testbed.driver.fake import GIB, FakeDriver

DEADLINE = 1.0
# Starting the interpreter, a busy machine with two cores.
LATE = 1.5
SAID = "handwash: could not tell whether anything of yours goes on here:"


def silent_queue(world: World, driver: FakeDriver) -> None:
    world.script("squeue", f"trap '' TERM; echo $$ >{world.folder}/pid; /bin/sleep 60; /bin/sleep 60")


def failing_queue(world: World, driver: FakeDriver) -> None:
    world.script("squeue", "echo 'slurm_load_jobs error: \033[31mno controller' >&2; exit 1")


def silent_driver(world: World, driver: FakeDriver) -> None:
    driver.delay("nvmlInitWithFlags", "forever")


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (silent_queue, "Could not tell which jobs are yours: "),
        (failing_queue, "Could not tell which jobs are yours: squeue failed (exit code 1): "),
        (silent_driver, "Could not tell who is on the GPUs: The NVIDIA driver does not answer within "),
    ],
    ids=["squeue hangs", "squeue fails", "nvmlInit hangs"],
)
@pytest.mark.parametrize("how", ["exit", "eof", "hup"])
def test_what_could_not_be_told_holds_nobody(
    world: World, fake_driver: FakeDriver, broken: Callable[[World, FakeDriver], None], why: str, how: str
) -> None:
    """0, whichever way out and whatever is to be done at exit, with the reason; where the terminal is gone not a word."""
    broken(world, fake_driver.gpus(2, memory_total=40 * GIB))
    env = {**fake_driver.env(), "HANDWASH_DEADLINE": str(DEADLINE)}
    for on_exit in ("ask", "warn") if how == "exit" else ("ask",):
        started = time.monotonic()
        code, out, err = world.run("leave", how, env={**env, "HANDWASH_ON_EXIT": on_exit})
        assert time.monotonic() - started < DEADLINE + LATE
        assert (code, out) == (0, "")
        if how == "hup":
            assert err == "" and not list(world.home.rglob("left-behind.*"))
        else:
            first, *rest = err.splitlines()
            assert first == SAID and [line for line in rest if line.strip().startswith(why)], err
            assert "\033" not in err
    pid = world.folder / "pid"
    if pid.exists():
        until(lambda: not lives(int(pid.read_text())))


def test_all_is_told_and_clean(world: World, fake_driver: FakeDriver) -> None:
    """Else the above would prove nothing: with answers there is not a word."""
    env = {**fake_driver.gpus(2, memory_total=40 * GIB).env(), "HANDWASH_DEADLINE": "5"}
    assert world.run("leave", "exit", env=env) == (0, "", "")


@contextmanager
def left_over() -> Iterator[int]:
    """Of a safe-srun session that is over, on the login node: no answer of the queue can make that a living job's."""
    with subprocess.Popen(
        ["/bin/sleep", "60"], stdin=subprocess.DEVNULL, start_new_session=True,
        env={"HANDWASH_SESSION": "20200101-000000-0123456789ab"},
    ) as sleeper:  # fmt: skip
        try:
            yield sleeper.pid
        finally:
            sleeper.kill()


def test_left_over_and_not_told(world: World) -> None:
    """What was found is held against the person as ever, with what could not be told below it."""
    world.script("squeue", "exit 1")
    with left_over() as pid:
        code, _out, err = world.run("leave", "exit", env={"HANDWASH_ON_EXIT": "warn"})
    assert code == 0 and "handwash: before you leave " in err and f"\n{pid} " in err.replace("\n ", "\n")
    assert err.rstrip().endswith("squeue failed (exit code 1): no reason given"), err


SLURM = "SLURM_JOB_ID=42"
PBS = "PBS_ENVIRONMENT=PBS_INTERACTIVE PBS_JOBID=12.vm"


@pytest.mark.parametrize(
    ("outer", "inner", "last"),
    [
        ("", "", False),
        ("", SLURM, True),
        (SLURM, "", False),
        (SLURM, "SLURM_JOB_ID=43", True),
        ("", PBS, True),
        (PBS, "", False),
        (PBS, "PBS_JOBID=13.vm", True),
        (PBS, SLURM, True),
        ("", "PBS_JOBID=12.vm", False),
        (SLURM, PBS, False),
    ],
)
def test_a_shell_within_another_one_of_its_terminal_and_job(world: World, outer: str, inner: str, last: bool) -> None:
    """Nothing is asked there; the shell of another job than that of the one above it is the last of its job.

    `inner`: what its environment has beside, or in place of, that of the outer one.
    """
    # The last command of a shell could take the shell's place.
    asking = f"env {inner} bash -c {shlex.quote(shlex.join([*HANDWASH, 'leave', 'exit']) + '; :')}; :"
    env = {**world.env, "PATH": f"{world.bin}:/usr/bin:/bin", "HANDWASH_ON_EXIT": "warn", "TERM": "dumb"}
    with left_over() as pid:
        child = pexpect.spawn("env", [*outer.split(), "bash", "-c", asking], env=env, encoding="utf-8", timeout=20)
        said = child.read()
        child.close()
    assert child.exitstatus == 0
    assert (str(pid) in said.split(), said != "") == (last, last), said
