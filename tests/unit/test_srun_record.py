"""Session files: what is written is read back, and what is damaged, foreign or newer does no harm."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handwash.node import part, wire
from handwash.node.wire import Orders
from handwash.srun import history, record, sessions
from handwash.teardown import identity

texts = st.text(st.characters(blacklist_categories=("Cs",)), max_size=12)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    where = record.folder()
    os.makedirs(where)
    return where


def me():
    return os.getpid(), identity.start_of(os.getpid())


@given(st.lists(st.lists(texts, min_size=1, max_size=5), max_size=5))
def test_any_fields_come_back(rows):
    assert wire.unpack(wire.pack(rows)) == rows


@given(st.binary(max_size=60))
def test_nonsense_is_nothing(data):
    assert wire.unpack(data) is None or data.startswith(wire.HEADER.encode())


def test_a_file_cut_short_is_nothing():
    whole = wire.pack([("id", "x"), ("job", "123")])
    assert all(wire.unpack(whole[:size]) is None for size in range(len(whole) - 1) if not whole[:size].endswith(b"\n"))


@given(texts, st.dictionaries(st.text("ABC_", min_size=1), st.one_of(st.none(), texts)), texts)
def test_orders_survive_the_journey(folder_name, environment, names):
    orders = Orders.unpack(Orders("id-1", 2.5, folder_name, environment, slurm_names=names).pack())
    assert (orders.session, orders.grace, orders.folder, orders.environment) == ("id-1", 2.5, folder_name, environment)
    assert (orders.own, orders.idle_s, orders.slurm_names) == (False, 0.0, names)


def open_session(folder, name="s1"):
    main = record.Main(name, "train.py", folder)
    assert main.write()
    return main


def test_a_session_that_runs(folder):
    open_session(folder)
    (session,) = history.load()
    assert (session.id, session.command, session.outcome, session.ended) == ("s1", "train.py", "running", None)
    assert record.running() == ["s1"]
    assert record.helper_pids() == [os.getpid()]
    assert os.stat(os.path.join(folder, "s1.session")).st_mode & 0o777 == 0o600


def test_a_session_whose_owner_is_dead_does_not_run(folder):
    main = record.Main("s1", "x", folder)
    main.helpers = [(os.getpid(), 1)]
    main.write()
    assert record.running() == []
    assert history.load()[0].outcome == "unconfirmed"


def test_a_session_of_another_boot_does_not_run(folder):
    main = record.Main("s1", "x", folder)
    main.set(boot="another")
    main.write()
    assert history.load()[0].outcome == "unconfirmed"
    assert record.helper_pids() == []


def test_a_session_of_another_host_may_run(folder):
    main = record.Main("s1", "x", folder)
    main.set(host="elsewhere", boot="another")
    main.write()
    assert history.load()[0].outcome == "running"


def write_part(folder, session="s1", finished=True, left=()):
    written = part.Part(session, folder)
    written.add(*me(), "python3")
    written.ended, written.killed = 3, 1
    written.left = dict(left)
    if finished:
        written.finish()
    else:
        written.write()
    return written


def test_an_end_takes_in_what_the_nodes_said(folder):
    main = open_session(folder)
    write_part(folder)
    main.set(job="7", step="0")
    main.finish("clean", record.parts_of("s1", folder))
    (session,) = history.load()
    assert (session.job, session.step, session.outcome, session.processes, session.killed) == ("7", "0", "clean", 1, 1)
    assert session.nodes == (part.node_name(),) and session.ended is not None and session.left == []
    assert os.listdir(folder) == ["s1.ended"]
    assert record.recorded() == {}


def test_where_something_is_left_its_processes_stay_on_record(folder):
    main = open_session(folder)
    write_part(folder, left=[((4711, 99), "uninterruptible")])
    main.finish("leftover", record.parts_of("s1", folder))
    (session,) = history.load()
    assert session.left == [{"node": part.node_name(), "pid": 4711, "why": "uninterruptible"}]
    assert record.recorded()[4711, 99][0] == "s1"


def test_recorded_processes(folder):
    write_part(folder, finished=False)
    assert record.recorded() == {me(): ("s1", "", "")}
    assert record.helper_pids() == [os.getpid()]


def test_what_is_not_ours_is_passed_over(folder):
    open_session(folder)
    whole = open(os.path.join(folder, "s1.session"), "rb").read()
    for name, data in {
        "a.session": b"",
        "b.session": b"\xff\xfe\0" * 99,
        "c.session": whole.replace(b"handwash-session 1", b"handwash-session 2"),
        "d.session": whole[: len(whole) // 2],
        "e.session": whole,
        "f.n1.1.part": b"handwash-session 1\nid\tf\n",
        "g.n1.1.part": b"handwash-session 1\nprocess\tx\ty\n",
        "h.ended": b"handwash-session 1\nid\th\nleft\n\nseen\tmany\noutcome\tgreat\n",
    }.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
    os.mkdir(os.path.join(folder, "i.session"))
    os.mkfifo(os.path.join(folder, "j.session"))
    os.symlink("/etc/passwd", os.path.join(folder, "k.session"))
    assert [(one.id, one.outcome) for one in history.load()] == [("s1", "running"), ("h", "unconfirmed")]
    assert record.recorded() == {}
    record.running(), record.helper_pids(), history.prune()


def test_without_a_folder_there_is_no_record_and_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "none"))
    assert (history.load(), record.recorded(), record.running(), record.helper_pids()) == ([], {}, [], [])
    history.prune()
    main = record.Main("s1", "x", "")
    assert not main.write()
    main.finish("clean", [])
    part.Part("s1", "").finish()
    part.Part("s1", str(tmp_path / "none")).finish()


def test_old_sessions_are_taken_away(folder):
    for number in range(history.KEPT_SESSIONS + 10):
        main = record.Main(f"s{number:04}", "x", folder)
        main.finish("clean", [])
    old = os.path.join(folder, "s0100.ended")
    os.utime(old, (0, 0))
    running = open_session(folder, "s0000")
    history.prune()
    left = {name.split(".")[0] for name in os.listdir(folder)}
    assert len(left) == history.KEPT_SESSIONS
    assert running.session in left and "s0100" not in left and "s0001" not in left and "s0209" in left


def test_ids_sort_by_time_and_differ(monkeypatch):
    first = sessions.new_id()
    assert first != sessions.new_id()
    monkeypatch.setattr(sessions.world, "now", lambda: 4102444800.0)
    assert sessions.new_id() > first
