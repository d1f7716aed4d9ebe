"""All records together: sessions that never closed, two hundred at once, other hosts, boots and versions; and pruning."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handwash import left_behind, world
from handwash.commands import of_session
from handwash.frozen import replace
from handwash.model import Job, Judged, Node, Process, Site, Survey, Unknown, Verdict
from handwash.node import part, wire
from handwash.srun import history, record
from handwash.teardown import identity

CROWD = 200


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    where = record.folder()
    os.makedirs(where)
    return where


def me() -> tuple[int, int]:
    return os.getpid(), identity.start_of(os.getpid()) or 0


def dead(folder: str, name: str = "s1", **fields: object) -> record.Main:
    """A session whose watchers are gone."""
    main = record.Main(name, "train.py", folder)
    main.helpers = [(os.getpid(), 1)]
    main.set(**fields)
    assert main.write()
    return main


def write_part(folder: str, session: str = "s1", node: str | None = None, boot: str | None = None) -> part.Part:
    """A part with this process in it, whose guardian is gone."""
    written = part.Part(session, folder)
    written.add(*me(), "python3")
    written.helpers = {(os.getpid(), 1)}
    written.node, written.boot = node or written.node, boot or written.boot
    written.write()
    return written


def row(pid: int, start: int, **changes: object) -> Judged:
    process = Process(pid, 1, start, 0.0, os.getuid(), "me", "train.py", "train.py", "S", 0.0, 0, 0, pid, pid)
    return Judged(replace(process, **changes), "no-job", "survives", True, "")


def seen(jobs: object = (), unlisted: tuple[str, ...] = ()) -> Survey:
    return Survey(Node("login", "here", None, False, ()), jobs, (), (), Site(), unlisted=unlisted)  # type: ignore[arg-type]


def job(number: str) -> Job:
    return Job(number, number, "RUNNING", "x", "main", ("n1",), 1, 60, None, True)


def banner(rows: tuple[Judged, ...] = (), jobs: object = ()) -> list[str]:
    return left_behind.collect(seen(jobs), Verdict("leftover", rows, ()))


# Processes on record


def test_the_processes_of_a_running_session(folder: str) -> None:
    assert record.Main("s1", "train.py", folder).write()
    write_part(folder)
    (session,) = history.load()
    assert (session.outcome, session.watched, session.closed) == ("running", True, False)
    (member,) = session.members
    assert (member.pid, member.alive, member.node) == (os.getpid(), True, part.node_name())


def test_what_has_ended_is_on_record_with_its_pid(folder: str) -> None:
    main = record.Main("s1", "train.py", folder)
    main.write()
    written = part.Part("s1", folder)
    written.processes[4194304, 7] = "gone"
    written.seen = 1
    written.finish()
    main.set(receipt="1 process ended; the job has left the queue")
    main.finish("clean", record.parts_of("s1", folder))
    (session,) = history.load()
    assert [(one.pid, one.name, one.alive) for one in session.members] == [(4194304, "gone", False)]
    assert session.receipt == "1 process ended; the job has left the queue"


# Sessions that never closed


def test_one_that_never_closed_is_named_with_what_is_there(folder: str) -> None:
    dead(folder)
    (sentence,) = banner((row(*me(), session="s1"),))
    assert f"{os.getpid()} train.py" in sentence and "handwash clean --session s1" in sentence
    # It is named at each login while something of it is there.
    assert banner((row(*me(), session="s1"),)) == [sentence]


def test_one_of_which_nothing_is_left_is_named_once(folder: str) -> None:
    dead(folder)
    (sentence,) = banner()
    assert "s1" in sentence and "nothing of it is left here" in sentence
    assert banner() == []
    assert [(one.id, one.outcome, one.closed) for one in history.load()] == [("s1", "unconfirmed", True)]


def test_after_a_power_cut(folder: str) -> None:
    """Another boot: pids of before mean nothing, whoever has them now."""
    main = dead(folder, boot="another")
    main.helpers = [me()]
    main.write()
    write_part(folder, boot="another")
    (session,) = history.load()
    assert (session.outcome, session.watched, session.alive) == ("unconfirmed", False, ())
    assert [one.alive for one in session.members] == [None]
    assert "never closed" in banner()[0]


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ((job("7"),), "scancel 7"),
        (Unknown("down"), "could not be told"),
        ((), "nothing of it is left here"),
    ],
)
def test_its_job(folder: str, jobs: object, words: str) -> None:
    """In the queue, unknown, gone: only the last one closes the record."""
    dead(folder, job="7", step="0")
    (sentence,) = banner(jobs=jobs)
    assert words in sentence
    assert history.load()[0].closed == (jobs == ())


def test_started_on_another_host(folder: str) -> None:
    """It may run there, as long as its job is not known to be over."""
    dead(folder, host="elsewhere", job="7")
    assert [(one.outcome, one.watched) for one in history.load()] == [("running", None)]
    assert banner(jobs=(job("7"),)) == [] and banner(jobs=Unknown("down")) == []
    assert record.running() == ["s1"]
    assert "s1" in banner()[0]


def test_a_local_one_on_another_host_is_never_closed_by_the_queue(folder: str) -> None:
    """It may outlive the job that it was in, and the queue may be that of another cluster with the same home."""
    dead(folder, host="elsewhere", job="7", local=1)
    dead(folder, "s2", host="elsewhere", local=1, allocation="7")
    for jobs in ((), (job("7"),), Unknown("down")):
        assert banner(jobs=jobs) == []
    assert {one.outcome for one in history.load()} == {"running"}


def test_a_job_that_is_not_over_and_on_no_list(folder: str) -> None:
    """A subjob of PBS, or a job of another owner, that processes here are in: the session goes on with it, here or there."""
    dead(folder, job="7")
    dead(folder, "s2", host="elsewhere", job="7")
    (sentence,) = left_behind.collect(seen(unlisted=("7",)), Verdict("clean", (), ()))
    assert "scancel 7" in sentence and not any(one.closed for one in history.load())
    for session in ("s1", "s2"):
        plan = of_session.plan(
            session, seen(unlisted=("7",)), Verdict("leftover", (row(*me(), session=session),), ()), 1
        )
        assert "scancel 7" in plan.complaint and not plan.targets


def test_other_nodes_are_named(folder: str) -> None:
    dead(folder, job="7")
    write_part(folder, node="n5")
    assert "n5" in banner()[0]


def test_many_that_never_closed(folder: str) -> None:
    for number in range(9):
        dead(folder, f"s{number}")
    sentences = banner()
    assert len(sentences) == 4 and "6" in sentences[-1]


def test_one_whose_guardian_still_works_is_not_over(folder: str) -> None:
    dead(folder)
    written = write_part(folder)
    written.helpers = {me()}
    written.write()
    assert banner() == [] and history.load()[0].outcome == "running"


def test_closed_by_its_owner_meanwhile(folder: str) -> None:
    main = dead(folder)
    (session,) = history.load()
    main.finish("clean", [])
    assert not history.close(session, "unconfirmed")
    assert history.load()[0].outcome == "clean"


# Any number, any state


def test_two_hundred_at_once(folder: str) -> None:
    """Written side by side by processes of their own; all are read back, and none is taken for over."""
    children = []
    for number in range(CROWD):
        child = os.fork()
        if child == 0:
            try:
                main = record.Main(f"s{number:03}", "train.py", folder)
                main.helpers = [me_of(os.getppid())]
                main.write()
                write_part(folder, f"s{number:03}")
                history.prune()
                if number % 2:
                    main.finish("clean", record.parts_of(f"s{number:03}", folder))
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    found = history.load()
    assert len(found) == CROWD
    assert {one.outcome for one in found if int(one.id[1:]) % 2} == {"clean"}
    assert {one.outcome for one in found if not int(one.id[1:]) % 2} == {"running"}
    assert len(record.running()) == CROWD // 2 and banner() == []


def me_of(pid: int) -> tuple[int, int]:
    return pid, identity.start_of(pid) or 0


def test_damaged_newer_and_foreign_ones_say_nothing(folder: str) -> None:
    main = dead(folder)
    whole = Path(folder, "s1.session").read_bytes()
    main.finish("clean", [])
    newer = whole.replace(wire.HEADER.encode(), b"handwash-session 9")
    for name, data in {"a": b"", "b": b"\xff\0" * 99, "c": newer, "d": whole[:30], "e": whole}.items():
        for suffix in (record.OPEN, record.ENDED):
            Path(folder, name + suffix).write_bytes(data)
    for odd in (b"started\tNaN\nended\tmany\n", b"started\t1e999\nwas\tn\tx\ty\nleft\nnode\n"):
        Path(folder, "f.ended").write_bytes(wire.HEADER.encode() + b"\nid\tf\n" + odd)
        assert [one.id for one in history.load() if one.id != "f"] == ["s1"]
    assert banner() == []


def test_pruning_spares_what_lives(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old and many go; what runs, and what has a process on record that lives, stays; strays go by age."""
    for number in range(history.KEPT_SESSIONS + 10):
        record.Main(f"s{number:04}", "x", folder).finish("clean", [])
    running = record.Main("r0000", "x", folder)
    running.write()
    left = record.Main("r0001", "x", folder)
    left.write()
    write_part(folder, "r0001")
    left.finish("leftover", record.parts_of("r0001", folder))
    for name in os.listdir(folder):
        os.utime(os.path.join(folder, name), (0, 0))
    for number in range(history.KEPT_SESSIONS):
        Path(folder, f"t{number}.n1.1.part").touch()
    for name in ("t0.n1.1.part", "u.ended.77.new"):
        Path(folder, name).touch()
        os.utime(os.path.join(folder, name), (0, 0))
    history.prune()
    names = set(os.listdir(folder))
    assert {"r0000.session", "r0001.ended", "t1.n1.1.part"} <= names
    assert not names & {"t0.n1.1.part", "u.ended.77.new"} and not [name for name in names if name.startswith("s0")]
    monkeypatch.setattr(world, "now", lambda: 4102444800.0)
    history.prune()
