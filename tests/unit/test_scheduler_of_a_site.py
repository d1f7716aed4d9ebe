"""The scheduler that docs/schedulers.md writes down as an example, exactly as it stands there."""

from __future__ import annotations

import json
import marshal
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handwash import judge, run, schedulers, survey, tell, usage, world
from handwash.commands import usage as command
from handwash.config import Config
from handwash.frozen import replace
from handwash.model import Job, Node, Site, Survey, Unknown
from handwash.run import CouldNotTell
from handwash.schedulers import of_the_site
from handwash.schedulers.base import Leaving, Partition, Place
from handwash.srun import local
from handwash.survey import gpus, procfs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "schedulers.md"
NAME = "jobq_of_the_page"


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The module is installed and named by the setting; what `jobq list` prints is in this file."""
    (tmp_path / f"{NAME}.py").write_text(PAGE.read_text().split("```python\n")[1].split("```")[0])
    program, said = tmp_path / "jobq", tmp_path / "said"
    program.write_text(f'#!/bin/sh\n[ "$1" = list ] && cat {said}\n')
    program.chmod(0o755)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(world, "env", {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)})
    schedulers.choose(NAME)
    yield said
    schedulers.choose("")
    schedulers._known.pop(NAME, None)
    sys.modules.pop(NAME, None)


def look() -> Survey:
    return survey.take(20, only=("jobs", "node", "processes"))


def test_its_jobs_and_its_place(queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.write_text("7 run 2 3600 n1,n2 my job\n8 wait 1 0  later\n")
    seen = look()
    assert not isinstance(seen.jobs, Unknown) and not isinstance(seen.node, Unknown)
    assert [(job.id, job.state, job.gpus, job.gpu_hours, job.name) for job in seen.jobs] == [
        ("7", "RUNNING", 2, 2.0, "my job"),
        ("8", "PENDING", 1, 0.0, "later"),
    ]
    assert (seen.node.kind, seen.node.job) == ("login", None)
    monkeypatch.setitem(world.env, "JOBQ_ID", "7")  # type: ignore[misc]
    inside = look().node
    assert not isinstance(inside, Unknown) and (inside.kind, inside.job, inside.held) == ("compute", "7", 2)
    assert schedulers.here().cancel_line("7") == "jobq end 7"


@pytest.mark.parametrize("said", ["7 run many 3600 n1 x\n", "gibberish\n"])
def test_an_answer_that_cannot_be_read(queue: Path, said: str) -> None:
    """That is no empty queue."""
    queue.write_text(said)
    assert isinstance(look().jobs, Unknown)


def test_what_its_jobs_cost(queue: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Those that run, and that it is at least, for nobody has said what those have cost that are over."""
    queue.write_text("7 run 2 3600 n1,n2 my job\n8 wait 4 0  later\n9 suspended 1 1800 n1 other\n")
    assert command.usage(Config(), as_json=True, since=world.now() - 86400) == 3
    answer = json.loads(capfd.readouterr().out)
    assert (answer["known"], answer["source"], answer["gpus_now"], answer["gpu_hours"]) == (False, "jobq", 2, 2.5)
    assert {item["id"]: item["state"] for item in answer["items"]} == {"7": "RUNNING", "9": "SUSPENDED"}
    assert command.usage(Config(), as_json=False, since=world.now() - 86400) == 3
    out = capfd.readouterr().out
    assert "At least 2.50 GPU-hours, by what the queue still shows" in out and out.count("could not tell") == 1
    # No answer is no number.
    queue.write_text("gibberish\n")
    assert command.usage(Config(), as_json=True, since=world.now() - 86400) == 3
    answer = json.loads(capfd.readouterr().out)
    assert (answer["gpu_hours"], answer["source"]) == (None, None) and "cannot be read" in answer["why"]


@pytest.mark.parametrize("answer", ["1 / 0", "None", "''", "__import__('time').sleep(60)"])
def test_what_its_records_are_called(queue: Path, capfd: pytest.CaptureFixture[str], answer: str) -> None:
    """A sentence that names them has a name."""
    queue.write_text("")
    module = queue.parent / f"{NAME}.py"
    records = "lambda *_words: __import__('handwash.usage').usage.Records((), 'jobq')"
    module.write_text(f"{module.read_text()}Jobq.records = {records}\nJobq.records_name = lambda _self: {answer}\n")
    assert command.usage(Config(), as_json=False, since=world.now() - 86400) == 0
    assert "Total: 0.00 GPU-hours, by the scheduler's records." in capfd.readouterr().out


def test_a_job_of_which_nobody_knows_since_when(queue: Path) -> None:
    """It is there, holds its GPUs, and has cost at least nothing."""
    queue.write_text("7 run 2 3600 n1 my job\n")
    module = queue.parent / f"{NAME}.py"
    module.write_text(module.read_text().replace("elapsed_s=int(seconds)", "elapsed_s=None"))
    found = schedulers.here().shown(1000.0, 1.0)
    assert [(run.started, run.elapsed_s, run.running) for run in found.runs] == [(1000.0, 0, True)]
    assert len(found.doubts) == 1 and "7" in found.doubts[0]


def test_a_module_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The reason, once, and no number."""
    schedulers.choose("no_such_module_anywhere")
    try:
        assert command.usage(Config(), as_json=True, since=world.now() - 86400) == 3
    finally:
        schedulers.choose("")
        schedulers._known.pop("no_such_module_anywhere", None)
    answer = json.loads(capfd.readouterr().out)
    assert answer["gpu_hours"] is None and answer["why"].count("no_such_module_anywhere") == 2


JOB = Job("7", "7", "RUNNING", "x", "p", ("n1",), 1, 60, None, None)
PLACE = Place("compute", "7", ("x",))
PARTITION = Partition("p", True, 8, 1, 16, None)
RUN = usage.Run("7", "7", "RUNNING", "x", "p", ("n1",), 1, 1000.0, None, 60, 0, "jobq")
ANSWERS: list[tuple[str, Any, Callable[[Any], Any]]] = [
    ("jobs", JOB, lambda job: (job,)),
    ("site", Site(), lambda found: found),
    ("place", PLACE, lambda place: place),
    ("partitions", PARTITION, lambda partition: (partition,)),
    ("leaving", Leaving("a", "b", "c"), lambda leaving: leaving),
    ("records", RUN, lambda one: usage.Records((one,), "jobq")),
    ("shown", usage.Records((), "jobq"), lambda records: records),
]
FIELDS = [(method, record, whole, name) for method, record, whole in ANSWERS for name in record._fields]


@pytest.mark.parametrize(("method", "record", "whole", "name"), FIELDS)
def test_every_field_of_an_answer(method: str, record: Any, whole: Callable[[Any], Any], name: str) -> None:
    """A value that its place is not for is no answer; the right ones pass as they are, and travel."""
    is_right = of_the_site._CHECKS[method]
    assert is_right(whole(record))
    assert of_the_site.unpacked(marshal.loads(marshal.dumps(of_the_site.packed(whole(record))))) == whole(record)
    value = getattr(record, name)
    wrongs: list[Any] = [b"x", 1.5, [value], {value: 1}, object(), (None,), ("x", 1), -1, 1 << 53, float("nan")]
    wrongs += [True] if not isinstance(value, bool) and name not in ("interactive", "controller") else [1, 0, "yes"]
    wrongs += (
        [None] if isinstance(value, str) and name not in ("job", "proctrack") else ["1"] if type(value) is int else []
    )
    for wrong in wrongs:
        if wrong == 1.5 and name in ("started", "ended"):
            continue
        with pytest.raises(TypeError, match=f"{type(record).__name__}.{name} = "):
            assert not is_right(whole(replace(record, **{name: wrong})))


@given(st.lists(st.tuples(st.text(min_size=1), st.one_of(st.none(), st.integers(0, 1 << 52)))))
def test_records_travel(rows: list[tuple[str, int | None]]) -> None:
    jobs = tuple(replace(JOB, id=name, number=name, gpus=gpus) for name, gpus in rows)
    assert of_the_site.unpacked(marshal.loads(marshal.dumps(of_the_site.packed(jobs)))) == jobs


def test_none_of_it_runs_here(queue: Path) -> None:
    """Whatever is asked, the module is not imported in this process; outside of a look its answers are the same."""
    queue.write_text("7 run 2 3600 n1,n2 my job\n")
    here = schedulers.here()
    assert (here.name, here.variables, here.lists_all, here.divided_by) == ("jobq", (b"JOBQ_ID",), True, "partition")
    assert here.membership(None, {"JOBQ_ID": "7"}) == ("7", None, "environment")
    assert (here.queue_line("7"), here.server_line(), here.records_name()) == (
        "jobq show 7",
        "",
        "the scheduler's records",
    )
    assert here.cancel("7") is None and here.leaving(Site(), None) is None
    assert here.place({"seen": {"job": "7", "runs_jobs": True}}, frozenset({"7"})).job == "7"
    assert [run.id for run in here.shown(1e9, 5.0).runs] == ["7"]
    with pytest.raises(CouldNotTell, match="only those that run"):
        here.records(0.0, 5.0)
    assert NAME not in sys.modules


def test_who_is_silent_is_not_waited_for_again(queue: Path) -> None:
    """A method that hangs costs its patience once; lines are left out then, and it has a name all the same."""
    module = queue.parent / f"{NAME}.py"
    module.write_text(module.read_text() + "import time; time.sleep(60)\n")
    here = schedulers.here()
    began = time.monotonic()
    words = "the command of jobq_of_the_page that cancels job 7"
    assert [here.cancel_line("7") for _time in range(20)] == [words] * 20
    assert here.name == NAME and here.reaches_nodes is False and here.records_name() == "the scheduler's records"
    assert time.monotonic() - began < of_the_site._PATIENCE_S * 4


def test_a_cancel_that_hangs(queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the job has left could not be told; what is asked afterwards is answered."""
    monkeypatch.setattr(of_the_site, "_CANCEL_S", 0.3)
    module = queue.parent / f"{NAME}.py"
    module.write_text(f"{module.read_text()}Jobq.cancel = lambda _self, _job: __import__('time').sleep(60)\n")
    assert schedulers.here().cancel("7") is None and schedulers.here().queue_line("7") == "jobq show 7"


@pytest.mark.parametrize("fault", ["import time; time.sleep(60)\n", "Jobq.membership = lambda *_words: 1 / 0\n"])
def test_who_is_on_a_gpu_is_told_without_it(queue: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """A module that fails or hangs is no driver that does."""
    module = queue.parent / f"{NAME}.py"
    module.write_text(module.read_text() + fault)
    monkeypatch.setattr(procfs, "is_host_namespace", lambda: True)
    listed = [{"uses": [(os.getpid(), None, "compute", None)]}]
    said = run.looks({"gpus": lambda: gpus.named_in(listed)[0]}, 3)["gpus"]
    assert [(row["pid"], row["job"]) for row in said] == [(os.getpid(), None)]


def test_what_is_left_of_a_job_and_what_lives(queue: Path) -> None:
    """A process of a job that is over, beside one of a job that is in the queue."""
    queue.write_text("7 run 1 60 n1 x\n")
    # Not children of this process, which is handwash here: what it starts itself is never the person's.
    line = ["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"]
    living, left = (int(subprocess.check_output(line, env={"PATH": os.defpath, "JOBQ_ID": job})) for job in ("7", "6"))
    try:
        seen = look()
        assert not isinstance(seen.processes, Unknown)
        # Root's processes in a job are the scheduler's own.
        people = tuple(replace(one, uid=1000) for one in seen.processes)
        verdict = judge.judge(replace(seen, processes=people), 1000, world.now())
        words = {one.process.pid: (one.whose, one.leftover) for one in verdict.judged}
        assert words[left] == ("ended-job", True) and words[living] == ("living-job", False)
    finally:
        os.kill(left, signal.SIGKILL)
        os.kill(living, signal.SIGKILL)


def test_a_local_session_knows_its_jobs(queue: Path) -> None:
    """By their variables, so that one that was submitted from the session goes on; a module that is broken says nothing."""
    assert local.of_the_site(NAME) == (b"JOBQ_ID",)
    assert local.of_the_site("no_such_module_anywhere") == ()
    assert local.of_the_site("pbs") == local.of_the_site("") == ()


def test_a_shell_of_an_allocation(queue: Path) -> None:
    """Only Slurm has an srun with which programs reach it."""
    assert "srun" not in tell.place(Node("allocation-shell", "login1", "7", False, (), held=2))
    schedulers.choose("slurm")
    assert "srun" in tell.place(Node("allocation-shell", "login1", "7", False, (), held=2))
