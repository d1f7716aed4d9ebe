"""A shell that was opened on a compute node outside of all jobs, as by ssh: beside which jobs, and whether it outlives them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from handwash import opened, paths, world
from handwash.frozen import replace
from handwash.model import Job, Node, Site, Survey, Unknown
from handwash.teardown import identity

BESIDE = Job("42", "42", "RUNNING", "x", "main", (world.host(),), 1, 5, None, True, "login1.site", 7)
OUTSIDE = Node("compute", world.host(), None, False, (), controller=False)


def beside(jobs: tuple[Job, ...] | Unknown = (BESIDE,), node: Node | Unknown = OUTSIDE, **changes: Any) -> Survey:
    return Survey(node, jobs, (), (), Site(), **changes)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder.

    This process stands for the leader of its session: the real one may be over, or of another PID namespace (getsid(2): 0).
    """
    monkeypatch.setattr(world, "env", {"XDG_STATE_HOME": str(tmp_path)})
    leads(monkeypatch, os.getpid())
    return tmp_path / "handwash"


def leads(monkeypatch: pytest.MonkeyPatch, leader: int) -> None:
    monkeypatch.setattr(os, "getsid", lambda _pid: leader)


@pytest.mark.parametrize(
    ("seen", "noted"),
    [
        (beside(), True),
        (beside((BESIDE, replace(BESIDE, number="43", nodes=("other",)))), True),
        (beside(()), False),
        (beside(Unknown("w")), False),
        (beside(node=Unknown("w")), False),
        (beside(node=replace(OUTSIDE, job="42")), False),
        (beside(node=replace(OUTSIDE, kind="login")), False),
        (beside((replace(BESIDE, nodes=("other",)),)), False),
        # Where people submit from here, they are here without a job as well.
        (beside((replace(BESIDE, alloc_host=""),)), False),
        (beside((replace(BESIDE, alloc_host=world.host()),)), False),
        (beside((replace(BESIDE, alloc_host="localhost"),)), True),
        (beside((replace(BESIDE, alloc_host="localhost"),), replace(OUTSIDE, controller=True)), False),
        (beside((replace(BESIDE, alloc_host="localhost"),), replace(OUTSIDE, controller=None)), False),
    ],
)
def test_the_jobs_beside_which_a_shell_was_opened(state: Path, seen: Survey, noted: bool) -> None:
    """Noted for the session's leader alone, and found again from below it."""
    opened.note(seen)
    assert notes() == ([["42"]] if noted else [])
    assert opened.look() == (["42"] if noted else [])


@pytest.mark.parametrize("is_over", [False, True])
def test_a_session_whose_leader_is_not_here(state: Path, is_over: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is over, or of another PID namespace: no note, for none could tell when the shell is over."""
    with subprocess.Popen(["/bin/true"]) as gone:
        gone.wait()
    leads(monkeypatch, gone.pid if is_over else 0)
    opened.note(beside())
    assert notes() == [] and opened.look() == []


def notes() -> list[list[str]]:
    rows = [opened._row(name) for name in opened._names()]
    return sorted(row[2] for row in rows if row is not None)


def test_notes_of_other_shells_stay_as_long_as_these(state: Path) -> None:
    """Those of another host are not looked at; what is damaged or of another boot goes."""
    with subprocess.Popen(["/bin/sleep", "60"]) as living:
        try:
            state.mkdir()
            here, start = identity.boot_id(), identity.start_of(living.pid)
            lines = [f"{here} {living.pid} {start} 7", f"{here} {living.pid} 1 8", f"another {living.pid} {start} 9"]
            lines += ["\x1b[31m", "", f"{here} 1 2", f"{here} 1 2 x\x1b"]
            for number, line in enumerate(lines):
                (state / f"opened.{world.host()}.{number}").write_text(line)
            (state / "opened.elsewhere.1").write_text(lines[1])
            opened.note(beside())
            assert notes() == [["42"], ["7"]]
            names = [f"opened.{world.host()}.{number}" for number in (0, os.getpid())]
            assert sorted(one.name for one in state.iterdir()) == sorted(["opened.elsewhere.1", *names])
        finally:
            living.kill()


def test_two_logins_at_once(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other notes its own just before this one writes: both stand."""
    with subprocess.Popen(["/bin/sleep", "60"], start_new_session=True) as other:
        try:
            write, leader = paths.write_whole, os.getpid()

            def later(path: str, content: bytes) -> None:
                monkeypatch.setattr(paths, "write_whole", write)
                leads(monkeypatch, other.pid)
                opened.note(beside((replace(BESIDE, number="7"),)))
                leads(monkeypatch, leader)
                write(path, content)

            monkeypatch.setattr(paths, "write_whole", later)
            opened.note(beside())
            assert notes() == [["42"], ["7"]]
        finally:
            other.kill()


def test_a_note_on_a_full_disk(state: Path) -> None:
    """Costs the note."""
    state.touch()
    opened.note(beside())
    assert opened.look() == []


@given(st.binary(max_size=200))
@example(b"1" * 5000 + b" 1 1")
@example(b"1 " + b"1" * 5000 + b" 1")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_note_of_an_opened_shell(state: Path, content: bytes) -> None:
    """Whatever the file holds."""
    state.mkdir(exist_ok=True)
    name = f"opened.{world.host()}.{os.getpid()}"
    (state / name).write_bytes(identity.boot_id().encode() + b" " + content)
    row = opened._row(name)
    assert row is None or (row[0] >= 0 and row[1] >= 0)
    assert row is None or all(0 < len(job) <= 300 and job.isascii() and job.isprintable() for job in row[2])
    opened.look()
    opened.note(beside())


@pytest.mark.parametrize(
    ("changes", "job"),
    [
        ({"jobs": ()}, "42"),
        ({"jobs": (replace(BESIDE, id="43", number="43", nodes=("other",)),)}, "42"),
        ({}, None),
        # Requeued: it can come back.
        ({"jobs": (replace(BESIDE, state="PENDING", nodes=()),)}, None),
        ({"jobs": (replace(BESIDE, id="43", number="43"),)}, None),
        ({"jobs": Unknown("w")}, None),
        ({"jobs": (), "node": Unknown("w")}, None),
        ({"jobs": (), "node": replace(OUTSIDE, job="7")}, None),
        ({"jobs": (), "node": replace(OUTSIDE, kind="login")}, None),
        ({"jobs": (), "opened_beside": ()}, None),
    ],
)
def test_a_shell_that_outlives_the_job_beside_which_it_was_opened(changes: dict, job: str | None) -> None:
    """Never where one of them, or any other job of the person's, still has a place on this node."""
    assert opened.over(beside(**{"opened_beside": ("41", "42"), **changes})) == job
