"""Identity, tree and end against real processes: what must die dies, and what must live lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handwash import frozen
from handwash.teardown import end, identity, tree


def until(condition, seconds=10.0):
    """Polls `condition` until it is true; its value, or a failure after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


@pytest.fixture
def start():
    """Starts programs and ends every one of them afterwards, by its own handle."""
    started = []

    def begin(*argv, **options):
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, **options)
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def python(start, program, *arguments, **options):
    """A Python program that has said `ready` before this returns."""
    process = start(sys.executable, "-I", "-S", "-c", program, *arguments, stdout=subprocess.PIPE, **options)
    assert process.stdout.readline() == b"ready\n"
    return process


WAIT = "os.write(1, b'ready\\n')\nsignal.alarm(110)\nsignal.pause()"
STUBBORN = "import os, signal\nsignal.signal(15, signal.SIG_IGN)\n" + WAIT


def pair(process):
    return process.pid, identity.start_of(process.pid)


@given(
    name=st.binary(max_size=15),
    numbers=st.lists(st.integers(0, 2**31), min_size=40, max_size=49),
    state=st.sampled_from("RSDTtZXI"),
)
def test_a_name_cannot_shift_the_fields_of_stat(name, numbers, state):
    line = b"12 (" + name + b") " + state.encode() + b" " + b" ".join(b"%d" % number for number in numbers) + b"\n"
    found = identity.parse_stat(line)
    assert found is not None
    assert (found.name, found.state) == (name, state)
    assert (found.ppid, found.pgid, found.sid, found.tty) == tuple(numbers[:4])
    assert found.start_ticks == numbers[18]


@given(st.binary(max_size=80))
def test_nonsense_instead_of_stat_is_nobody(data):
    found = identity.parse_stat(data)
    assert found is None or isinstance(found.start_ticks, int)


def test_a_process_with_a_wicked_name_is_read_right(start):
    name = "a) b (c\n) R 1"
    program = f"import os, signal\nopen('/proc/self/comm', 'w').write({name!r})\n"
    process = python(start, program + WAIT)
    found = identity.read(process.pid)
    assert found is not None
    assert (found.ppid, found.pgid, found.uid) == (os.getpid(), os.getpgid(process.pid), os.getuid())
    assert found.sid == os.getsid(process.pid)


def test_identity_agrees_with_psutil(start):
    process = start("sleep", "110")
    found = identity.read(process.pid)
    reference = psutil.Process(process.pid)
    assert (found.ppid, found.uid) == (reference.ppid(), reference.uids().real)
    ticks = os.sysconf("SC_CLK_TCK")
    assert abs(found.start_ticks / ticks + psutil.boot_time() - reference.create_time()) < 1.1


def test_a_zombie_is_the_same_but_not_alive(start):
    process = start("true")
    mine = pair(process)
    until(lambda: identity.read(process.pid).state == "Z")
    assert identity.same(*mine) is not None
    assert not identity.same(*mine).alive
    assert end.end([mine], 0.1, os.getuid()).gone == (process.pid,)
    process.wait()
    assert identity.same(*mine) is None


def test_descendants_are_found_by_both_ways(start, monkeypatch):
    program = "import os, signal\nif os.fork() == 0:\n  os.setsid()\n  os.fork()\n"
    process = python(start, program + WAIT)
    direct = until(lambda: (lambda below: below if len(below) == 2 else None)(tree.below([process.pid])))
    assert sorted(direct) == sorted(child.pid for child in psutil.Process(process.pid).children(recursive=True))
    monkeypatch.setattr(tree, "children", lambda pid: None)
    assert sorted(tree.below([process.pid])) == sorted(direct)
    assert os.getpid() in tree.ancestors(process.pid)
    end.end(tree.descendants(process.pid), 1.0, os.getuid())


def test_polite_ones_end_with_term_and_stubborn_ones_with_kill(start):
    polite, stubborn, bystander = start("sleep", "110"), python(start, STUBBORN), start("sleep", "110")
    told = []
    outcome = end.end([pair(polite), pair(stubborn)], 0.2, os.getuid(), lambda *word: told.append(word))
    assert set(outcome.ended) == {polite.pid, stubborn.pid}
    assert outcome.killed == (stubborn.pid,)
    assert outcome.left == ()
    assert [phase for phase, _count in told] == ["term", "kill", "done"]
    assert (polite.wait(), stubborn.wait()) == (-signal.SIGTERM, -signal.SIGKILL)
    assert bystander.poll() is None


def test_a_stopped_one_gets_term_and_continues_to_its_end(start):
    process = start("sleep", "110")
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: identity.read(process.pid).state == "T")
    assert end.end([pair(process)], 5.0, os.getuid()).killed == ()
    assert process.wait() == -signal.SIGTERM


def test_no_waiting_once_all_have_ended(start):
    process = start("sleep", "110")
    begun = time.monotonic()
    end.end([pair(process)], 30.0, os.getuid())
    assert time.monotonic() - begun < 5.0


def test_a_pid_that_another_process_took_over_is_left_alone(start):
    process = start("sleep", "110")
    pid, start_ticks = pair(process)
    outcome = end.end([(pid, start_ticks - 1)], 0.1, os.getuid())
    assert (outcome.ended, outcome.gone, outcome.left) == ((), (pid,), ())
    assert process.poll() is None


def test_never_the_caller_nor_who_started_it(start):
    mine = [(os.getpid(), identity.start_of(os.getpid())), (os.getppid(), identity.start_of(os.getppid())), (1, 1)]
    assert [why for _pid, why in end.end(mine, 0.0, os.getuid()).left] == ["itself"] * 3


def test_never_another_users_process_as_root_neither(start):
    if os.getuid() != 0:
        pytest.skip("needs root to start a process as somebody else")
    process = start("sleep", "110", user=65534)
    outcome = end.end([pair(process)], 0.1, 0)
    assert outcome.left == ((process.pid, "other-user"),)
    assert process.poll() is None


def test_the_owner_is_known_of_a_process_that_is_not_dumpable(start):
    program = "import ctypes, os, signal\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n" + WAIT
    if os.getuid() != 0:
        pytest.skip("needs root to start a process as somebody else")
    process = start("/usr/bin/python3", "-I", "-S", "-c", program, user=65534, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    assert identity.real_uid(process.pid) == 65534


def test_without_pidfd_it_works_by_checking(start, monkeypatch):
    monkeypatch.delattr(os, "pidfd_open")
    polite, stubborn = start("sleep", "110"), python(start, STUBBORN)
    outcome = end.end([pair(polite), pair(stubborn)], 0.2, os.getuid())
    assert set(outcome.ended) == {polite.pid, stubborn.pid}
    assert outcome.killed == (stubborn.pid,)


def test_what_outlives_kill_is_named_and_does_not_hold_us(start, monkeypatch):
    """An uninterruptible process cannot be made here: simulated where the state is read."""
    process = start("sleep", "110")
    mine = pair(process)
    monkeypatch.setattr(identity, "AFTER_KILL", 0.1)
    monkeypatch.setattr(identity.Handle, "send", lambda self, number: True)
    found = identity.read(process.pid)
    stuck = frozen.replace(found, state="D")
    monkeypatch.setattr(identity, "read", lambda pid: stuck)
    monkeypatch.setattr(identity, "wait_channel", lambda pid: "nv_lock")
    outcome = end.end([mine], 0.1, os.getuid())
    assert outcome.left == ((process.pid, "uninterruptible (nv_lock)"),)
    assert (outcome.ended, outcome.killed) == ((), ())
