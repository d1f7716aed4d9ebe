"""What PBS has on record of a person's jobs: each run once, the least where it cannot be told, and what is missing is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.test_pbs_job import DOWN
from tests.unit.test_pbs_parsers import NOW, answer, record, values

from handwash import usage
from handwash.run import CouldNotTell, Result
from handwash.schedulers import pbs_accounting


def told(text: str, err: bytes = b"", begin: float = 0.0) -> usage.Records:
    return pbs_accounting.parse_history(answer(text, err), "alice", NOW, begin)


def runs(text: str, err: bytes = b"") -> tuple[usage.Run, ...]:
    return told(text, err).runs


OVER = {"obittime": "Mon Nov 30 15:59:20 2026", "resources_used__walltime": "00:00:55", "job_state": "F"}


def test_a_finished_run() -> None:
    """From its start to its obituary; the time that PBS counted, without the rest of it."""
    (run,) = runs(record(Exit_status="0", **OVER))
    assert (run.id, run.number, run.state, run.by, run.gpus) == ("90.vm", "90.vm", "COMPLETED", "qstat", 3)
    assert (run.started, run.ended, run.elapsed_s, run.suspended_s) == (NOW - 100, NOW - 40, 55, 0)
    assert not run.lost and not run.running


def test_an_end_on_old_releases() -> None:
    """Without an obituary's time, when its record last changed."""
    row = record(**{**OVER, "obittime": None, "mtime": "Mon Nov 30 15:59:21 2026"})
    assert [run.ended for run in runs(row)] == [NOW - 39]


def test_a_suspension() -> None:
    """The time that is missing between a run's ends is one; some seconds of delay are none."""
    begun = {**OVER, "stime": "Mon Nov 30 15:00:00 2026"}
    assert [run.suspended_s for run in runs(record(**begun))] == [59 * 60 + 20 - 55]


@pytest.mark.parametrize(
    ("status", "state"), [("0", "COMPLETED"), ("-29", "TIMEOUT"), ("271", "FAILED"), ("", "FAILED")]
)
def test_how_it_ended(status: str, state: str) -> None:
    """By its exit status, as measured."""
    assert runs(record(Exit_status=status, **OVER))[0].state == state


def test_a_run_that_goes_on() -> None:
    """It has no end, and has cost until now."""
    (run,) = runs(record())
    assert run.running and (run.started, run.ended, run.elapsed_s, run.last) == (NOW - 100, None, 100, NOW)


def test_what_never_ran() -> None:
    """Nothing of a job that waits or was deleted while it did, of an array as a whole, of somebody else's."""
    rows = (
        record("1.vm", job_state="Q", stime=None),
        record("2.vm", job_state="F", stime=None),
        *(record("3[].vm", job_state=letter) for letter in "BF"),
        record("3[4].vm", job_state="Q"),
        record("5.vm", job_state="M"),
        record("6.vm", Job_Owner="bob@login1"),
    )
    assert runs("".join(rows)) == ()


def test_an_end_without_a_time() -> None:
    """It has held a node, and nobody has counted for how long: named as not counted, rather than as nothing."""
    (run,) = runs(record("3[1].vm", job_state="X", resources_used__walltime=None))
    assert run.lost and run.ended is None


def test_made_up_from_the_array() -> None:
    """A subjob that was deleted before it began, or is forgotten, is none: it holds no node and has used nothing."""
    row = record("3[1].vm", job_state="X", resources_used__walltime=None, exec_vnode=None, exec_host=None)
    assert told(row) == usage.Records((), "qstat", complete=True)


def test_over_at_once() -> None:
    """Before MOM has counted anything: its few seconds."""
    (run,) = runs(record(**{**OVER, "resources_used__walltime": None}))
    assert (run.elapsed_s, run.lost) == (60, False)
    (run,) = runs(record(**{**OVER, "resources_used__walltime": None, "stime": "Mon Nov 30 15:58:19 2026"}))
    assert run.lost and run.last == NOW - 40


HOURS_AGO = "Mon Nov 30 13:00:00 2026"


@pytest.mark.parametrize(
    ("changes", "elapsed_s", "in_part"),
    [
        # What MOM has counted lags behind; by much more where it was suspended, or cannot be heard of.
        ({"resources_used__walltime": "02:45:00"}, 3 * 3600, False),
        ({"resources_used__walltime": "02:44:59"}, 2 * 3600 + 44 * 60 + 59, True),
        ({"resources_used__walltime": None}, 3 * 3600, False),
        ({"job_state": "S", "resources_used__walltime": "01:00:00"}, 3600, False),
        ({"job_state": "S", "resources_used__walltime": None}, 0, True),
        ({"job_state": "E", "resources_used__walltime": "01:00:00"}, 3600, True),
        # By the clock of the server it begins only in two minutes.
        ({"stime": "Mon Nov 30 16:02:00 2026", "resources_used__walltime": None}, 0, True),
        ({"stime": "Mon Nov 30 16:01:00 2026", "resources_used__walltime": None}, 0, False),
    ],
)
def test_how_long_it_has_run(changes: dict[str, str | None], elapsed_s: int, in_part: bool) -> None:
    """Without a suspension, as far as one can be seen; the least, where it cannot be told."""
    found = told(record(**{"stime": HOURS_AGO, **changes}))
    assert [run.elapsed_s for run in found.runs] == [elapsed_s] and found.runs[0].running
    assert bool(found.doubts) == in_part and all("90.vm" in doubt for doubt in found.doubts)
    # Nothing of one that costs nothing is in doubt.
    none = {"exec_vnode": "(n1:ncpus=4)", "Resource_List__ngpus": None, "Resource_List__select": "1:ncpus=4"}
    assert not told(record(**{"stime": HOURS_AGO, **changes, **none})).doubts


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"run_count": "1"}, False),
        ({"run_count": "2"}, True),
        ({"run_count": "many"}, False),
        ({**OVER, "run_count": "2"}, True),
        # It went on from a checkpoint: that is one run to `run_count`, with the time of both.
        ({**OVER, "run_count": "1", "resources_used__walltime": "01:00:00"}, True),
        # Waits again, is held, was deleted while it waited.
        ({"job_state": "Q", "run_count": "1", "stime": None}, True),
        ({"job_state": "Q", "run_count": "1", "stime": None, "mtime": "Mon Nov 30 13:00:00 2026"}, False),
        ({"job_state": "H", "run_count": "1"}, True),
        ({"job_state": "F", "run_count": "1", "stime": None}, True),
        ({"job_state": "F", "run_count": "0", "stime": None}, False),
        # Over before the time asked for.
        ({"run_count": "2", "stime": "Mon Nov 30 13:00:00 2026", "resources_used__walltime": "03:00:00"}, False),
    ],
)
def test_begun_anew(changes: dict[str, str | None], missing: bool) -> None:
    """Only the last run of a job is kept: that there were earlier ones is said, and they are not counted."""
    found = told(record(**changes), begin=NOW - 2 * 3600)
    assert any("earlier ones of job 90.vm" in doubt for doubt in found.doubts) == missing, found.doubts
    # An hour on record for a minute's run is that of a run before it too.
    assert all(run.elapsed_s <= run.last - run.started + 60 for run in found.runs)


def test_moved() -> None:
    """What it costs there nobody says here."""
    assert ["Job 5.vm was moved" in doubt for doubt in told(record("5.vm", job_state="M")).doubts] == [True]
    assert not told(record("5[].vm", job_state="M")).doubts


SERVER = (
    "Server: vm\n    server_state = Active\n    acl_users = a,b,\n\tjob_history_duration = 00:00:01,c\n"
    "    pbs_version = 23.06.06\n{}\n\n"
)


@pytest.mark.parametrize(
    ("line", "seconds"),
    [("", 1209600), ("    job_history_duration = 8760:00:00\n", 31536000), ("    x = 5\n", 1209600)],
)
def test_for_how_long_it_is_kept(line: str, seconds: int) -> None:
    """By the server's own attribute, two weeks where the site has not set it."""
    assert pbs_accounting.parse_kept(answer(SERVER.format(line))) == seconds


@pytest.mark.parametrize(
    "result",
    [
        *(answer(""), answer("Welcome"), answer(SERVER.format(""), b"qstat: something\n"), answer("", DOWN, 255)),
        *(answer(SERVER.format(""), code=1), answer(SERVER.format(""), code=None, timed_out=True)),
        answer(SERVER.format("    job_history_duration = for ever\n")),
    ],
)
def test_for_how_long_could_not_be_told(result: Result) -> None:
    with pytest.raises(CouldNotTell, match="For how long"):
        pbs_accounting.parse_kept(result)


@given(st.binary(max_size=100), st.binary(max_size=20), values)
def test_any_server(out: bytes, err: bytes, value: str) -> None:
    """Seconds, or could not tell."""
    for result in (answer(out, err), answer(SERVER.format(f"    job_history_duration = {value}\n"))):
        try:
            assert pbs_accounting.parse_kept(result) >= 0
        except CouldNotTell:
            continue


def test_what_is_forgotten() -> None:
    """A start further back than the server remembers; what it forgets only every two minutes is not split hairs over."""
    assert pbs_accounting.forgotten(3600, NOW - 3600, NOW + 5) == ()
    assert len(pbs_accounting.forgotten(3600, NOW - 3700, NOW)) == 1


def test_no_history() -> None:
    """A PBS that keeps none says so with exit code 0: that is no empty record."""
    with pytest.raises(CouldNotTell, match="job_history_enable"):
        runs("", b"qstat: PBS is not configured to maintain job history \n")
    for bad in (answer("", DOWN, 255), answer(record()[:-1]), answer(record(stime="whenever"))):
        with pytest.raises(CouldNotTell):
            pbs_accounting.parse_history(bad, "alice", NOW)


@given(
    st.dictionaries(st.sampled_from(["stime", "obittime", "mtime", "job_state", "resources_used__walltime"]), values)
)
def test_any_record(changes: dict[str, str]) -> None:
    """Nonsense is a run, none, or could not tell; what has ended without a time is not counted."""
    try:
        found = runs(record(**{**OVER, **changes}))
    except CouldNotTell:
        return
    assert all(run.lost or run.ended is not None or run.running for run in found)
