"""The parts of the watch over GPUs while a session runs: when the guardian has them looked at, and what the keeper tells."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pexpect
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.testbed.processes import wait_until

from handwash.commands import idle_look
from handwash.frozen import replace
from handwash.idle import Doing
from handwash.model import Gpu, Node, Site, Survey, Unknown
from handwash.node import idle as watching
from handwash.node import wire
from handwash.node.idle import Watch
from handwash.node.part import Part
from handwash.node.wire import Orders
from handwash.schedulers.slurm_step import Target
from handwash.srun import idle_told, record
from handwash.srun.idle_told import Teller

SESSION = "20260101-000000-0123456789ab"
OWN = Target(("42",), "0", True, "")
NOW = 1_700_000_000.0
ROW = ("n1", "2", "0, 1", "0", "18", f"{NOW - 3600:.0f}", "0")


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(Orders(SESSION, 1.0, str(tmp_path), {}, idle_s=600.0), Part(SESSION, str(tmp_path)))


def hears(watch: Watch, monkeypatch: pytest.MonkeyPatch, *fields: object) -> float | None:
    """What a look has said; in how many seconds the next one is due."""
    monkeypatch.setattr(watch, "collect", lambda: None)
    watch.answer = (wire.join(fields) + "\n").encode()
    watch.take_in(1000.0)
    return None if watch.next is None else watch.next - 1000.0


def test_orders_carry_it() -> None:
    assert Orders.unpack(Orders("id", 1.0, "", {"A": "b"}, True, 600.0).pack()).idle_s == 600.0
    assert Orders.unpack(Orders("id", 1.0, "", {"A": None}).pack()).idle_s == 0.0


def test_when_it_is_looked(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """First when even a program that came with the task is old enough; while there is work ever more seldom."""
    assert watch.next is not None and watch.next - watch.begun == pytest.approx(660)
    assert [hears(watch, monkeypatch, "busy") for _look in range(4)] == [1200.0, 2400.0, 3600.0, 3600.0]
    assert hears(watch, monkeypatch, "quiet") == 300.0
    assert watch.part.idle == []
    fields = ["2", "0, 1", "0", "18", "1700000000", "0"]
    assert hears(watch, monkeypatch, "idle", *fields) == 3600.0 and watch.part.idle == fields
    assert [row[1:] for row in watch.part.rows() if row[0] == "idle"] == [tuple(fields)]
    assert hears(watch, monkeypatch, "busy") == 3600.0 and watch.part.idle == []
    assert not [row for row in watch.part.rows() if row[0] == "idle"]


@pytest.mark.parametrize("said", ["blind", "", "else"])
def test_where_no_look_can_tell_there_is_no_other(watch: Watch, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    watch.part.idle = ["1"]
    assert hears(watch, monkeypatch, said) is None and watch.part.idle == []
    watch.turn()
    assert watch.child == 0


def test_a_look_that_does_not_end(watch: Watch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is ended with patience at its end, collected, and there is no other one; meanwhile it is known as handwash's own."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho half\nexec sleep 100\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    watch.next = time.monotonic()
    watch.turn()
    child = watch.child
    assert child and watch.helper[0] == child and watch.helper in watch.part.helpers
    written = record.read_part(watch.part.path)
    assert written is not None and watch.helper in written.helpers
    watch.turn()
    assert watch.child == child
    monkeypatch.setattr(watching, "PATIENCE", -1.0)
    watch.turn()
    assert (watch.child, watch.next) == (0, None) and watch.helper not in watch.part.helpers
    with pytest.raises(ChildProcessError):
        os.waitpid(child, os.WNOHANG)


def test_a_look_that_answers(watch: Watch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\nprintf "%s\\t" "$@" >asked\nprintf "quiet\\n"\n')
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.executable", str(program))
    watch.next = time.monotonic()
    watch.turn()

    def is_done() -> bool:
        watch.turn()
        return not watch.child

    assert wait_until(is_done, 10)
    assert watch.next is not None and watch.next > time.monotonic() + 200
    asked = (tmp_path / "asked").read_text().split("\t")
    assert (
        asked[:2] == ["-I", "-S"] and asked[2].endswith("handwash/__main__.py") and asked[3:5] == ["idle-look", "600"]
    )


def test_a_look_that_cannot_be_started(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """handwash has been taken away."""
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    watch.next = time.monotonic()
    watch.turn()
    assert (watch.child, watch.next) == (0, None)
    watch.close()


def test_what_the_look_gets_to_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the session's cookie nor what is loaded into every program; Slurm's words, and where the libraries are."""
    given = {
        b"LD_LIBRARY_PATH": b"/opt/lib", b"LD_PRELOAD": b"x.so", b"PYTHONPATH": b"/x", b"HANDWASH_SESSION": b"s",
        b"SLURM_JOB_ID": b"42", b"SLURM_STEP_GPUS": b"0", b"ODD": b"\xff",
    }  # fmt: skip
    monkeypatch.setattr(watching.posix, "environ", given)
    assert watching.environment() == {
        "HANDWASH_LD_LIBRARY_PATH": "/opt/lib", "SLURM_JOB_ID": "42", "SLURM_STEP_GPUS": "0", "ODD": "\udcff",
    }  # fmt: skip
    assert watching.has_gpus()
    monkeypatch.setattr(watching.posix, "environ", {b"SLURM_JOB_ID": b"42"})
    assert not watching.has_gpus()


# What a look answers

GPU = Gpu(3, "GPU-3", "A100", 18 << 30, 80 << 30, 0.0, False)
SEEN = Survey(Node("compute", "n1", "42", False, (), (3,)), Unknown("not asked"), (GPU,), (), Site(None))


@pytest.mark.parametrize(
    ("doing", "expected"),
    [
        ((Doing(GPU, "held", 20.0, NOW - 700),), ["idle", 1, "3", 18 << 30, 20, f"{NOW - 700:.0f}", 1]),
        ((Doing(GPU, "empty", 20.0, NOW - 700),), ["idle", 1, "3", 0, 20, f"{NOW - 700:.0f}", 1]),
        ((Doing(GPU, "held", 20.0, NOW - 599),), ["quiet"]),
        ((Doing(GPU, "held", 20.0),), ["quiet"]),
        ((Doing(GPU, "empty", 20.0, NOW - 700), Doing(GPU, "empty", 20.0, NOW - 5)), ["quiet"]),
        ((Doing(GPU, "empty", None, NOW - 700),), ["busy"]),
        ((Doing(GPU, "busy", 20.0), Doing(GPU, "unknown")), ["busy"]),
        ((Doing(GPU, "program-started", 20.0, NOW - 700),), ["busy"]),
        ((Doing(GPU, "cpu", 20.0, NOW - 700),), ["busy"]),
        ((Doing(GPU, "unknown"),), ["blind"]),
        ((), ["blind"]),
    ],
)
def test_the_word_of_a_look(monkeypatch: pytest.MonkeyPatch, doing: tuple[Doing, ...], expected: list[object]) -> None:
    """Idle only where it was so for `idle_after`, at each look since; the step's age stands for the queue's word."""

    def take(survey: Survey, idle_after: float) -> tuple[tuple[Doing, ...], bool]:
        assert not isinstance(survey.jobs, Unknown) and idle_after == 10
        assert [(job.number, job.elapsed_s) for job in survey.jobs] == [("42", 900)]
        return doing, True

    monkeypatch.setattr(idle_look.idle_looks, "take", take)
    monkeypatch.setattr(idle_look.world, "now", lambda: NOW)
    assert idle_look.word(SEEN, 600.0, 900.0) == expected
    assert idle_look.word(replace(SEEN, node=Unknown("w")), 600.0, 900.0) == ["blind"]


# What the keeper tells


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(idle_told, "say", lambda text, terminal: said.append(text))
    monkeypatch.setattr(idle_told.world, "now", lambda: NOW)
    return said


def test_once_in_each_stretch(told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before two looks agree, since nodes answer one after the other; again only when all had been at work between."""
    rows: dict[str, tuple[str, ...]] = {}

    def parts_of(session: str, where: str) -> list[Any]:
        assert (session, where) == (SESSION, "/where")
        plain: dict[str, Any] = dict.fromkeys(record.PartWord.__dict__["__annotations__"], "")
        return [record.PartWord(**{**plain, "node": node, "idle": row}) for node, row in rows.items()]

    monkeypatch.setattr(record, "parts_of", parts_of)
    places: dict[int, bool] = {77: True}
    monkeypatch.setattr(idle_told, "is_in_foreground", places.__getitem__)
    teller = Teller(SESSION, "/where", "/dev/pts/0", 77)

    def turns(count: int, **changes: tuple[str, ...]) -> int:
        rows.clear()
        rows.update(changes)
        before = len(told)
        for _turn in range(count):
            teller.turn(OWN, 4)
        return len(told) - before

    assert turns(3, n1=(), n2=()) == 0
    assert turns(1, n1=ROW[1:]) == 0
    assert turns(1, n1=ROW[1:], n2=ROW[1:]) == 0
    assert turns(5, n1=ROW[1:], n2=ROW[1:]) == 1
    assert "4 GPUs (n1: 0, 1; n2: 0, 1)" in told[0] and told[0].endswith("; to end the job: scancel 42")
    assert turns(5, n1=ROW[1:], n2=()) == 0
    assert turns(1, n1=(), n2=()) == 0
    assert turns(5, n1=ROW[1:]) == 1 and "scancel" not in told[1]
    assert turns(5, n1=("what", "is", "this")) == 0
    # Something else has the terminal; then it has not any more.
    places[77] = False
    assert turns(5, n1=ROW[1:]) == 0
    places[77] = True
    assert turns(5, n1=ROW[1:]) == 1


def test_the_line(told: list[str]) -> None:
    def line(*rows: tuple[str, ...], target: Target = OWN, gpus: int | None = 2) -> str:
        return idle_told.sentence(rows, target, gpus)

    begin = (
        r"job 42: 2 GPUs \(n1: 0, 1\) have done nothing for the last 18 s, and were not seen busy since \d\d:\d\d; "
        r"each hour costs 2 GPU-hours"
    )
    assert re.fullmatch(begin + "; to end the job: scancel 42", line(ROW))
    # Others of the job may be at work; an allocation is not this srun's to end; nobody is sent away from work.
    assert re.fullmatch(begin, line(ROW, gpus=4)) and re.fullmatch(begin, line(ROW, gpus=None))
    step = line(ROW, target=Target(("42",), "3", False, ""))
    assert step.startswith("step 42.3: ") and "scancel" not in step
    assert line((*ROW[:6], "1")).endswith("; programs of yours are at work there without them")
    assert ", with 18.0 GiB held, " in line((*ROW[:3], str(18 << 30), *ROW[4:]))
    many = line(*(("n" + str(number), *ROW[1:]) for number in range(9)))
    assert "18 GPUs (n0: 0, 1; n1: 0, 1; n2: 0, 1; n3: 0, 1; …)" in many
    assert re.search(r"since \d{4}-\d\d-\d\d \d\d:\d\d;", line((*ROW[:5], f"{NOW - 90_000:.0f}", "0")))
    assert "\x1b" not in line(("n\x1b[2J", *ROW[1:]))


def test_who_has_the_terminal() -> None:
    """A program in its foreground, one in its background, one without, one that is gone."""
    script = "set -m; sleep 100 & echo pids=$$,$!; wait"
    child = pexpect.spawn("/bin/sh", ["-c", script], encoding="utf-8", timeout=20)
    try:
        child.expect(r"pids=(\d+),(\d+)")
        shell, sleeper = map(int, child.match.groups())
        assert idle_told.is_in_foreground(shell) and not idle_told.is_in_foreground(sleeper)
        os.kill(sleeper, 9)
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)
    assert not idle_told.is_in_foreground(4194303)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as alone:
        assert not idle_told.is_in_foreground(alone.pid)


@given(
    st.lists(
        st.text(max_size=20) | st.sampled_from(["1", "-1", "nan", "inf", "1e400", "9" * 30]), min_size=6, max_size=6
    )
)
def test_any_row(fields: list[str]) -> None:
    """Nothing said, or one line."""
    assert idle_told.sentence([("n1", *fields)], OWN, 2).isprintable()


def test_a_terminal_that_is_stopped_holds_nobody_up() -> None:
    """Nobody reads, and it is full; nor does one that is not there, or no terminal."""
    master, slave = pty.openpty()
    try:
        name = os.ttyname(slave)
        idle_told.say("a word", name)
        assert os.read(master, 100) == b"handwash: a word\r\n"
        begun = time.monotonic()
        for _time in range(3000):
            idle_told.say("x" * 100, name)
        assert time.monotonic() - begun < 20
        assert os.get_blocking(slave)
    finally:
        os.close(master)
        os.close(slave)
    idle_told.say("a word", "/nowhere/pts")
    idle_told.say("a word", "/dev/null")
