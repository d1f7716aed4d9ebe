"""The words of --since: what they mean in the machine's time zone, and that nothing else means anything."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handwash import since

# The clocks are set back on 25 October 2026 at 03:00, and forward on 29 March at 02:00.
BERLIN = "CET-1CEST,M3.5.0,M10.5.0/3"
SHANGHAI = "CST-8"


@contextlib.contextmanager
def zone(name: str) -> Iterator[None]:
    """This process in a time zone (tzset(3))."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", name)
        time.tzset()
        try:
            yield
        finally:
            patch.undo()
            time.tzset()


def utc(*parts: int) -> float:
    return datetime(*parts, tzinfo=timezone.utc).timestamp()  # type: ignore[misc,arg-type]


NOW = utc(2026, 12, 3, 10, 20, 30)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2026-11-01", utc(2026, 10, 31, 16)),
        ("2026-11", utc(2026, 10, 31, 16)),
        ("2026-1-2", utc(2026, 1, 1, 16)),
        ("2026-11-01T08:00", utc(2026, 11, 1)),
        ("2026-11-01 08:00", utc(2026, 11, 1)),
        ("  2026-11-01   8:00:05 ", utc(2026, 11, 1, 0, 0, 5)),
        ("2026-11-01T08:00:00Z", utc(2026, 11, 1, 8)),
        ("2026-11-01T08:00:00+08:00", utc(2026, 11, 1)),
        ("2026-11-01T08:00-0330", utc(2026, 11, 1, 11, 30)),
        ("today", utc(2026, 12, 2, 16)),
        ("Yesterday", utc(2026, 12, 1, 16)),
        ("this-month", utc(2026, 11, 30, 16)),
        ("this month", utc(2026, 11, 30, 16)),
        ("month", utc(2026, 11, 30, 16)),
        ("yesterday 12:00", utc(2026, 12, 2, 4)),
        ("today 8:05", utc(2026, 12, 3, 0, 5)),
        ("2026", utc(2025, 12, 31, 16)),
        ("2026/11/01", utc(2026, 10, 31, 16)),
        ("2026/11", utc(2026, 10, 31, 16)),
        ("2026/11/1 08:00", utc(2026, 11, 1)),
        ("1 week", NOW - 7 * 86400),
        ("7 days ago", NOW - 7 * 86400),
        # In the past, all of them: Slurm has nothing before 1970.
        *((text, 1) for text in ("1970-01-01", "1969-12-01", "1969", "0001-01-01", "999999w", "1970-01-01T00:00Z")),
        ("24h", NOW - 86400),
        ("7d", NOW - 7 * 86400),
        ("2w", NOW - 14 * 86400),
        ("now-7days", NOW - 7 * 86400),
        ("now-1hour", NOW - 3600),
    ],
)
def test_what_is_meant(text: str, meant: float) -> None:
    """In Shanghai, where the day begins at 16:00 of the day before in UTC."""
    with zone(SHANGHAI):
        assert since.parse(text, NOW) == meant


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "7", "d", "-7d", "7m", "now", "now+1h", "tomorrow", "last month", "last week", "٧d", "1e3d"),
        *(
            "2026-13-01",
            "2026-02-30",
            "2026-11-01T24:00",
            "2026-11-01T08",
            "2026-11-01T08:00+25:00",
            "11/01/26",
            "today 25:00",
            "2026/13",
        ),
        *("2027-01-01", "2026-12-04", "9999-12-31"),
    ],
)
def test_what_is_no_time_in_the_past(text: str) -> None:
    """Refused, and not guessed at."""
    with zone(SHANGHAI), pytest.raises(ValueError, match=r"."):
        since.parse(text or "?", NOW)
    with pytest.raises(ValueError):
        since.parse(text, NOW)


def test_days_when_the_clocks_are_set() -> None:
    """A day has 25 hours once a year; 24h and 7d are hours. A time that there was twice is the first one."""
    with zone(BERLIN):
        evening = datetime(2026, 10, 25, 20).timestamp()
        assert evening - since.parse("today", evening) == 21 * 3600
        assert since.parse("today", evening) - since.parse("yesterday", evening) == 86400
        assert evening - since.parse("24h", evening) == 86400
        assert since.parse("2026-10-25T02:30", evening) == utc(2026, 10, 25, 0, 30)
        assert since.parse("2026-10-25T02:30+01:00", evening) == utc(2026, 10, 25, 1, 30)


def test_whole_seconds() -> None:
    """What Slurm is asked for is what is counted from."""
    assert since.parse("24h", NOW + 0.9) == NOW - 86400


@given(st.text(max_size=30))
def test_any_words(text: str) -> None:
    """A time in the past, or ValueError."""
    with contextlib.suppress(ValueError):
        assert 0 < since.parse(text, NOW) <= NOW


@given(st.text("0123456789-:T zZ+now hdw", max_size=30))
def test_words_that_are_nearly_right(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert 0 < since.parse(text, NOW) <= NOW


@given(st.integers(1, int(NOW)), st.sampled_from(["UTC0", SHANGHAI, BERLIN, "NST3:30", "LINT-14"]))
def test_what_is_printed_is_read(seconds: int, where: str) -> None:
    """The `since` of --json is a word for --since, in any time zone, on either side of a change of the clocks."""
    with zone(where):
        printed = since.iso(seconds)
        assert since.parse(printed, NOW) == seconds
    with zone("UTC0"):
        assert since.parse(printed, NOW) == seconds


@given(st.integers(1, 10**5), st.sampled_from("hdw"))
def test_how_long_ago(count: int, unit: str) -> None:
    """An hour, a day and a week are 1, 24 and 168 hours; before 1970 there is nothing to count."""
    then = NOW - timedelta(hours=count * {"h": 1, "d": 24, "w": 168}[unit]).total_seconds()
    for text in (f"{count}{unit}", f"now-{count}{unit}"):
        assert since.parse(text, NOW) == max(1, then)


@given(st.integers(1, int(NOW)), st.sampled_from([SHANGHAI, BERLIN]))
def test_the_next_month(seconds: int, where: str) -> None:
    """Its first local moment, which is later, and at most 31 days and an hour away."""
    with zone(where):
        after = since.next_month(seconds)
        assert 0 < after - seconds <= 31 * 86400 + 3600
        assert time.localtime(after)[2:6] == (1, 0, 0, 0)
        assert time.localtime(after - 1)[:2] == time.localtime(seconds)[:2]
