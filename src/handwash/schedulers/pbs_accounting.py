"""What PBS still knows of a person's jobs, finished ones too where the site keeps them. Command lines, and pure readers.

Measured on OpenPBS 23.06 and its head of 2026. The server keeps finished jobs for `job_history_duration` (two weeks where it is
not set), and by default not at all; of a job that was begun anew only the last run is kept.
"""

from __future__ import annotations

from handwash.messages import _
from handwash.run import CouldNotTell
from handwash.schedulers import pbs
from handwash.usage import Run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from handwash.run import Result

_NO_HISTORY = "PBS is not configured to maintain job history"
# Exit_status of a job that MOM ended at its time limit (job.h, JOB_EXEC_KILL_WALLTIME).
_AT_ITS_LIMIT = "-29"
# Of a suspension nothing is on record but the time that is missing; MOM counts whole polls.
_SLACK_S = 60


def history_argv(user: str) -> list[str]:
    """Every job and subjob of one person that the server knows; to be run with `pbs.ENVIRONMENT`."""
    return ["qstat", "-x", "-t", "-f", "-w", "-u", user]


def parse_history(result: Result, user: str, now: float) -> tuple[Run, ...]:
    """The runs in qstat's answer of `now` (seconds since the epoch); of `pbs.jobs_argv` and `pbs.subjobs_argv` too.

    Raises CouldNotTell for anything that is not a whole, clean answer; where no history is kept the exit code is 0.
    """
    if _NO_HISTORY in result.err.decode("utf-8", "replace"):
        raise CouldNotTell(_("This PBS keeps no record of finished jobs (job_history_enable)."))
    found = (_run(record, now) for record in pbs.own_records(result, user))
    return tuple(run for run in found if run is not None)


def _run(record: Mapping[str, str], now: float) -> Run | None:
    """One job's run; None of one that has not begun, or was deleted before it did, and of an array as a whole."""
    if "stime" not in record or record["job_state"] == "M" or "[]" in record["Job Id"]:
        return None
    over = record["job_state"] in pbs.ENDED
    if not over and pbs.word(record["job_state"]) == "PENDING":
        return None
    started = pbs.parse_utc(record["stime"])
    used = pbs.parse_time(record.get("resources_used.walltime", ""))
    # Before 22.05 there is no obittime.
    ended = pbs.parse_utc(record.get("obittime") or record.get("mtime", "")) if over else None
    elapsed = used if over else pbs.elapsed(record, now)
    if started is None or (elapsed is None and not over):
        raise CouldNotTell(_("qstat printed a job that cannot be read."))
    lost = over and (elapsed is None or ended is None)
    until = now if ended is None else ended
    asleep = 0 if elapsed is None else int(until - started) - elapsed
    return Run(
        id=record["Job Id"],
        number=record["Job Id"],
        state=_ending(record) if over else pbs.word(record["job_state"]),
        name=record.get("Job_Name", ""),
        partition=record["queue"],
        nodes=pbs.parse_hosts(record.get("exec_host", "")),
        gpus=pbs.count_gpus(record),
        started=float(started),
        ended=None if lost or ended is None else float(ended),
        elapsed_s=elapsed or 0,
        suspended_s=asleep if asleep > _SLACK_S and not lost else 0,
        by="qstat",
        lost=lost,
    )


def _ending(record: Mapping[str, str]) -> str:
    """How it ended, in Slurm's words. An interactive job's exit status is 0 whatever its shell returned (measured)."""
    status = record.get("Exit_status", "")
    if status == _AT_ITS_LIMIT:
        return "TIMEOUT"
    return "COMPLETED" if status == "0" else "FAILED"
