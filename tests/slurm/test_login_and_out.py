"""A login node where an ended job has left something: the banner shows it, the way out asks, cleans or writes it down."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tests.slurm.bystanders import bystanders
from tests.slurm.person import QUESTION, Person, alive, person, until
from tests.slurm.test_check import batch, left_by_a_job
from tests.testbed.cluster import Cluster
from tests.testbed.processes import Identity, running


@pytest.fixture
def alice(handwash_venv: object, cluster_linuxproc: Cluster) -> Iterator[Person]:
    with person(cluster_linuxproc) as found:
        yield found


@pytest.fixture
def left(handwash_venv: object, cluster_linuxproc: Cluster) -> Iterator[tuple[str, list[Identity]]]:
    """What an ended job of alice's has left: its number, and three sleepers."""
    with left_by_a_job(cluster_linuxproc) as found:
        yield found


def rows(text: str, sleepers: list[Identity]) -> list[str]:
    """The table's line for each of them."""
    lines = text.replace("\r", "").splitlines()
    return [line for who in sleepers for line in lines if line.strip().startswith(f"{who.pid} ")]


def test_the_full_banner(alice: Person, left: tuple[str, list[Identity]]) -> None:
    """Where one is, the three looks, each thing that is left over, and what to type; on standard error, with exit code 0."""
    job, sleepers = left
    with batch(alice.cluster, "-J", "training", "--gres=gpu:1", "-w", "n2") as living:
        terminal = alice.opens(HANDWASH_BANNER="full", NO_COLOR="1")
        shown = terminal.greeting.replace("\r", "")
        quiet = alice.cluster.run(["handwash", "banner"], user="alice")
    assert (quiet.returncode, quiet.stdout) == (0, "")
    for text in (shown, quiet.stderr):
        assert re.search(r"^  \S+: login node, for editing and submitting", text, re.MULTILINE), text
        assert re.search(rf"^  jobs +{living} RUNNING, 1 GPU, training", text, re.MULTILINE), text
        assert re.search(r"^  GPUs +\S", text, re.MULTILINE), text
        assert re.search(r"^  processes +\d+ of yours here, 3 left over(;|$)", text, re.MULTILINE), text
        found = rows(text, sleepers)
        assert len(found) == 3 and all("sleep 108." in row and job in row and "an ended job" in row for row in found)
        assert all(row.rstrip().endswith("goes on") for row in found), found
        assert "3 processes are left over. To end what is left over: handwash clean" in text
    # The shell's own first line comes before any of it.
    assert shown.lstrip().startswith("handwash: ") and shown.index("no job in this shell") < shown.index("jobs ")


def test_a_banner_with_nothing_left_over(alice: Person) -> None:
    """The three looks, and no table."""
    said = alice.cluster.run(["handwash", "banner"], user="alice").stderr
    assert re.search(r"^  jobs +none$", said, re.MULTILINE) and ", 0 left over" in said
    assert "PID" not in said and "left over." not in said


def test_a_closed_terminal_is_told_at_the_next_login(alice: Person, left: tuple[str, list[Identity]]) -> None:
    """Nobody is there to be asked: nothing is ended, and the next banner names what still runs, once."""
    _job, (ended, *sleepers) = left
    terminal = alice.opens()
    terminal.hang_up()
    notes = alice.home / ".local" / "state" / "handwash"
    until(lambda: list(notes.glob("left-behind.*")), "nothing was written down")
    assert running(ended) and all(map(running, sleepers))
    # What has ended meanwhile does not run still.
    alice.cluster.run(["kill", "-KILL", str(ended.pid)], user="alice", check=True)
    until(lambda: not running(ended), "it still runs")
    first, second = (alice.opens(HANDWASH_BANNER="full").greeting for _ in range(2))
    told = first.partition("Still running since your terminal closed: ")[2].partition(".")[0]
    assert sorted(told.split(", ")) == sorted(f"{who.pid} sleep" for who in sleepers), first
    assert "Still running" not in second and all(map(running, sleepers))


@pytest.mark.parametrize("how", ["exit", "eof", "hup"])
def test_clean_at_exit(alice: Person, left: tuple[str, list[Identity]], how: str) -> None:
    """HANDWASH_ON_EXIT=clean ends what is left over without a question, and nothing else; the status is the shell's."""
    _job, sleepers = left
    with bystanders(alice.cluster):
        terminal = alice.opens(HANDWASH_ON_EXIT="clean")
        if how == "hup":
            terminal.hang_up()
            until(lambda: not any(map(running, sleepers)), "something was not ended")
        else:
            terminal.leave(how, 3)
            assert terminal.ends() == 3
            assert not any(map(running, sleepers))
            assert "3 processes ended, 0 by KILL." in terminal.rest and "stay (default)" not in terminal.rest
    assert not list((alice.home / ".local" / "state" / "handwash").glob("left-behind.*"))


def test_the_outermost_shell_of_a_terminal_asks(alice: Person, left: tuple[str, list[Identity]]) -> None:
    """A shell within does not; an allocation's own shell does, as it ends one."""
    _job, sleepers = left
    terminal = alice.opens()
    for nested in ("bash -i", "sh -c 'bash -i; exit 4'"):
        outer = terminal.run("echo $$").strip()
        terminal.child.sendline(nested)
        terminal.prompt()
        assert terminal.run("echo $$").strip() != outer
        said = terminal.run("exit 4")
        assert terminal.status == 4 and "handwash" not in said, (nested, said)
        assert terminal.run("echo $$").strip() == outer
    terminal.child.sendline("salloc -Q bash -i")
    terminal.prompt()
    assert terminal.run("echo job=$SLURM_JOB_ID").strip() != "job="
    for shell in ("allocation", "login"):
        terminal.child.sendline("exit 5")
        terminal.child.expect(QUESTION)
        assert len(rows(str(terminal.child.before), sleepers)) == 3
        terminal.child.sendline("l")
        if shell == "allocation":
            terminal.prompt()
            assert terminal.status == 5
    assert terminal.ends() == 5
    assert all(alive(who.pid) for who in sleepers)
