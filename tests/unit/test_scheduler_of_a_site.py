"""The scheduler that docs/schedulers.md writes down as an example, exactly as it stands there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from handwash import judge, schedulers, survey, world
from handwash.commands import usage as command
from handwash.config import Config
from handwash.frozen import replace
from handwash.model import Survey, Unknown
from handwash.srun import local

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


def test_a_job_of_which_nobody_knows_since_when(queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there, holds its GPUs, and has cost at least nothing."""
    queue.write_text("7 run 2 3600 n1 my job\n")
    here = schedulers.here()
    jobs = here.jobs(here.ask())
    monkeypatch.setattr(
        type(sys.modules[NAME].SCHEDULER),
        "jobs",
        lambda _self, _said: tuple(replace(job, elapsed_s=None) for job in jobs),
    )
    found = here.shown(1000.0, 1.0)
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
