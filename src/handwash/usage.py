"""What jobs have cost since a time, out of the scheduler's records. Pure: nothing here looks at the world.

Units: seconds; times are seconds since the epoch (UTC); GPU-hours are GPUs times hours of the allocation. Time for which a
job was suspended does not count, as in Slurm's own sums.
"""

from __future__ import annotations

from bisect import bisect

from handwash import since
from handwash.frozen import frozen, replace
from handwash.messages import _, ngettext
from handwash.model import Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Union

# As many as a sentence can hold.
_NAMED = 5


@frozen
class Run:
    """One run of a job on its allocation; a job that was requeued has had several. `number`: as its own environment has it.

    `ended`: None without an end on record: it runs, or is suspended. `lost`: no end on record, and not in the queue any more.
    `elapsed_s`: without `suspended_s`. `by`: the program that says so, sacct, squeue, qstat.
    """

    id: str
    number: str
    state: str
    name: str
    partition: str
    nodes: tuple[str, ...]
    gpus: int | None
    started: float
    ended: float | None
    elapsed_s: int
    suspended_s: int
    by: str
    lost: bool = False

    @property
    def running(self) -> bool:
        return self.ended is None and not self.lost

    @property
    def last(self) -> float:
        """Its end, or until when it was seen, by the clock of whoever saw it."""
        return self.started + self.elapsed_s + self.suspended_s if self.ended is None else self.ended


@frozen
class Records:
    """What a scheduler has said of a person's jobs. `source`: the program that said so. `doubts`: what may be missing.

    `complete`: it tells what runs now as well as the queue does, which then has nothing to add.
    """

    runs: tuple[Run, ...]
    source: str
    doubts: tuple[str, ...] = ()
    complete: bool = False


@frozen
class Counted:
    """A run with its part of a span of time. `seconds` is a lower bound unless `exact`; `gpu_hours`: None where unknown."""

    run: Run
    seconds: float
    exact: bool

    @property
    def gpu_hours(self) -> float | None:
        if self.run.gpus == 0:
            return 0.0
        return None if self.run.gpus is None or self.run.lost else self.run.gpus * self.seconds / 3600


@frozen
class Month:
    """What a local calendar month has cost, as far as it lies in the span. `begin`: when it begins there."""

    begin: float
    gpu_hours: float
    exact: bool


@frozen
class Usage:
    """`source`: the program that told; None where none did. `recorded`: by the records, and not by the queue alone.

    `doubts`: why it may be another sum, more of it unless `unsure`: a run counted until now of which nobody said that it still
    runs.
    """

    since: float
    until: float
    source: str | None
    counted: tuple[Counted, ...]
    months: tuple[Month, ...]
    doubts: tuple[str, ...]
    unsure: bool = False
    recorded: bool = True

    @property
    def gpu_hours(self) -> float | None:
        """All of it, at least; None where nothing is known."""
        if self.source is None:
            return None
        return sum(one.gpu_hours or 0.0 for one in self.counted)

    @property
    def running(self) -> tuple[Run, ...]:
        """The runs that go on costing: with GPUs, and not in suspension."""
        runs = (one.run for one in self.counted)
        return tuple(run for run in runs if run.running and run.gpus and run.state != "SUSPENDED")

    @property
    def gpus_now(self) -> int:
        """Their GPUs: what each further hour costs in GPU-hours."""
        return sum(run.gpus or 0 for run in self.running)


def count(run: Run, begin: float, end: float) -> Counted:
    """A run's part of the span from `begin` to `end`.

    Nobody says when a job was suspended, only for how long: of a run that is only partly in the span, all of it may have
    been there.
    """
    inside = min(run.last, end) - max(run.started, begin)
    if inside <= 0:
        return Counted(run, 0.0, True)
    if begin <= run.started and run.last <= end:
        return Counted(run, float(run.elapsed_s), True)
    most = min(inside, float(run.elapsed_s))
    least = min(most, max(0.0, inside - run.suspended_s))
    return Counted(run, least, least == most)


def usage(begin: float, until: float, recorded: Union[Records, Unknown], queue: Union[Records, Unknown]) -> Usage:
    """The whole answer, of what is on record and what the queue shows: the latter alone where the first is unknown."""
    doubts: list[str] = []
    source: str | None = None
    runs: tuple[Run, ...] = ()
    told_running = True
    if not isinstance(recorded, Unknown):
        source, runs = recorded.source, recorded.runs
        doubts += recorded.doubts
        if not recorded.complete:
            told_running = not isinstance(queue, Unknown)
            runs = runs if isinstance(queue, Unknown) else _joined(runs, queue.runs)
    elif isinstance(queue, Unknown):
        doubts += (recorded.why, queue.why)
    else:
        source, runs = queue.source, queue.runs
        doubts += (recorded.why, *queue.doubts)
    # Two clocks: whoever wrote the records may be a little ahead.
    end = max([until, *(run.last for run in runs)])
    counted = [count(run, begin, end) for run in runs if run.last > begin]
    doubts += _doubts(counted)
    unsure = [] if told_running else [one.run.id for one in counted if one.run.running and one.run.gpus != 0]
    if unsure and isinstance(queue, Unknown):
        sentence = ngettext(
            "Job {jobs} is counted until now; whether it still runs could not be told: {why}",
            "Jobs {jobs} are counted until now; whether they still run could not be told: {why}",
            len(unsure),
        )
        doubts.append(sentence.format(jobs=named(unsure), why=queue.why))
    counted.sort(key=_order)
    return Usage(
        since=begin,
        until=until,
        source=source,
        counted=tuple(counted),
        months=_months(runs, begin, until, end),
        doubts=tuple(dict.fromkeys(doubts)),
        unsure=bool(unsure),
        recorded=not isinstance(recorded, Unknown),
    )


def _order(one: Counted) -> tuple[bool, float, float]:
    """Running ones first, for they go on costing; then the costliest, then the newest."""
    return (not one.run.running, -(one.gpu_hours or 0.0), -one.run.started)


def _joined(accounting: tuple[Run, ...], queue: tuple[Run, ...]) -> tuple[Run, ...]:
    """The records, put right by the queue, behind which they lag some seconds (22.05), or as long as slurmdbd was away.

    A run that began after every record of its job is not on record yet. A job that changed its size has had several
    records, and in the queue the beginning of the first.
    """
    shown = {run.number: run for run in queue}
    latest: dict[str, float] = {}
    for run in accounting:
        latest[run.number] = max(run.started, latest.get(run.number, run.started))
    return (
        *(_put_right(run, shown.get(run.number)) for run in accounting),
        *(run for run in queue if run.number not in latest or latest[run.number] < run.started),
    )


def _put_right(run: Run, shown: Run | None) -> Run:
    """A run without an end on record, by what the queue shows of its job now: nothing, a later run, or this one."""
    if run.ended is not None:
        return run
    if shown is None or shown.started > run.started:
        return replace(run, lost=True)
    # The accounting records GPUs from the day on which the site has told it to.
    run = replace(run, gpus=shown.gpus or run.gpus) if run.gpus == 0 else run
    if shown.ended is None:
        return run
    elapsed = max(0, int(shown.ended - run.started) - run.suspended_s)
    return replace(run, state=shown.state, ended=shown.ended, elapsed_s=elapsed)


def _doubts(counted: Iterable[Counted]) -> list[str]:
    lost = [one.run.id for one in counted if one.run.lost and one.run.gpus != 0]
    uncounted = [one.run.id for one in counted if one.run.gpus is None and not one.run.lost]
    inexact = [one.run.id for one in counted if not one.exact and one.run.gpus and not one.run.lost]
    doubts = []
    if lost:
        sentence = ngettext(
            "Job {jobs} no longer runs, and its end is not on record: it is not counted.",
            "Jobs {jobs} no longer run, and their end is not on record: they are not counted.",
            len(lost),
        )
        doubts.append(sentence.format(jobs=named(lost)))
    if uncounted:
        sentence = ngettext(
            "How many GPUs job {jobs} has could not be told.",
            "How many GPUs jobs {jobs} have could not be told.",
            len(uncounted),
        )
        doubts.append(sentence.format(jobs=named(uncounted)))
    if inexact:
        sentence = ngettext(
            "Job {jobs} began before and was suspended at times that are not on record.",
            "Jobs {jobs} began before and were suspended at times that are not on record.",
            len(inexact),
        )
        doubts.append(sentence.format(jobs=named(inexact)))
    return doubts


def untimed(ids: list[str]) -> list[str]:
    """The doubt about runs that have gone on for longer than they are counted, if there are any."""
    sentence = ngettext(
        "How long job {jobs} has run could be told only in part.",
        "How long jobs {jobs} have run could be told only in part.",
        len(ids),
    )
    return [sentence.format(jobs=named(ids))] if ids else []


def named(ids: list[str]) -> str:
    """The jobs' ids for a sentence; a few of them, where there are many."""
    names = list(dict.fromkeys(ids))
    more = _(" and {count} more").format(count=len(names) - _NAMED) if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _months(runs: tuple[Run, ...], begin: float, until: float, end: float) -> tuple[Month, ...]:
    """The local calendar months from `begin` to `until` that have cost something; the last one goes to `end`."""
    edges = [begin]
    while edges[-1] < until:
        edges.append(since.next_month(edges[-1]))
    edges[-1] = max(end, begin)
    hours, exact = [0.0] * len(edges), [True] * len(edges)
    for run in runs:
        month = bisect(edges, max(run.started, begin)) - 1
        while month + 1 < len(edges) and edges[month] < run.last:
            part = count(run, edges[month], edges[month + 1])
            hours[month] += part.gpu_hours or 0.0
            exact[month] = exact[month] and (part.exact or not part.run.gpus)
            month += 1
    return tuple(Month(*one) for one in zip(edges, hours, exact) if one[1])
