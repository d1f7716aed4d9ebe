"""The sums of `handwash usage`: each second of a run counted once, and "at least" wherever it is no more than that."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.test_since import zone

from handwash import usage
from handwash.model import Unknown
from handwash.usage import Records, Run

HOUR = 3600
# 2026-11-30 00:00 UTC, and a day and a half later.
BEGIN = 1795996800.0
UNTIL = BEGIN + 36 * HOUR


def ran(start_h: float, hours: float, gpus: int | None = 2, suspended_h: float = 0, **more: Any) -> Run:
    """A run that began `start_h` hours after BEGIN, and was at work for `hours`."""
    started = BEGIN + start_h * HOUR
    fields: dict[str, Any] = {
        "id": "7",
        "number": "7",
        "state": "COMPLETED",
        "name": "train",
        "partition": "main",
        "nodes": ("n1",),
        "gpus": gpus,
        "started": started,
        "ended": started + (hours + suspended_h) * HOUR,
        "elapsed_s": int(hours * HOUR),
        "suspended_s": int(suspended_h * HOUR),
        "by": "sacct",
    }
    return Run(**{**fields, **more})


def runs(start_h: float, hours: float, gpus: int | None = 2, **more: Any) -> Run:
    return ran(start_h, hours, gpus, **{"ended": None, "state": "RUNNING", **more})


def told(*recorded: Run, queue: Any = (), accounting: Any = None, **more: Any) -> usage.Usage:
    queue = queue if isinstance(queue, Unknown) else Records(queue, "squeue")
    return usage.usage(BEGIN, UNTIL, Records(recorded, "sacct", **more) if accounting is None else accounting, queue)


@pytest.mark.parametrize(
    ("run", "hours"),
    [
        (ran(1, 3), 6),
        (ran(1, 3, gpus=0), 0),
        # Began before: only the hours since then.
        (ran(-5, 6), 2),
        (ran(-5, 5), 0),
        (ran(-9, 3), 0),
        # Suspended: does not count; where all of it lies in the span, that is exact.
        (ran(1, 3, suspended_h=4), 6),
    ],
)
def test_one_run(run: Run, hours: float) -> None:
    """GPUs times hours since then."""
    found = told(run)
    assert found.gpu_hours == hours and not found.doubts and found.source == "sacct"
    assert len(found.counted) == (run.last > BEGIN)


def test_a_running_one() -> None:
    """Counted up to now, first in the list, and what each further hour costs is said."""
    found = told(ran(1, 30), runs(35, 1, gpus=3, number="8", id="8"), queue=(runs(35, 1, gpus=3, number="8", id="8"),))
    assert [one.run.id for one in found.counted] == ["8", "7"]
    assert (found.gpu_hours, found.gpus_now, len(found.running), found.doubts) == (63, 3, 1, ())
    # One that is suspended costs nothing meanwhile.
    asleep = runs(20, 1, suspended_h=15, state="SUSPENDED")
    found = told(asleep, queue=(asleep,))
    assert (found.gpu_hours, found.gpus_now, found.running) == (2, 0, ()) and found.counted[0].run.running


def test_requeued_and_array_and_heterogeneous() -> None:
    """Each run of a requeued job, each task and each component counts with its own GPUs."""
    rows = (
        *(ran(1, 2), ran(5, 1)),
        *(ran(1, 1, id=f"9_{task}", number=str(9 + task)) for task in range(3)),
        *(ran(1, 1, gpus=gpus, id=f"20+{part}", number=str(20 + part)) for part, gpus in enumerate((1, 4))),
    )
    assert told(*rows).gpu_hours == 6 + 6 + 5


def test_suspended_before_or_after() -> None:
    """Began before and was suspended: when, nobody says. At least what it must have been, and named."""
    found = told(ran(-5, 6, suspended_h=3))
    assert found.gpu_hours == 2 * 1 and "7" in found.doubts[0]
    # More in suspension than the whole span: it may have cost nothing since.
    assert told(ran(-5, 2, suspended_h=5)).gpu_hours == 0
    assert not told(ran(-5, 2, suspended_h=1)).counted
    assert not told(ran(-5, 6, gpus=0, suspended_h=3)).doubts


def test_a_clock_that_is_ahead() -> None:
    """Whoever wrote the records may be some seconds ahead of this machine: nothing is cut off, and nothing in doubt."""
    ahead = runs(30, 6.01, suspended_h=0.01)
    found = told(ahead, queue=(ahead,))
    assert found.gpu_hours == pytest.approx(12.02) and not found.doubts
    assert sum(month.gpu_hours for month in found.months) == pytest.approx(12.02)


def test_no_end_on_record() -> None:
    """Running by the accounting, and not in the queue: not counted, and said. With the queue unknown there is no such word."""
    found = told(runs(1, 20), ran(1, 1, id="8", number="8"))
    assert found.gpu_hours == 2 and not found.running and "7" in found.doubts[0]
    assert [one.gpu_hours for one in found.counted if one.run.lost] == [None]
    unsure = told(runs(1, 20), queue=Unknown("down"))
    assert unsure.gpu_hours == 40 and unsure.unsure and "7" in unsure.doubts[0] and "down" in unsure.doubts[0]
    assert not told(ran(1, 20), runs(1, 20, gpus=0), queue=Unknown("down")).doubts
    assert not told(runs(1, 20, gpus=0)).doubts


def test_the_accounting_lags_behind() -> None:
    """A job that only the queue has counts too; what the accounting knows of one counts before the queue's word."""
    queue = (runs(30, 6, number="9", id="9", by="squeue"), ran(1, 2, number="7", by="squeue"))
    found = told(ran(1, 3), queue=queue)
    assert found.gpu_hours == 6 + 12
    assert {one.run.number: one.run.by for one in found.counted} == {"7": "sacct", "9": "squeue"}
    # Over by the queue, and not yet on record: its end is the queue's.
    over = ran(30, 2, state="TIMEOUT", by="squeue")
    (one,) = told(runs(30, 6), queue=(over,)).counted
    assert (one.run.state, one.run.ended, one.gpu_hours, one.run.running) == ("TIMEOUT", over.ended, 4, False)
    # Requeued: the second run is not on record yet, nor perhaps the end of the first.
    second = runs(34, 2, by="squeue")
    assert told(ran(30, 2), queue=(second,)).gpu_hours == 8
    found = told(runs(30, 6), queue=(second,))
    assert found.gpu_hours == 4 and "7" in found.doubts[0]
    # Its size changed: two records, one job in the queue.
    found = told(ran(30, 2, gpus=4, state="RESIZING"), runs(32, 4, gpus=1), queue=(runs(30, 6, gpus=1),))
    assert (found.gpu_hours, found.gpus_now, found.doubts) == (12, 1, ())
    found = told(ran(30, 2, gpus=4, state="RESIZING"), runs(32, 4, gpus=1), queue=(ran(30, 5, gpus=1),))
    assert found.gpu_hours == 11
    # Begun before the site had GPUs put on record.
    assert told(runs(34, 2, gpus=0), queue=(runs(34, 2, gpus=4),)).gpu_hours == 8
    assert told(ran(34, 1, gpus=0), queue=(runs(34, 2, gpus=4),)).gpu_hours == 0


def test_gpus_that_are_not_known() -> None:
    """Said, and not counted as none."""
    found = told(ran(1, 2, gpus=None), ran(1, 2, id="8", number="8"))
    assert found.gpu_hours == 4 and "7" in found.doubts[0] and len(found.doubts) == 1


def test_without_accounting() -> None:
    """The queue alone: at least; neither of them: nothing at all, which is not 0."""
    found = told(accounting=Unknown("disabled"), queue=(runs(30, 6), ran(30, 6, id="8", number="8")))
    assert (found.gpu_hours, found.source, found.doubts) == (24, "squeue", ("disabled",))
    found = told(accounting=Unknown("disabled"), queue=Unknown("down"))
    assert (found.gpu_hours, found.source, found.doubts, found.counted) == (None, None, ("disabled", "down"), ())
    assert told().gpu_hours == 0 and told().doubts == ()


def test_records_that_tell_what_runs_too() -> None:
    """The queue adds nothing to them and takes nothing away, and nobody has to ask it; what they say is missing is said."""
    run = runs(30, 6, by="qstat")
    for queue in ((), (runs(30, 6, id="8", number="8"),), Unknown("down")):
        found = told(run, queue=queue, complete=True)
        assert [one.run for one in found.counted] == [run]
        assert (found.gpu_hours, found.gpus_now, found.doubts, found.recorded) == (12, 2, (), True)
    found = told(run, complete=True, doubts=("forgotten",))
    assert found.doubts == ("forgotten",) and found.recorded and not found.unsure
    # Those of the queue count where it alone has answered.
    queue = Records((run,), "qstat", ("in part",), complete=True)
    found = usage.usage(BEGIN, UNTIL, Unknown("none kept"), queue)
    assert (found.gpu_hours, found.source, found.doubts) == (12, "qstat", ("none kept", "in part"))
    assert not found.recorded and not found.unsure


def test_many_names_are_cut() -> None:
    """A sentence names a few jobs."""
    found = told(*(ran(1, 1, gpus=None, id=str(n), number=str(n)) for n in range(100)))
    assert "95" in found.doubts[0] and len(found.doubts[0]) < 200


def test_months() -> None:
    """A run over the end of a month is in both, with its hours in each; a month without cost is left out."""
    with zone("UTC0"):
        found = told(ran(20, 8, gpus=1), runs(30, 6, gpus=1, number="8"), queue=Unknown(""))
        assert [(one.gpu_hours, one.exact) for one in found.months] == [(4, True), (10, True)]
        assert [one.begin for one in found.months] == [BEGIN, BEGIN + 24 * HOUR]
        found = usage.usage(BEGIN - 1000 * 86400, UNTIL, Records((ran(-24 * 100, 1),), "sacct"), Unknown(""))
        assert len(found.months) == 1
        found = told(ran(20, 8, gpus=1, suspended_h=2))
        assert [one.exact for one in found.months] == [False, False] and found.gpu_hours == 8 and not found.doubts


RUNS = st.builds(
    ran,
    st.integers(-50, 35),
    st.integers(0, 60),
    st.integers(0, 8),
    st.integers(0, 20),
    number=st.integers(1, 5).map(str),
    by=st.just("sacct"),
)


@given(RUNS, st.integers(-60, 60), st.integers(0, 60), st.integers(0, 60))
def test_cutting_a_span_in_two(run: Run, begin: int, first: int, second: int) -> None:
    """Never more than the span or the run; exact parts add up to the exact whole, lower bounds to no more."""
    edges = [BEGIN + hour * HOUR for hour in (begin, begin + first, begin + first + second)]
    whole = usage.count(run, edges[0], edges[2])
    parts = [usage.count(run, edges[0], edges[1]), usage.count(run, edges[1], edges[2])]
    assert 0 <= whole.seconds <= min(run.elapsed_s, edges[2] - edges[0])
    if all(one.exact for one in (whole, *parts)) and not run.suspended_s:
        assert sum(one.seconds for one in parts) == whole.seconds
    assert sum(one.seconds for one in parts) <= run.elapsed_s
    assert whole.exact or run.suspended_s


@given(st.lists(RUNS, max_size=6), st.lists(RUNS, max_size=3))
def test_sums(recorded: list[Run], queue: list[Run]) -> None:
    """The total is the sum of its rows, no run is counted twice, the months hold no more than the total."""
    found = told(*recorded, queue=tuple(queue))
    latest = {run.number: max(one.started for one in recorded if one.number == run.number) for run in recorded}
    more = [run for run in queue if run.started > latest.get(run.number, 0)]
    expected = [run for run in (*recorded, *more) if run.last > BEGIN]
    assert len(found.counted) == len(expected)
    assert found.gpu_hours == sum(one.gpu_hours or 0 for one in found.counted)
    assert sum(month.gpu_hours for month in found.months) <= found.gpu_hours + 1e-9
    if not any(run.suspended_s for run in expected):
        assert sum(month.gpu_hours for month in found.months) == pytest.approx(found.gpu_hours)
