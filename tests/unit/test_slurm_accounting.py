"""The readers of sacct's and squeue's answers about the past: right, or "could not tell", whatever comes."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handwash.run import CouldNotTell, Result
from handwash.schedulers import slurm
from handwash.schedulers import slurm_accounting as accounting

END = "\x1fa1b2\x1f"
COLUMNS = {
    "JobID": "120_3",
    "JobIDRaw": "123",
    "State": "COMPLETED",
    "Start": "2026-11-30T21:00:00",
    "End": "2026-11-30T22:00:00",
    "ElapsedRaw": "3600",
    "Suspended": "00:00:00",
    "NodeList": "n[1-2]",
    "Partition": "main",
    "AllocTRES": "billing=4,cpu=4,gres/gpu:a100=2,gres/gpu=2,node=2",
    "JobName": "train",
}
START = 1796072400.0


def row(**changes: str) -> str:
    fields = {**COLUMNS, **changes}
    assert set(fields) == set(COLUMNS)
    return "".join(value + END for value in fields.values()) + "\n"


HEADING = "".join(name + END for name in COLUMNS) + "\n"


def answer(out: str | bytes, err: bytes = b"", code: int | None = 0, **more: bool) -> Result:
    return Result(code, out.encode() if isinstance(out, str) else out, err, **{"timed_out": False, **more})


def parsed(*rows: str) -> tuple[Any, ...]:
    return accounting.parse_sacct(answer(HEADING + "".join(rows)), END)


def test_the_request() -> None:
    """Read-only, once, for one uid, in UTC; the columns asked for are the columns read."""
    argv = accounting.sacct_argv(1234, START + 0.7, END)
    assert argv[0] == "sacct" and {"--allocations", "--duplicates", "--user=1234", f"--delimiter={END}"} <= set(argv)
    assert "--starttime=2026-11-30T21:00:00" in argv and "--truncate" not in argv
    assert argv[-1] == "--format=" + ",".join(COLUMNS)


def test_a_whole_row() -> None:
    """Every field comes out where it belongs."""
    (run,) = parsed(row())
    assert (run.id, run.number, run.state, run.name, run.partition) == ("120_3", "123", "COMPLETED", "train", "main")
    assert (run.nodes, run.gpus, run.started, run.ended) == (("n1", "n2"), 2, START, START + 3600)
    assert (run.elapsed_s, run.suspended_s, run.by, run.running) == (3600, 0, "sacct", False)


def test_states() -> None:
    """A running one has no end; words behind a state are not the state; what has not begun is not there."""
    (run,) = parsed(row(State="RUNNING", End="Unknown"))
    assert run.running and run.ended is None and run.last == START + 3600
    assert parsed(row(State="CANCELLED by 1000"))[0].state == "CANCELLED"
    (asleep,) = parsed(row(State="SUSPENDED", End="Unknown", Suspended="1-00:00:10"))
    assert asleep.suspended_s == 86410 and asleep.running
    never = [
        row(JobID="120_[4-9]", State="PENDING", Start="Unknown", End="Unknown", ElapsedRaw="0", AllocTRES=""),
        row(State="PENDING", Start="2026-11-30T23:00:00", End="Unknown", ElapsedRaw="0", AllocTRES=""),
        row(State="CANCELLED by 0", Start="None", ElapsedRaw="0", AllocTRES=""),
        # Older releases gave one that was cancelled in the queue a start.
        row(
            State="CANCELLED by 0", Start="2026-11-30T22:00:00", ElapsedRaw="0", AllocTRES="", NodeList="None assigned"
        ),
    ]
    assert parsed(*never) == ()
    # Over at once, and it has held a GPU.
    assert len(parsed(row(ElapsedRaw="0"))) == 1
    # Begun, and no resources on record.
    assert parsed(row(AllocTRES="", NodeList="None assigned"))[0].nodes == ()


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        *(("", 0), ("cpu=1,gres/gpu=4", 4), ("gres/gpu:a100=2,gres/gpu:v100=1", 3)),
        *(("gres/dcu=4,gres/dcu:Z100=4", 4), ("gres/npu=8", 8)),
        *(("gres/shard=3,gres/mps=50", 0), ("gres/gpu=x", None)),
    ],
)
def test_gpus(tres: str, gpus: int | None) -> None:
    """A typed entry repeats the total; parts of a GPU are not GPUs; what cannot be read is not none."""
    assert parsed(row(AllocTRES=tres))[0].gpus == gpus


def test_none_at_all() -> None:
    """The heading alone is no job; nothing at all is no answer."""
    assert parsed() == ()
    with pytest.raises(CouldNotTell):
        accounting.parse_sacct(answer(""), END)


@pytest.mark.parametrize(
    "result",
    [
        answer(HEADING + row(), err=b"sacct: error: something"),
        answer(HEADING + row(), code=1),
        answer(HEADING, code=None, timed_out=True),
        answer(HEADING, code=None, capped=True),
        answer("Welcome!\n" + HEADING + row()),
        answer(HEADING + row()[:-1]),
        answer(HEADING + row()[:-40]),
        answer(HEADING + row() + "x"),
        answer(HEADING + row() + END),
        answer(row()),
        answer(HEADING.replace(END, "|")),
        answer(b"\xff\xfe" * 100),
    ],
)
def test_what_is_no_whole_answer(result: Result) -> None:
    """Could not tell, and never a part of the jobs."""
    with pytest.raises(CouldNotTell):
        accounting.parse_sacct(result, END)


@pytest.mark.parametrize(
    "changes",
    [
        *({"JobID": "x"}, {"JobID": ""}, {"JobIDRaw": "120_3"}, {"State": "Running!"}, {"State": ""}),
        *({"ElapsedRaw": ""}, {"ElapsedRaw": "-5"}, {"Suspended": "soon"}),
    ],
)
def test_rows_that_cannot_be_read(changes: dict[str, str]) -> None:
    with pytest.raises(CouldNotTell):
        parsed(row(), row(**changes))


def test_reasons() -> None:
    """Slurm's own words, or what to do."""
    with pytest.raises(CouldNotTell, match="Slurm accounting storage is disabled"):
        accounting.parse_sacct(answer("", b"Slurm accounting storage is disabled\n", 1), END)
    with pytest.raises(CouldNotTell, match="--since"):
        accounting.parse_sacct(answer("", code=None, timed_out=True), END)


@given(st.lists(st.text(st.characters(blacklist_categories=("Cs",)), max_size=30), max_size=5))
def test_any_name(names: list[str]) -> None:
    """Names hold newlines and every separator there is, but for one that was made up just now."""
    names = [name.replace(END, "") for name in names]
    assert [run.name for run in parsed(*(row(JobName=name) for name in names))] == names


@given(st.text(max_size=300))
def test_any_answer(text: str) -> None:
    """Runs, or could not tell."""
    for out in (text, HEADING + text, HEADING + row() + text):
        try:
            found = accounting.parse_sacct(answer(out.encode("utf-8", "surrogatepass")), END)
        except CouldNotTell:
            continue
        assert len(found) == (out != HEADING)


@given(st.data())
def test_any_fields(data: st.DataObject) -> None:
    """A row with anything in one field: read, left out, or could not tell."""
    name = data.draw(st.sampled_from(sorted(COLUMNS)))
    text = data.draw(st.text(st.sampled_from("0123456789-:T_[],=gpu/ \nUnknownRUNNING\x1b名"), max_size=30))
    try:
        found = parsed(row(**{name: text}))
    except CouldNotTell:
        return
    assert len(found) <= 1
    assert all(run.elapsed_s >= 0 and run.suspended_s >= 0 for run in found)


@given(st.integers(0, 4 * 10**9))
def test_times_in_utc(seconds: int) -> None:
    """What Slurm prints of a time under TZ=UTC0 is read as that time."""
    assert accounting.parse_utc(time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))) == seconds


@given(st.text(max_size=25))
def test_times_never_fail(text: str) -> None:
    assert accounting.parse_utc(text) is None or "T" in text


# The queue

QUEUED = "123|123|RUNNING|1|1:00:00|2:00:00|1|1|cpu=1|N/A|gres:gpu:2|N/A|N/A|OK|main|n1|login1|4711|train"
NOW = START + 3600


def queued(start: str = "2026-11-30T21:00:00", end: str = "2026-11-30T23:00:00", job: str = QUEUED) -> tuple[Any, ...]:
    text = "|".join((start, end, job)).replace("|", slurm.FIELD) + slurm.RECORD + "\n"
    return accounting.parse_queue(answer(text), NOW)


def test_the_queue_is_asked_once_with_what_has_ended() -> None:
    """The usual request, two columns before its own, all states."""
    argv = accounting.queue_argv(1234)
    usual = slurm.squeue_argv(1234)
    assert argv[-1] == "--states=all" and argv[: len(usual) - 1] == usual[:-1]
    field = slurm.FIELD
    assert argv[-2] == usual[-1].replace("--Format=", f"--Format=StartTime:0{field},EndTime:0{field},")


def test_the_queue() -> None:
    """A running one has no end yet, whatever its limit says; one that is over has."""
    (run,) = queued()
    assert (run.number, run.gpus, run.started, run.ended, run.elapsed_s, run.by) == (
        "123",
        2,
        START,
        None,
        3600,
        "squeue",
    )
    assert run.running and run.suspended_s == 0
    for state in ("COMPLETED", "TIMEOUT", "COMPLETING", "CANCELLED"):
        (run,) = queued(end="2026-11-30T22:00:00", job=QUEUED.replace("RUNNING", state))
        assert run.ended == START + 3600 and not run.running
    assert queued(end="N/A", job=QUEUED.replace("RUNNING", "FAILED"))[0].ended == START + 3600


def test_the_queue_leaves_out_what_holds_nothing() -> None:
    """A pending job has a start that is only expected; a cancelled one may have none."""
    assert queued(job=QUEUED.replace("RUNNING", "PENDING")) == ()
    assert queued(job=QUEUED.replace("1:00:00", "0:00", 1)) == ()
    assert queued(start="N/A") == ()


def test_suspended_in_the_queue() -> None:
    """What is missing between its start and now; a minute is but two clocks."""
    assert queued(job=QUEUED.replace("1:00:00", "20:00", 1))[0].suspended_s == 2400
    assert queued(job=QUEUED.replace("1:00:00", "59:30", 1))[0].suspended_s == 0


@given(st.text(max_size=200))
def test_any_queue(text: str) -> None:
    """Runs, or could not tell."""
    for out in (text, text + slurm.RECORD, f"{slurm.FIELD}{slurm.FIELD}{text}{slurm.RECORD}"):
        try:
            accounting.parse_queue(answer(out.encode("utf-8", "surrogatepass")), NOW)
        except CouldNotTell:
            continue


@pytest.mark.parametrize(
    ("text", "recorded"),
    [
        ("AccountingStorageTRES   = cpu,mem,energy,node,billing,fs/disk,vmem,pages\n", False),
        ("AccountingStorageTRES   = cpu,mem,gres/gpu\n", True),
        ("AccountingStorageTRES   = cpu,gres/gpu:a100,gres/gpu:v100\n", True),
        ("AccountingStorageTRES   = cpu,gres/dcu\n", True),
        ("AccountingStorageTRES   = cpu,gres/gpumem,gres/gpuutil\n", False),
        ("", None),
        ("slurm_load_ctl_conf error: Unable to contact slurm controller\n", None),
    ],
)
def test_whether_gpus_are_recorded(text: str, recorded: bool | None) -> None:
    """By the controller's configuration; without one, nobody knows."""
    assert accounting.parse_recorded(answer(text)) is recorded
    assert accounting.parse_recorded(answer(text, code=1)) is None
