"""The words of `--since`: a day, a time, or how long ago. Nothing but the machine's time zone is asked (tzset(3))."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

# What a person is told who wrote anything else.
EXAMPLES = "2026-11-01, 2026-11, 2026, 2026-11-01T08:00, today, yesterday, yesterday 12:00, this-month, 24h, 7d, 2w"
THIS_MONTH = "this-month"
_UNIT_S = {"h": 3600, "d": 86400, "w": 7 * 86400}
# `7d`, `7 days ago` and, as sacct(1) takes it, `now-7days`.
_AGO = re.compile(r"(?:now-)?([0-9]{1,6}) ?(h|hour|hours|d|day|days|w|week|weeks)(?: ago)?")
_DAY = re.compile(r"(today|yesterday)(?: ([0-9]{1,2}):([0-9]{2}))?")
_SLASHES = re.compile(r"([0-9]{4})/([0-9]{1,2})(?:/([0-9]{1,2}))?(?![/0-9])")
_WHEN = re.compile(
    r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[t ]([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))? ?(z|[+-][0-9]{2}:?[0-9]{2})?)?)?)?"
)


def parse(text: str, now: float) -> float:
    """The time meant, in whole seconds since the epoch: 1 for any before. Raises ValueError for none, or one to come.

    A day begins at midnight of the local time zone. `7d` is seven times 24 hours, whatever the clocks were set to meanwhile.
    """
    words = " ".join(text.lower().split())
    found = _relative(words, now)
    if found is None:
        found = _absolute(words)
    if found > now:
        raise ValueError(text)
    # 0 is no time to Slurm, which counts whole seconds.
    return max(1.0, float(int(found)))


def _relative(words: str, now: float) -> float | None:
    ago = _AGO.fullmatch(words)
    if ago:
        return now - int(ago[1]) * _UNIT_S[ago[2][0]]
    try:
        midnight = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
        day = _DAY.fullmatch(words)
        if day:
            begin = midnight - timedelta(days=1) if day[1] == "yesterday" else midnight
            return begin.replace(hour=int(day[2] or 0), minute=int(day[3] or 0)).timestamp()
        if words in (THIS_MONTH, "this month", "month"):
            return midnight.replace(day=1).timestamp()
    except (OverflowError, OSError) as error:
        raise ValueError(words) from error
    return None


def _absolute(words: str) -> float:
    """Also what handwash prints itself (ISO 8601). A local time that there was twice is the first of the two."""
    when = _WHEN.fullmatch(_SLASHES.sub(lambda found: "-".join(filter(None, found.groups())), words, count=1))
    if not when:
        raise ValueError(words)
    year, month, day, hour, minute, second = (int(part or fallback) for part, fallback in zip(when.groups(), "011000"))
    zone = when[7]
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=_zone(zone) if zone else None)
        # Local time may still be the year before; further back no time zone is to be asked.
        return moment.timestamp() if year >= 1969 else 0.0
    except (OverflowError, OSError) as error:
        raise ValueError(words) from error


def _zone(text: str) -> timezone:
    if text == "z":
        return timezone.utc
    offset = timedelta(hours=int(text[1:3]), minutes=int(text[-2:]))
    return timezone(-offset if text[0] == "-" else offset)


def next_month(begin: float) -> float:
    """The first moment of the local calendar month after the one that `begin` lies in."""
    there = datetime.fromtimestamp(begin)
    year, month = (there.year + 1, 1) if there.month == 12 else (there.year, there.month + 1)
    return datetime(year, month, 1).timestamp()


def iso(seconds: float) -> str:
    """Local time with its offset, ISO 8601."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")
