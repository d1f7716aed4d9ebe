"""Which srun has started which step: read right or not at all, and nothing said where it cannot be known."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.test_judge import NOW, job, process, survey

from handwash import remarks
from handwash.frozen import replace
from handwash.model import Unknown
from handwash.run import CouldNotTell, Result
from handwash.schedulers.slurm_launchers import Step, parse_steps, steps_argv

# As `scontrol --oneliner show step` prints them (22.05.8), the second for a batch script.
LINE = (
    "StepId=42.0 UserId=0 StartTime=2026-12-01T04:08:37 TimeLimit=UNLIMITED State=RUNNING Partition=main "
    "NodeList=n[1-2] Nodes=2 CPUs=2 Tasks=2 Name={name} Network=(null) TRES=cpu=2,mem=0,node=2 ResvPorts=(null) "
    "CPUFreqReq=Default Dist=Cyclic SrunHost:Pid={launcher}"
)
BATCH = (
    "StepId=42.batch UserId=0 StartTime=2026-12-01T04:09:02 TimeLimit=UNLIMITED State=RUNNING Partition=main NodeList=n1 "
    "Nodes=1 CPUs=0 Tasks=1 Name=batch Network=(null) TRES=(null) ResvPorts=(null) CPUFreqReq=Default SrunHost:Pid=(null):0"
)


def parse(*lines: str, err: bytes = b"", code: int | None = 0, timed_out: bool = False) -> tuple[Step, ...]:
    return parse_steps(Result(code, "\n".join((*lines, "")).encode("utf-8", "surrogatepass"), err, timed_out), "42")


def line(name: str = "sleep", launcher: str = "vm.site:21635") -> str:
    return LINE.format(name=name, launcher=launcher)


def test_a_step_and_a_batch_script() -> None:
    assert steps_argv("42") == ["scontrol", "--oneliner", "show", "step", "42"]
    (step,) = parse(line(), BATCH)
    assert (step.id, step.name, step.host, step.pid) == ("42.0", "sleep", "vm", 21635)
    assert step.started == time.mktime(time.strptime("2026-12-01T04:08:37", "%Y-%m-%dT%H:%M:%S"))
    # The component of a heterogeneous job is asked for, and cancelled, by its own number.
    assert parse(line().replace("42.0", "41+1.0"))[0].id == "42.0"


def test_no_steps_and_no_answer() -> None:
    """scontrol's two ways to say that there are none; all else that fails could not be told."""
    assert parse() == ()
    assert parse(err=b"Job step 42. not found\n", code=1) == ()
    assert parse("Job step 42. not found", code=1) == ()
    assert parse(err=b"slurm_get_job_steps error: Invalid job id specified\n", code=1) == ()
    for failed in ({"err": b"slurm_load: timed out", "code": 1}, {"code": 1}, {"code": None, "timed_out": True}):
        with pytest.raises(CouldNotTell):
            parse(line(), **failed)


@given(name=st.text(st.characters(exclude_characters="\n", codec="utf-8")))
@example(name="x Network=(null) SrunHost:Pid=other:1")
@example(name="a Name=b")
def test_any_name(name: str) -> None:
    """Whatever a step is called, the srun is the one that Slurm names."""
    (step,) = parse(line(name))
    assert (step.name, step.host, step.pid) == (name, "vm", 21635)


@given(text=st.text(), launcher=st.text(), code=st.sampled_from([0, 1, None]))
@example(text="", launcher="vm:0", code=0)
@example(text="", launcher="vm:²", code=0)
@example(text="StepId=42.0 SrunHost:Pid=vm", launcher="vm", code=0)
def test_anything_else(text: str, launcher: str, code: int | None) -> None:
    """No fault, and no step without a number, a host and a pid."""
    try:
        for step in parse(text, line(launcher=launcher), code=code):
            assert step.job == "42" and step.number.isdigit() and step.host and step.pid > 0
    except (CouldNotTell, UnicodeEncodeError):
        pass


STEP = Step("42", "0", "x", "login1", 5000, NOW)


@pytest.mark.parametrize(
    ("processes", "host", "gone"),
    [
        ((), "login1", True),
        ((), "login2", False),
        ((process(5000, name="srun"),), "login1", False),
        ((process(5000, name="anything"),), "login1", False),
        ((process(5000, name="srun", state="Z"),), "login1", True),
        # The killed srun's own child, which ends the step; one in a container, which has another number there.
        ((process(5001, name="srun", started=NOW - 1),), "login1", False),
        # One that waits for what the step holds.
        ((process(5001, name="srun", started=NOW + 60),), "login1", True),
        # Of another step on the list, with its child.
        ((process(6000, name="srun", started=NOW - 9), process(6001, ppid=6000, name="srun")), "login1", True),
        ((process(6000, name="bash", started=NOW - 9),), "login1", True),
    ],
)
def test_whose_srun_is_gone(processes: Any, host: str, gone: bool) -> None:
    other = Step("42", "1", "y", "login1", 6000, NOW)
    assert (STEP in remarks.without_srun((STEP, other), processes, host)) == gone
    if not gone and host == "login1":
        assert STEP not in remarks.without_srun((replace(STEP, started=None),), processes, host)


def test_the_jobs_that_are_held_from_here() -> None:
    """This shell's, and those that somebody on this host sits in; what waits, and what nobody sits in, has no such step."""
    mine, sat_in, unattended = (
        job(number, alloc_host="login1", alloc_sid=int(number)) for number in ("42", "77", "78")
    )
    waiting = replace(sat_in, id="79", number="79", state="PENDING")
    batch = replace(sat_in, id="80", number="80", interactive=False)
    salloc = process(name="salloc", sid=77)
    seen = survey("compute", "42", jobs=(mine, sat_in, unattended, waiting, batch), processes=(salloc,))
    assert [found.id for found in remarks.held_from(seen, "login1")] == ["42", "77"]
    assert [found.id for found in remarks.held_from(seen, "login2")] == ["42"]
    assert remarks.held_from(replace(seen, jobs=Unknown("why")), "login1") == ()
