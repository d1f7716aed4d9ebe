"""The one place that starts programs: nothing holds the person up, nothing stays behind, nothing leaks in."""

from __future__ import annotations

import faulthandler
import marshal
import os
import resource
import signal
import stat
import sys
import time
from pathlib import Path

import pytest

from handwash import run, world
from handwash.model import Unknown
from handwash.run import CouldNotTell

# A machine with two busy cores may be late; nobody waits for a person who has gone home.
LATE = 1.5


def until(condition, seconds=10.0):
    """Polls `condition` until it is true; its value, or a failure after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def children() -> set[int]:
    """The children of this process, zombies too."""
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return set(map(int, text.split()))


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture(autouse=True)
def no_child_is_left():
    """Whatever a test does, `run` leaves neither a child nor a zombie."""
    before = children()
    yield
    until(lambda: children() <= before)


@pytest.fixture
def script(tmp_path: Path):
    """Writes a shell script and answers its path."""

    def write(text: str, name: str = "program") -> str:
        path = tmp_path / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return str(path)

    return write


def test_a_program_to_its_end(script) -> None:
    """Both streams and the exit code; no input; C words."""
    result = run.run([script('read line; echo "out $1 [$line] $LC_ALL"; echo err >&2; exit 7'), "word"], timeout=10)
    assert result == run.Result(7, b"out word [] C\n", b"err\n", False)


def test_ended_by_a_signal(script) -> None:
    """A program that a signal ended has a negative code."""
    assert run.run([script("kill -9 $$")], timeout=10).code == -9


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    """Not there, not executable, no program: an OSError, and no descriptor stays open."""
    before = set(os.listdir("/proc/self/fd"))
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    for path in (str(tmp_path / "none"), str(tmp_path), "surely-no-such-program", str(tmp_path / "text")):
        with pytest.raises(OSError):
            run.run([path], timeout=10)
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.parametrize("ignore", ["", "trap '' TERM HUP INT; "])
def test_a_program_that_hangs(script, tmp_path: Path, ignore: str) -> None:
    """At the deadline it is ended, and with it what it has started."""
    pids = tmp_path / "pids"
    started = time.monotonic()
    hangs = script(f"{ignore}sleep 60 & echo $! >{pids}; echo $$ >>{pids}; echo half; wait; sleep 60")
    result = run.run([hangs], timeout=0.5)
    assert (result.code, result.out, result.timed_out) == (None, b"half\n", True)
    assert time.monotonic() - started < 0.5 + LATE
    for pid in map(int, pids.read_text().split()):
        until(lambda pid=pid: not lives(pid))


def test_a_program_that_floods(script) -> None:
    """A hundred megabytes are not read, and not waited for."""
    started = time.monotonic()
    result = run.run([script("exec head -c 100000000 /dev/zero")], timeout=30)
    assert result.capped and result.code is None and not result.timed_out
    assert run.OUTPUT_CAP < len(result.out) < 2 * run.OUTPUT_CAP
    assert time.monotonic() - started < 10


def test_a_program_that_floods_its_errors(script) -> None:
    """The same for standard error, while standard output stays open."""
    result = run.run([script("head -c 20000000 /dev/zero >&2; sleep 60")], timeout=30)
    assert result.capped


def test_a_program_that_closes_its_streams(script) -> None:
    """End of file is not the end: the deadline still holds."""
    started = time.monotonic()
    result = run.run([script("exec >&- 2>&-; sleep 60")], timeout=0.3)
    assert result.timed_out and time.monotonic() - started < 0.6 + LATE


def test_the_environment(script, monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes Slurm's words is taken out, the rest stays."""
    noise = {"SQUEUE_STATES": "PD", "SQUEUE_FORMAT": "%i", "SLURM_CLUSTERS": "x", "SLURM_TIME_FORMAT": "y"}
    kept = {"SLURM_CONF": "/some/where", "HOME": "/home/x", "PATH": os.environ["PATH"]}
    monkeypatch.setattr(
        world, "env", {**noise, **kept, "PYTHONPATH": "/evil", "LANG": "zh_CN.UTF-8", "LC_ALL": "zh_CN"}
    )
    lines = run.run([script("env")], timeout=10).out.decode().splitlines()
    names = {line.partition("=")[0] for line in lines}
    assert not names & {*noise, "PYTHONPATH"} and set(kept) <= names and "LC_ALL=C" in lines


def test_signals_that_python_ignores(script) -> None:
    """A program finds SIGPIPE as every shell gives it."""
    assert run.run([script("grep SigIgn /proc/self/status")], timeout=10).out.split()[1][-4:] == b"0000"


def test_no_program_of_the_working_directory(script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty, a relative and a missing PATH entry are passed over; a folder is no program."""
    script("echo mine", "squeue")
    real = tmp_path / "real"
    (real / "srun").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for path in ("", ".", ":", "./", "/nonexistent", str(real)):
        monkeypatch.setattr(world, "env", {"PATH": path})
        assert run.find("squeue") is None and run.find("srun") is None
    monkeypatch.setattr(world, "env", {})
    assert run.find("squeue") is None
    monkeypatch.setattr(world, "env", {"PATH": f".:{tmp_path}"})
    assert run.find("squeue") == str(tmp_path / "squeue")


# Looks


def hang() -> None:
    """A look that no polite signal ends: the nearest to one in uninterruptible sleep that can be made without root."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    while True:
        signal.pause()


def crash() -> None:
    """A look in which a library aborts, without a core file and without a report of the test's own."""
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.abort()


def raise_could_not_tell() -> None:
    raise CouldNotTell("A whole sentence.")


def test_looks_answer_side_by_side() -> None:
    """Every kind of plain data comes back; a question without an answer has its reason."""
    plain = {"a": [1, 2.5, None, True, "名", b"\xff", ("t",)], "big": "x" * 300_000}
    answers = run.looks(
        {
            "plain": lambda: plain,
            "none": lambda: None,
            "told": raise_could_not_tell,
            "failed": lambda: 1 / 0,
            "crashed": crash,
            "left": lambda: os._exit(0),
            "odd": object,
        },
        20,
    )
    assert answers["plain"] == plain and answers["none"] is None
    assert answers["told"] == Unknown("A whole sentence.")
    assert "ZeroDivisionError" in answers["failed"].why
    for name in ("crashed", "left", "odd"):
        assert isinstance(answers[name], Unknown) and "crashed" in answers[name].why


def test_a_look_that_hangs() -> None:
    """The others' answers are there at the deadline, and the one that hangs is gone."""
    started = time.monotonic()
    answers = run.looks({"hangs": hang, "quick": lambda: 1, "also": hang}, 0.5)
    assert time.monotonic() - started < 0.5 + LATE
    assert answers["quick"] == 1
    assert "0.5" in answers["hangs"].why and "0.5" in answers["also"].why


def test_nobody_waits_for_quick_looks() -> None:
    """The deadline is a limit, not a duration."""
    started = time.monotonic()
    assert run.looks({"a": lambda: 1, "b": lambda: 2}, 60) == {"a": 1, "b": 2}
    assert time.monotonic() - started < 10


def test_a_look_has_no_terminal_and_no_pipe_of_ours() -> None:
    """It may hang for ever: it must hold nothing that somebody waits to be closed."""

    def open_files() -> list[str]:
        return [os.readlink(f"/proc/self/fd/{name}") for name in ("0", "1", "2")]

    assert run.looks({"a": open_files}, 20)["a"] == ["/dev/null"] * 3


def test_what_a_look_has_started_ends_with_it(script, tmp_path: Path) -> None:
    """A program that a look waits for, and what that has forked, are ended at the deadline."""
    pids = tmp_path / "pids"
    path = script(f"trap '' TERM; sleep 60 & echo $! $$ >{pids}; sleep 60")
    answers = run.looks({"a": lambda: run.run([path], timeout=60).timed_out, "b": hang}, 1)
    assert answers["a"] is True or "1" in answers["a"].why
    for pid in map(int, pids.read_text().split()):
        until(lambda pid=pid: not lives(pid))


def test_a_background_child_of_a_quick_program(script, tmp_path: Path) -> None:
    """A program that answers and leaves a sleeper: the answer counts, and the sleeper is ended."""
    pid = tmp_path / "pid"
    path = script(f"sleep 60 >/dev/null 2>&1 & echo $! >{pid}; echo answer")
    assert run.looks({"a": lambda: run.run([path], timeout=60).out}, 20) == {"a": b"answer\n"}
    until(lambda: not lives(int(pid.read_text())))


def test_a_look_outlives_nobody_for_long(script, tmp_path: Path) -> None:
    """Where handwash itself is killed in the middle, the program that a look has started still ends by the deadline."""
    pid = tmp_path / "pid"
    path = script(f"echo $$ >{pid}; exec sleep 60")
    handwash = os.fork()
    if not handwash:
        try:
            run.looks({"a": lambda: run.run([path], timeout=60).code}, 1)
        finally:
            os._exit(0)
    until(lambda: pid.exists() and pid.read_text().strip())
    os.kill(handwash, signal.SIGKILL)
    os.waitpid(handwash, 0)
    until(lambda: not lives(int(pid.read_text())))


def test_looks_within_a_look() -> None:
    """They end in time for the outer one to answer, however long they were given."""
    started = time.monotonic()
    answers = run.looks({"a": lambda: run.looks({"quick": lambda: 1, "hangs": hang}, 60)["quick"]}, 1)
    assert answers == {"a": 1} and time.monotonic() - started < 1 + LATE


def test_a_look_within_one_that_hangs(tmp_path: Path) -> None:
    """It ends with that one."""
    pid = tmp_path / "pid"

    def inner() -> None:
        pid.write_text(str(os.getpid()))
        hang()

    answers = run.looks({"a": lambda: run.looks({"b": inner}, 60, notice=(0.3, hang))}, 0.6)
    assert isinstance(answers["a"], Unknown)
    until(lambda: not lives(int(pid.read_text())))


def test_interrupted_while_looking(tmp_path: Path) -> None:
    """Ctrl-C goes through, and the looks are ended."""
    pid = tmp_path / "pid"

    def look() -> None:
        pid.write_text(str(os.getpid()))
        hang()

    handwash = os.fork()
    if not handwash:
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            run.looks({"a": look}, 60)
        except KeyboardInterrupt:
            code = 130
        finally:
            os._exit(code)
    until(lambda: pid.exists() and pid.read_text().strip())
    os.kill(handwash, signal.SIGINT)
    assert os.waitstatus_to_exitcode(os.waitpid(handwash, 0)[1]) == 130
    until(lambda: not lives(int(pid.read_text())))


def test_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of processes each look is unknown, and says why."""

    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    before = len(os.listdir("/proc/self/fd"))
    answers = run.looks({"a": lambda: 1}, 1)
    assert "Resource temporarily unavailable" in answers["a"].why
    assert len(os.listdir("/proc/self/fd")) == before


def test_no_descriptor_is_left_open() -> None:
    """However a look ends."""
    before = len(os.listdir("/proc/self/fd"))
    run.looks({"a": lambda: 1, "b": crash, "c": hang}, 0.3)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("data", [b"", b"i", marshal.dumps(5), marshal.dumps(("known",)), marshal.dumps((1, 2, 3))])
def test_damaged_answers(data: bytes) -> None:
    """Half an answer is no answer."""
    assert isinstance(run._answer(data, 3.0, False), Unknown)


def test_files_of_this_test_are_private(tmp_path: Path) -> None:
    """The scripts above are run by path: nobody else may have written them."""
    assert not stat.S_IMODE(tmp_path.stat().st_mode) & 0o022 and sys.platform == "linux"
