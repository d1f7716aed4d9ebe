"""`handwash usage`: GPU-hours of running and recent jobs, from the scheduler's own records."""

from __future__ import annotations

import sys
import time

from handwash import answers, render, run, schedulers, slurm_names, world
from handwash import since as words
from handwash import usage as sums
from handwash.config import Config
from handwash.exits import Exit
from handwash.messages import _, ngettext
from handwash.model import Unknown
from handwash.render import harmless

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Union

    from handwash.schedulers.base import Scheduler

    Said = Union[sums.Records, Unknown]

# A busy database takes far longer than a check at login may: this many of its deadlines, half a minute by default.
_PATIENCE = 10
# On a terminal it is said then what is waited for.
_NOTICE_S = 2.0
# Narrower than these, a terminal has no room for when a job began, and then for its state and name.
_NARROW, _NARROWEST = 70, 50
# A screenful; --json has them all.
_SHOWN_JOBS = 20


def usage(settings: Config, as_json: bool, since: float | None) -> int:
    """What jobs have cost since a time (seconds since the epoch; None: the first of this month). 0 told, 3 only in part."""
    until = world.now()
    begin = words.parse(words.THIS_MONTH, until) if since is None else since
    scheduler = schedulers.here()
    found = sums.usage(begin, until, *_ask(scheduler, settings, begin, until))
    if as_json:
        answers.show(_json(found))
    else:
        _tell(found, scheduler.records_name(), by_default=since is None)
    return Exit.UNKNOWN if found.doubts else Exit.CLEAN


def _ask(scheduler: Scheduler, settings: Config, begin: float, until: float) -> tuple[Said, Said]:
    """What is on record and what the queue shows, asked side by side, each once."""
    deadline = settings.deadline * _PATIENCE
    said = run.looks(
        {
            "records": lambda: _plain(scheduler.records(begin, deadline)),
            "queue": lambda: _plain(scheduler.shown(until, settings.deadline)),
        },
        deadline,
        (_NOTICE_S, lambda: _say_what_is_waited_for(scheduler, deadline)) if sys.stderr.isatty() else None,
    )
    return _read(said["records"]), _read(said["queue"])


def _say_what_is_waited_for(scheduler: Scheduler, deadline: float) -> None:
    names = {"program": slurm_names.name(scheduler.recorder), "records": scheduler.records_name()}
    if scheduler.recorder:
        sentence = _("Waiting for {program}, {records}, for {seconds} s at most.")
    else:
        sentence = _("Waiting for {records} for {seconds} s at most.")
    render.warn(sentence.format(**names, seconds=f"{deadline:g}"))


def _plain(records: sums.Records) -> dict[str, Any]:
    """Records as they travel from a look."""
    return {**vars(records), "runs": [vars(one) for one in records.runs]}


def _read(said: Any) -> Said:
    if isinstance(said, Unknown):
        return said
    return sums.Records(**{**said, "runs": tuple(sums.Run(**one) for one in said["runs"])})


def _tell(found: sums.Usage, records: str, by_default: bool) -> None:
    begin = _clock(found.since)
    if by_default:
        line = _("Since {time}, the first of this month. To count from another time: handwash usage --since 7d")
    else:
        line = _("Since {time}:")
    render.say(line.format(time=begin))
    with_gpus = [one for one in found.counted if one.run.gpus != 0]
    _jobs(with_gpus)
    if with_gpus and len(found.months) > 1:
        rows = [
            (time.strftime("%Y-%m", time.localtime(one.begin)), _hours(one.gpu_hours, one.exact))
            for one in found.months
        ]
        render.table([_("month"), _("GPU-hours")], rows, numeric="1")
    without = len(found.counted) - len(with_gpus)
    if without:
        sentence = ngettext(
            "{count} job without a GPU is not listed.", "{count} jobs without a GPU are not listed.", without
        )
        render.say(sentence.format(count=without))
    earlier = sum(1 for one in with_gpus if one.run.started < found.since)
    if earlier:
        sentence = ngettext(
            "{count} job began before {time}: only its hours since then count.",
            "{count} jobs began before {time}: only their hours since then count.",
            earlier,
        )
        render.say(sentence.format(count=earlier, time=begin))
    for why in found.doubts:
        render.say(_("could not tell: {why}").format(why=harmless(why, 500)))
    _total(found, records)


def _jobs(counted: list[sums.Counted]) -> None:
    """The table: a line for each run of a job that has or may have GPUs."""
    if not counted:
        return
    headings = [_("job"), _("state"), _("GPUs"), _("time"), _("GPU-hours"), _("started"), _("name")]
    shown = counted[:_SHOWN_JOBS]
    columns = render.columns(sys.stdout)
    kept = [0, 2, 3, 4] if columns < _NARROWEST else [0, 1, 2, 3, 4, 6] if columns < _NARROW else list(range(7))
    render.table(
        [headings[place] for place in kept],
        [[row[place] for place in kept] for row in map(_row, shown)],
        numeric="".join(str(kept.index(place)) for place in (2, 3, 4)),
        whole="".join(str(kept.index(place)) for place in (1, 5) if place in kept),
    )
    rest = counted[_SHOWN_JOBS:]
    if rest:
        sentence = ngettext(
            "and {count} more job of {hours} GPU-hours; all of them: handwash usage --json",
            "and {count} more jobs of {hours} GPU-hours together; all of them: handwash usage --json",
            len(rest),
        )
        render.say(sentence.format(count=len(rest), hours=_hours(sum(one.gpu_hours or 0.0 for one in rest), True)))


def _row(one: sums.Counted) -> tuple[str, ...]:
    known = one.run
    return (
        known.id,
        known.state,
        "-" if known.gpus is None else str(known.gpus),
        "-" if known.lost else render.duration(one.seconds),
        "-" if one.gpu_hours is None else _hours(one.gpu_hours, one.exact),
        _clock(known.started),
        harmless(known.name, 40),
    )


def _total(found: sums.Usage, records: str) -> None:
    """The last lines: the sum, by which records, and what each further hour costs."""
    if found.gpu_hours is None:
        return
    many = 1 if _hours(found.gpu_hours, True) == "1.00" else 2
    if found.recorded:
        whole = ngettext("Total: {hours} GPU-hour, by {records}.", "Total: {hours} GPU-hours, by {records}.", many)
        part = ngettext("At least {hours} GPU-hour, by {records}.", "At least {hours} GPU-hours, by {records}.", many)
    else:
        whole = part = ngettext(
            "At least {hours} GPU-hour, by what the queue still shows: jobs that have left it are missing.",
            "At least {hours} GPU-hours, by what the queue still shows: jobs that have left it are missing.",
            many,
        )
    line = part if found.doubts and not found.unsure else whole
    render.say(render.style(line.format(hours=_hours(found.gpu_hours, True), records=records), "bold", sys.stdout))
    if found.running:
        sentence = ngettext(
            "{count} of the jobs runs now; GPU-hours for each further hour: {gpus}",
            "{count} of the jobs run now; GPU-hours for each further hour: {gpus}",
            len(found.running),
        )
        render.say(sentence.format(count=len(found.running), gpus=found.gpus_now))


def _hours(hours: float, exact: bool) -> str:
    """Two digits behind the point, more where nothing else would be left; `≥` where there may be more."""
    digits = 2 if hours >= 0.1 or not hours else 4
    return ("" if exact else "≥ ") + f"{hours:.{digits}f}"


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _json(found: sums.Usage) -> dict[str, Any]:
    return {
        "since": words.iso(found.since),
        "until": words.iso(found.until),
        "known": not found.doubts,
        "why": "; ".join(found.doubts) or None,
        "source": found.source,
        "gpu_hours": _round(found.gpu_hours),
        "gpus_now": None if found.source is None else found.gpus_now,
        "months": [
            {
                "month": time.strftime("%Y-%m", time.localtime(one.begin)),
                "gpu_hours": _round(one.gpu_hours),
                "exact": one.exact,
            }
            for one in found.months
        ],
        "items": [_item(one) for one in found.counted],
    }


def _item(one: sums.Counted) -> dict[str, Any]:
    known = one.run
    return {
        "id": known.id,
        "state": known.state,
        "name": known.name,
        "partition": known.partition,
        "nodes": list(known.nodes),
        "gpus": known.gpus,
        "started": words.iso(known.started),
        "ended": None if known.ended is None else words.iso(known.ended),
        "running": known.running,
        "elapsed_s": known.elapsed_s,
        "suspended_s": known.suspended_s,
        "counted_s": round(one.seconds),
        "exact": one.exact and not known.lost,
        "gpu_hours": _round(one.gpu_hours),
        "source": known.by,
    }


def _round(hours: float | None) -> float | None:
    return None if hours is None else round(hours, 4)
