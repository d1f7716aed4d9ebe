"""Which GPUs of a job do nothing: never said where it is not certain, and no more said than was seen."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.testbed.processes import wait_until

from handwash import idle, idle_looks, paths, tell_idle, world
from handwash.frozen import replace
from handwash.idle import Doing, Load
from handwash.model import Gpu, Holder, Job, Node, Process, Site, Survey, Unknown
from handwash.teardown import identity

UID, OTHER = 1000, 1001
NOW = 1_700_000_000.0
AFTER = 600.0
HANDWASH, SHELL = 900, 800
GIB = 1 << 30
HOLDER = 5000


def process(pid: int = HOLDER, **changes: Any) -> Process:
    plain: dict[str, Any] = {
        "ppid": SHELL, "start_ticks": pid, "started": NOW - 3600, "uid": UID, "user": "alice", "command": "train.py",
        "name": "train.py", "state": "S", "cpu_s": 1.0, "rss": 0, "terminal": 0, "sid": pid, "pgid": pid, "job": "42",
    }  # fmt: skip
    return Process(pid=pid, **{**plain, **changes})


def gpu(index: int = 0, **changes: Any) -> Gpu:
    """One that has done nothing for twenty seconds, with nobody on it."""
    plain: dict[str, Any] = {
        "uuid": f"GPU-{index}", "name": "A100", "memory_used": 0, "memory_total": 40 * GIB, "utilisation": 0.0,
        "utilisation_max": 0.0, "utilisation_over_s": 20.0, "shared": False,
    }  # fmt: skip
    return Gpu(index=index, **{**plain, **changes})


def held(index: int = 0, pid: int = HOLDER, word: str = "", **changes: Any) -> Gpu:
    holder = Holder(pid, 18 * GIB, "compute", "both", word, "alice")
    return gpu(index, **{"memory_used": 18 * GIB, "holders": (holder,), **changes})


def job(**changes: Any) -> Job:
    plain: dict[str, Any] = {
        "id": "42", "number": "42", "state": "RUNNING", "name": "x", "partition": "main", "nodes": ("n1",), "gpus": 1,
        "elapsed_s": 3600, "limit_s": None, "interactive": True,
    }  # fmt: skip
    return Job(**{**plain, **changes})


def survey(*gpus: Gpu, **changes: Any) -> Survey:
    others = changes.pop("processes", (process(),))
    chain = (process(SHELL, ppid=1, name="bash"), process(HANDWASH, ppid=SHELL, name="handwash"))
    plain: dict[str, Any] = {
        "node": Node("compute", "n1", "42", False, (), tuple(range(len(gpus)))),
        "jobs": (job(gpus=len(gpus)),),
        "gpus": gpus,
        "processes": others if isinstance(others, Unknown) else (*chain, *others),
        "site": Site("cgroup"),
        "chain": (HANDWASH, SHELL),
    }
    return Survey(**{**plain, **changes})


def words(seen: Survey, load: Load | None = None, **notes: tuple[float, float]) -> list[str]:
    return [one.word for one in idle.weigh(seen, UID, NOW, AFTER, notes, load)]


CERTAIN: dict[str, tuple[Gpu, str]] = {
    "nobody on it": (gpu(), "empty"),
    "nobody, and one instant": (gpu(utilisation_over_s=None), "empty"),
    "a monitor alone": (held(word="monitor"), "empty"),
    "a program that computes on another GPU": (held(word="elsewhere"), "empty"),
    "memory without use": (held(), "held"),
    "a data loader's workers": (held(word="unlisted"), "held"),
    "somebody whom this container cannot name": (held(word="foreign"), "held"),
    "a dead process's memory": (held(pid=4000, word="dead"), "held"),
    "busy": (held(utilisation=0.4, utilisation_max=1.0), "busy"),
    "busy for one sample": (held(utilisation_max=0.01), "busy"),
    "busy, with nobody on it": (gpu(utilisation=1.0, utilisation_max=1.0), "busy"),
    "MIG": (gpu(utilisation=None, sharing=("mig",), shared=True, instance=(1, 0)), "unknown"),
    "held, and one instant": (held(utilisation_over_s=None), "unknown"),
    "held, and two seconds": (held(utilisation_over_s=2.0), "unknown"),
    "the driver does not say who is on it": (gpu(uses_known=False), "unknown"),
    "lost": (gpu(trouble=("lost",)), "unknown"),
}


@pytest.mark.parametrize("name", CERTAIN)
def test_what_a_gpu_does(name: str) -> None:
    """By its own numbers: 0 % over the driver's samples is idle, anything else is not, unknown stays unknown."""
    one, word = CERTAIN[name]
    (found,) = idle.weigh(survey(one), UID, NOW, AFTER, {})
    assert found.word == word
    assert found.is_idle == {"empty": True, "held": True, "busy": False, "unknown": None}[word]
    assert found.over_s in (None, 20.0)


def test_only_the_gpus_that_the_job_holds() -> None:
    """By the node's numbers: where the control group shows one GPU the driver calls it 0, and Slurm as the device file."""
    seen = survey(
        gpu(0, minor=2), gpu(2, minor=0), gpu(3, sharing=("shard",), shared=True), node=replace(SHELL_NODE, gpus=(2, 3))
    )
    assert [one.gpu.index for one in idle.weigh(seen, UID, NOW, AFTER, {})] == [0]
    for changes in (
        {"node": replace(SHELL_NODE, job=None)},
        {"node": replace(SHELL_NODE, gpus=())},
        {"node": Unknown("hangs")},
        {"gpus": Unknown("hangs")},
    ):
        assert words(survey(gpu(), **changes)) == []


SHELL_NODE = Node("compute", "n1", "42", False, (), (0,))


@pytest.mark.parametrize("one", [gpu(), held()])
def test_a_job_that_has_just_started(one: Gpu) -> None:
    """Its age is the queue's word; without that nothing is said."""
    ages = ((599, "job-started"), (600, None), (None, "unknown"))
    for elapsed, word in ages:
        seen = survey(one, jobs=(job(elapsed_s=elapsed),))
        assert words(seen)[0] == (word or ("held" if one.holders else "empty"))
    assert words(survey(one, jobs=Unknown("squeue did not answer"))) == ["unknown"]
    assert words(survey(one, jobs=())) == ["unknown"]
    assert words(survey(held(utilisation=0.5), jobs=(job(elapsed_s=5),))) == ["busy"]


def test_a_program_that_has_just_started() -> None:
    """It may be reading its model; so may one of many workers. Another's start is no matter."""
    young = process(started=NOW - 30)
    assert words(survey(held(), processes=(young,))) == ["program-started"]
    assert words(survey(held(), processes=(process(started=NOW - 601),))) == ["held"]
    assert words(survey(held(), processes=(process(), process(5001, started=NOW - 30)))) == ["held"]
    assert words(survey(held(word="monitor"), processes=(young,))) == ["empty"]
    assert words(survey(held(), processes=Unknown("too slow"))) == ["unknown"]
    crowd = held(holders=(*held().holders, Holder(5001, None, "", "files", "unlisted", "alice")))
    assert words(survey(crowd, processes=(process(), process(5001, started=NOW - 30)))) == ["program-started"]


def test_one_that_was_seen_busy_lately() -> None:
    """A pause of less than `idle_after` after work is a pause."""
    assert words(survey(held()), **{"GPU-0": (NOW - 599, 0.0)}) == ["busy-lately"]
    assert words(survey(held()), **{"GPU-0": (NOW - 601, 0.0)}) == ["held"]
    assert words(survey(held()), **{"GPU-1": (NOW - 5, 0.0)}) == ["held"]


def test_work_on_the_cpu_of_who_holds_it() -> None:
    """Its own, its workers' below it, its launcher's above it, together; nobody else's, and not the shell's."""
    tree = (process(), process(5001, ppid=HOLDER), process(5002, ppid=5001), process(6000))
    seen = survey(held(), processes=tree)
    for pid, word in ((HOLDER, "cpu"), (5001, "cpu"), (5002, "cpu"), (6000, "held"), (SHELL, "held")):
        assert words(seen, Load({pid: 1.0})) == [word]
        assert words(seen, Load({}, frozenset((pid,)))) == [word.replace("cpu", "disk")]
    assert words(seen, Load({5001: 0.1, 5002: 0.1})) == ["cpu"]
    assert words(seen, Load({5001: 0.01, 5002: 0.01})) == ["held"]
    above = survey(held(), processes=(process(4000), process(ppid=4000)))
    assert words(above, Load({4000: 1.0})) == ["cpu"]
    assert words(survey(gpu(), processes=tree), Load({HOLDER: 1.0})) == ["empty"]
    bobs = survey(held(), processes=(process(uid=OTHER, user="bob", started=NOW - 5),))
    assert words(bobs, Load({HOLDER: 1.0})) == ["held"]


def said(*doing: Doing, total: int | None = None, at_work: bool = False, **changes: Any) -> str:
    (line,) = tell_idle.say((doing, at_work), job(**changes), len(doing) if total is None else total)
    return line


@pytest.fixture(autouse=True)
def a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "now", lambda: NOW)


def test_what_is_said() -> None:
    """How many, for how long at least, what it costs, and the way out where nothing speaks against it."""
    two = Doing(gpu(0), "empty", 20.9), Doing(gpu(1), "empty", 18.2)
    assert said(*two) == (
        "2 GPUs of job 42 (GPU 0, 1) have done nothing for the last 18 s; each hour costs 2 GPU-hours. "
        "Leave with exit, or: scancel 42"
    )
    assert said(Doing(held(), "held", 20.0)) == (
        "1 GPU of job 42 (GPU 0) has done nothing for the last 20 s, with 18.0 GiB held; each hour costs 1 GPU-hour. "
        "Leave with exit, or: scancel 42"
    )
    assert said(Doing(gpu(), "empty")) == (
        "1 GPU of job 42 (GPU 0) has nobody on it at this moment; each hour costs 1 GPU-hour. Leave with exit, or: scancel 42"
    )
    assert said(*two, interactive=False).endswith(" To end the job: scancel 42")
    assert said(*two, id="42_3").endswith(": scancel 42_3")
    assert said(*two, id="42+0").endswith(": scancel 42")
    assert "\x1b" not in said(*two, id="42\x1b[2J")


def test_nobody_is_sent_away_from_work() -> None:
    """Other GPUs of the job, here or on other nodes, or programs of the person's without a GPU."""
    one = Doing(gpu(), "empty", 20.0)
    for line in (
        said(one, Doing(held(1), "busy", 20.0)),
        said(one, Doing(gpu(1), "unknown")),
        said(one, total=4),
        said(one, at_work=True),
    ):
        assert (
            line.startswith("1 GPU of job 42 (GPU 0) has done nothing") and "scancel" not in line and "exit" not in line
        )
    unknown = tell_idle.say(((one,), False), job(), None)
    assert len(unknown) == 1 and "scancel" not in unknown[0]
    assert "at work there without them" in said(one, at_work=True)


def test_what_is_not_idle_is_not_said_to_be() -> None:
    for word in ("busy", "busy-lately", "unknown", "job-started", "program-started"):
        assert tell_idle.say(((Doing(gpu(), word, 20.0),), False), job(), 1) == []
    (line,) = tell_idle.say(((Doing(held(), "cpu", 20.0),), True), job(), 1)
    assert line == "GPU 0: 18.0 GiB held, 0 % busy over the last 20 s; its program computes on the CPU."
    (line,) = tell_idle.say(((Doing(held(), "disk", 20.0),), True), job(), 1)
    assert "waits in the kernel" in line and "scancel" not in line


def test_since_when_no_look_has_found_it_busy() -> None:
    """The last of the first looks, since it is said of all; what the driver's samples cover is not said twice."""
    sentence = "Not seen busy since {}."
    long_ago, later = NOW - 7200, NOW - 3600
    two = Doing(gpu(0), "empty", 20.0, long_ago), Doing(gpu(1), "empty", 20.0, later)
    assert sentence.format(tell_idle.clock(later)) in said(*two)
    assert "Not seen busy" not in said(two[0], Doing(gpu(1), "empty", 20.0))
    assert "Not seen busy" not in said(Doing(gpu(), "empty", 20.0, NOW - 30))
    assert len(tell_idle.clock(NOW)) == len("14:02") and len(tell_idle.clock(NOW - 100_000)) == len("2023-11-14 14:02")


# From look to look


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Takes a look at a time after NOW; answers the GPUs."""
    monkeypatch.setattr(paths, "state_dir", lambda: str(tmp_path / "state"))
    monkeypatch.setattr(world, "uid", lambda: UID)
    monkeypatch.setattr(world, "pause", lambda seconds: None)

    def look(after: float, *gpus: Gpu, after_s: float = AFTER, **changes: Any) -> tuple[Doing, ...]:
        monkeypatch.setattr(world, "now", lambda: NOW + after)
        changes = {"processes": (), "jobs": (job(elapsed_s=int(3600 + after)),), **changes}
        doing, _at_work = idle_looks.take(survey(*gpus, **changes), after_s / 60)
        return doing

    yield look


def test_from_look_to_look(looks: Any) -> None:
    """Quiet since the first look in a row that has found it so; busy ends the row; an answer that is missing does not."""
    assert [(one.word, one.since) for one in looks(0, gpu())] == [("empty", None)]
    assert [(one.word, one.since) for one in looks(900, gpu())] == [("empty", NOW)]
    assert [(one.word, one.since) for one in looks(950, gpu(utilisation=None))] == [("unknown", NOW)]
    assert [(one.word, one.since) for one in looks(1000, gpu(utilisation=0.5))] == [("busy", None)]
    assert [(one.word, one.since) for one in looks(1100, gpu())] == [("busy-lately", None)]
    assert [(one.word, one.since) for one in looks(1601, gpu())] == [("empty", NOW + 1100)]


def test_another_job_on_the_same_gpu_starts_anew(looks: Any) -> None:
    looks(0, gpu())
    other = {"node": replace(SHELL_NODE, job="43"), "jobs": (job(id="43", number="43"),)}
    assert [one.since for one in looks(900, gpu(), **other)] == [None]
    assert [one.since for one in looks(950, gpu())] == [NOW]
    # Queued again, with its number kept: what was before its start is not this run's.
    assert [one.since for one in looks(1000, gpu(), jobs=(job(elapsed_s=10),))] == [None]
    assert [one.since for one in looks(1100, gpu(), jobs=(job(elapsed_s=110),))] == [NOW + 1000]


def test_outside_a_job_with_gpus_nothing_is_written(looks: Any, tmp_path: Path) -> None:
    assert looks(0, gpu(), node=replace(SHELL_NODE, job=None)) == ()
    assert looks(0, gpu(), node=replace(SHELL_NODE, gpus=())) == ()
    assert not (tmp_path / "state").exists()


def test_a_disk_that_cannot_be_written_costs_the_note(looks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "state_dir", lambda: "/proc/nowhere")
    assert [one.word for one in looks(0, gpu())] == ["empty"]
    assert [(one.word, one.since) for one in looks(900, gpu())] == [("empty", None)]


PIECES = st.sampled_from([b"42", b"GPU-0", b"1e9", b"nan", b"-1", b"inf", b"1e400", b" ", b"\n"])


@given(st.binary(max_size=200) | st.lists(PIECES).map(b" ".join))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_note_that_is_damaged(looks: Any, tmp_path: Path, content: bytes) -> None:
    """Passed over, whatever it holds; what it says of a time to come is not believed."""
    path = tmp_path / "state" / f"idle.{world.host()}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(f"{identity.boot_id()} 42 GPU-0 ".encode() + content)
    (found,) = looks(0, gpu())
    assert found.word in ("empty", "busy-lately") and (found.since is None or 0 < found.since <= NOW)


def test_the_load_of_real_processes() -> None:
    """One that computes, one that waits, one that is gone."""
    computes = subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"])
    waits = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; print(1, flush=True); time.sleep(100)"],
                             stdout=subprocess.PIPE)  # fmt: skip
    try:
        assert waits.stdout is not None and waits.stdout.readline()

        def load() -> Load:
            return idle_looks.read_load((computes.pid, waits.pid, 4194303))

        # Beside others it may get only a little of a core for a while.
        assert wait_until(lambda: load().word(frozenset((computes.pid,))) == "cpu", 20)
        found = load()
        assert found.word(frozenset((waits.pid, 4194303))) == ""
        assert found.cores.keys() == {computes.pid, waits.pid}
        assert found.cores[computes.pid] < 1.5 * (os.cpu_count() or 1)
    finally:
        for child in (computes, waits):
            child.kill()
            child.wait()
        assert waits.stdout is not None
        waits.stdout.close()


@pytest.mark.parametrize(
    ("states", "word"), [("DDDDDD", "disk"), ("SDSDSD", "disk"), ("SSDSSS", ""), ("SSSSDD", ""), ("RRRRRR", "")]
)
def test_the_state_of_who_waits_in_the_kernel(monkeypatch: pytest.MonkeyPatch, states: str, word: str) -> None:
    """In several readings: a program that starts another one is in state D for a moment as well (vfork(2))."""
    letters = iter(states)
    monkeypatch.setattr(idle_looks, "_reading", lambda pid: (1, 5.0, next(letters)))
    assert idle_looks.read_load((77,)).word(frozenset((77,))) == word


def test_the_note_is_never_ahead_of_the_clock(looks: Any) -> None:
    """Its whole seconds are past ones: with no time allowed, what was busy a moment ago is idle now."""
    assert [one.word for one in looks(0.9, gpu(utilisation=0.5), after_s=0)] == ["busy"]
    assert [one.word for one in looks(0.95, gpu(), after_s=0)] == ["empty"]


def test_the_note_stays_small(looks: Any, tmp_path: Path) -> None:
    """The newest are kept, of however many jobs."""
    path = tmp_path / "state" / f"idle.{world.host()}"
    path.parent.mkdir()
    path.write_text("".join(f"{identity.boot_id()} {n} GPU-0 0 {NOW - n:.0f}\n" for n in range(50, 1500)))
    looks(0, gpu())
    kept = path.read_text().splitlines()
    assert (
        len(kept) == 200 and any(" 42 GPU-0 " in line for line in kept) and any(" 50 GPU-0 " in line for line in kept)
    )
