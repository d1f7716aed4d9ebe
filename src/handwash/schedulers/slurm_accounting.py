"""What Slurm has on record of a person's jobs: sacct, and beside it what squeue shows. Command lines, and pure readers.

Seen on 22.05, read in the sources of 20.11 to 26.05. Both are asked in UTC (`ENVIRONMENT`): a local time that there was
twice, when the clocks were set back, could not be told apart.
"""

from __future__ import annotations

import math
import time
from datetime import datetime, timezone

from handwash.messages import _
from handwash.run import CouldNotTell
from handwash.schedulers import slurm
from handwash.usage import Run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handwash.run import Result

ENVIRONMENT = {"TZ": "UTC0"}
# The name is what people choose. Elapsed time is without the time in suspension.
_COLUMNS = (
    *("JobID", "JobIDRaw", "State", "Start", "End", "ElapsedRaw", "Suspended", "NodeList", "Partition", "AllocTRES"),
    "JobName",
)
_TIMES = ("StartTime", "EndTime")
# In the queue, holding nothing: not begun yet, or about to begin anew. A job that is COMPLETING is over for the accounting.
_WAITING = frozenset(("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"))
# A controller on another host has another clock.
_CLOCKS_APART_S = 60
# So that each time has a local one too.
_LAST_YEAR = 9999


def sacct_argv(uid: int, since: float, delimiter: str) -> list[str]:
    """One request for every job of one uid that ran at `since` (seconds since the epoch) or later.

    `--duplicates`: each run of a job that was requeued, not the last one alone. Not `--truncate`: it takes a job that is
    suspended now for one at work (22.05 to 26.05). A name can hold any character, newlines too (22.05), so `delimiter` is
    to be one that nobody can know, and it ends each field, the last one too (`--parsable`).
    """
    return [
        "sacct",
        "--allocations",
        "--duplicates",
        "--noconvert",
        "--parsable",
        f"--delimiter={delimiter}",
        f"--user={uid}",
        time.strftime("--starttime=%Y-%m-%dT%H:%M:%S", time.gmtime(math.floor(since))),
        "--format=" + ",".join(_COLUMNS),
    ]


def parse_sacct(result: Result, delimiter: str) -> tuple[Run, ...]:
    """The runs in sacct's answer. Raises CouldNotTell for anything that is not a whole, clean answer."""
    words = result.err.decode("utf-8", "replace").strip()
    if result.timed_out:
        raise CouldNotTell(
            _("sacct did not answer in time: the accounting is slow or down. Try a later start with --since.")
        )
    if result.capped:
        raise CouldNotTell(_("sacct printed more than can be read. Try a later start with --since."))
    if result.code != 0 or words:
        said = words.splitlines()[0] if words else _("no reason given")
        raise CouldNotTell(_("sacct failed (exit code {code}): {said}").format(code=result.code, said=said))
    text = result.out.decode("utf-8", "replace")
    # The heading comes first, be there a job or none: an answer without it is no answer, of a wrapper that failed say.
    heading = "".join(column + delimiter for column in _COLUMNS) + "\n"
    if not text.startswith(heading):
        raise CouldNotTell(_("sacct's answer could not be read."))
    fields = text[len(heading) :].split(delimiter)
    rest = fields.pop()
    width = len(_COLUMNS)
    if len(fields) % width or rest != ("\n" if fields else ""):
        raise CouldNotTell(_("sacct's answer breaks off in the middle."))
    rows = (fields[place : place + width] for place in range(0, len(fields), width))
    found = (_run(dict(zip(_COLUMNS, row))) for row in rows)
    return tuple(run for run in found if run is not None)


def _run(row: dict[str, str]) -> Run | None:
    """One row; None of a job that has not begun, or was cancelled before it did."""
    # Each row but the first begins behind the newline of the one before it.
    identity = row["JobID"].lstrip("\n").strip()
    number, state = row["JobIDRaw"].strip(), row["State"].strip().partition(" ")[0]  # `CANCELLED by 1000`
    elapsed = slurm.parse_number(row["ElapsedRaw"].strip())
    suspended = slurm.parse_time(row["Suspended"].strip() or "0:00")
    if not slurm.is_job_id(identity) or not slurm.digits(number) or not slurm.is_state(state) or elapsed is None:
        raise CouldNotTell(_("sacct printed a row that cannot be read."))
    started, ended = parse_utc(row["Start"]), parse_utc(row["End"])
    if started is None or state == "PENDING" or (ended is not None and not elapsed and not row["AllocTRES"].strip()):
        return None
    if suspended is None:
        raise CouldNotTell(_("sacct printed a row that cannot be read."))
    return Run(
        id=identity,
        number=number,
        state=state,
        name=row["JobName"],
        partition=row["Partition"].strip(),
        nodes=slurm.expand_hostlist(row["NodeList"].replace("None assigned", "").strip()),
        gpus=slurm.gpus_in(row["AllocTRES"]),
        started=started,
        ended=ended,
        elapsed_s=elapsed,
        suspended_s=suspended,
        by="sacct",
    )


def parse_utc(text: str) -> float | None:
    """Seconds since the epoch of `2026-11-30T21:00:00` in UTC; None of `Unknown`, `None`, `N/A`, `NONE`.

    Raises CouldNotTell for a year that no clock of Slurm's can have: it counts seconds since 1970.
    """
    stamp = text.strip()
    if len(stamp) != 19 or stamp[10] != "T":
        return None
    try:
        moment = datetime.fromisoformat(stamp).replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    if not 1970 <= moment.year < _LAST_YEAR:
        raise CouldNotTell(_("Slurm's records name a time that there cannot be: {time}.").format(time=stamp))
    return moment.timestamp()


def queue_argv(uid: int) -> list[str]:
    """Every job of one uid that the controller knows, those too that ended within MinJobAge (slurm.conf(5); 300 s)."""
    return [*slurm.squeue_argv(uid, before=_TIMES), "--states=all"]


def parse_queue(result: Result, now: float) -> tuple[Run, ...]:
    """The runs in squeue's answer of `now` (seconds since the epoch). Raises CouldNotTell."""
    found = []
    for record in slurm.records(result):
        start, _field, rest = record.partition(slurm.FIELD)
        end, _field, rest = rest.partition(slurm.FIELD)
        job = slurm.parse_job(rest)
        started = parse_utc(start)
        if not job.elapsed_s or started is None or job.state in _WAITING:
            continue
        over = job.state in slurm.ENDED_STATES or job.state == "COMPLETING"
        # Of a job that runs, this is when its time limit ends it.
        ended = (parse_utc(end) or started + job.elapsed_s) if over else None
        asleep = round((now if ended is None else ended) - started - job.elapsed_s)
        found.append(
            Run(
                id=job.id,
                number=job.number,
                state=job.state,
                name=job.name,
                partition=job.partition,
                nodes=job.nodes,
                gpus=job.gpus,
                started=started,
                ended=ended,
                elapsed_s=job.elapsed_s,
                suspended_s=asleep if asleep > _CLOCKS_APART_S else 0,
                by="squeue",
            )
        )
    return tuple(found)


def parse_recorded(result: Result) -> bool | None:
    """Whether the accounting records GPUs (AccountingStorageTRES, slurm.conf(5)), by `scontrol show config`."""
    found = slurm.parse_config(result, ["AccountingStorageTRES"])
    if not found:
        return None
    names = found["AccountingStorageTRES"].lower().split(",")
    return any(name.startswith("gres/") and name[5:].partition(":")[0] in slurm.GPU_NAMES for name in names)
