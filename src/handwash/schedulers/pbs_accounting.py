"""What PBS still knows of a person's jobs, finished ones too where the site keeps them. Command lines, and pure readers.

Measured on OpenPBS 23.06 and its head of 2026; read in the sources of 19.1 to 2026 (svr_jobfunc.c, stat_job.c, req_runjob.c).
The server keeps finished jobs for `job_history_duration` from their end on (two weeks where it is not set), and by default not
at all; of a job that was begun anew only the last run is kept.
"""

from __future__ import annotations

import time

from handwash.frozen import frozen
from handwash.messages import _, ngettext
from handwash.run import CouldNotTell
from handwash.schedulers import pbs, pbs_limits
from handwash.schedulers.slurm import digits
from handwash.usage import Records, Run, named, untimed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from handwash.run import Result

_NO_HISTORY = "PBS is not configured to maintain job history"
# Where the site has not set it (server.h, SVR_JOBHIST_DEFAULT).
_KEPT_S = 14 * 86400
# The server forgets what is older every two minutes.
_FORGETS_S = 60
# Exit_status of a job that MOM ended at its time limit (job.h, JOB_EXEC_KILL_WALLTIME).
_AT_ITS_LIMIT = "-29"
# Of a suspension nothing is on record but the time that is missing; MOM counts whole polls.
_SLACK_S = 60
# By how much resources_used may lag behind while a job runs: MOM counts every two minutes at most, if it can reach the server.
_LAG_S = 900


@frozen
class _Read:
    """A record as it was read. `run`: None where there is none of it. `untimed`: it may have gone on for longer than that.

    `again`: it was begun before that run too.
    """

    run: Run | None
    untimed: bool = False
    again: bool = False


def history_argv(user: str) -> list[str]:
    """Every job and subjob of one person that the server knows; to be run with `pbs.ENVIRONMENT`."""
    return ["qstat", "-x", "-t", "-f", "-w", "-u", user]


def parse_history(result: Result, user: str, now: float, begin: float = 0.0) -> Records:
    """The runs in qstat's answer of `now` (seconds since the epoch); of `pbs.jobs_argv` and `pbs.subjobs_argv` too.

    `begin`: from when on something missing is to be said. Raises CouldNotTell for anything that is not a whole, clean answer;
    where no history is kept the exit code is 0.
    """
    if _NO_HISTORY in result.err.decode("utf-8", "replace"):
        raise CouldNotTell(_("This PBS keeps no record of finished jobs (job_history_enable)."))
    runs: list[Run] = []
    inexact: list[str] = []
    again: list[str] = []
    moved: list[str] = []
    for record in pbs.own_records(result, user):
        read = _read(record, now)
        if read.run is not None:
            runs.append(read.run)
        job = record["Job Id"]
        if "[]" in job or pbs.count_gpus(record) == 0:
            continue
        if read.untimed:
            inexact.append(job)
        if read.again and _last_before(record, read.run) > begin:
            again.append(job)
        if record["job_state"] == "M":
            moved.append(job)
    return Records(tuple(runs), "qstat", (*untimed(inexact), *_unkept(again), *_elsewhere(moved)), complete=True)


def parse_kept(result: Result) -> int:
    """For how many seconds the server keeps a finished job, by its answer to `pbs_limits.server_argv`. Raises CouldNotTell.

    What is set of its attributes everybody may read (master_svr_attr_def.xml).
    """
    sentence = _("For how long PBS keeps finished jobs could not be told: {said}")
    try:
        said = pbs_limits.parse_server(result).get("job_history_duration")
    except CouldNotTell as reason:
        raise CouldNotTell(sentence.format(said=reason)) from None
    kept = _KEPT_S if said is None else pbs.parse_time(said)
    if kept is None:
        raise CouldNotTell(sentence.format(said=said))
    return kept


def forgotten(kept_s: int, begin: float, now: float) -> tuple[str, ...]:
    """The doubt about jobs that ran after `begin` and that the server has forgotten by `now`, if there can be any."""
    if begin >= now - kept_s - _FORGETS_S:
        return ()
    earliest = time.strftime("%Y-%m-%d %H:%M", time.localtime(now - kept_s))
    sentence = _("PBS has forgotten jobs that ended before {time} (job_history_duration): they are not counted.")
    return (sentence.format(time=earliest),)


def _read(record: Mapping[str, str], now: float) -> _Read:
    """What one job's record tells: no run of one that has not begun, or was deleted before it did, nor of a whole array."""
    over = record["job_state"] in pbs.ENDED
    begun = _count(record.get("run_count", ""))
    if "[]" in record["Job Id"] or record["job_state"] == "M":
        return _Read(None)
    # A job that waits again has lost its `stime`, unless it is held.
    if "stime" not in record or (not over and pbs.word(record["job_state"]) == "PENDING"):
        return _Read(None, again=begun > 0)
    used = pbs.parse_time(record.get("resources_used.walltime", ""))
    if over and used is None and "exec_vnode" not in record:
        # The array's own record in place of a subjob's: that was deleted before it began, or is forgotten.
        return _Read(None, again=begun > 0)
    started = pbs.parse_utc(record["stime"])
    if started is None:
        raise CouldNotTell(_("qstat printed a job that cannot be read."))
    # Before 22.05 there is no obittime.
    ended = pbs.parse_utc(record.get("obittime") or record.get("mtime", "")) if over else None
    span = max(0, int((now if ended is None else ended) - started))
    # MOM has had no time to count.
    used = span if ended is not None and used is None and span <= _SLACK_S else used
    lost = over and (used is None or ended is None)
    elapsed, inexact = span, False
    if over and used is not None:
        elapsed = min(used, span + _SLACK_S)
    elif not over and pbs.word(record["job_state"]) == "SUSPENDED":
        elapsed, inexact = min(used or 0, span), used is None
    elif not over and (started > now + pbs.CLOCKS_APART_S or (used is not None and span - used > _LAG_S)):
        elapsed, inexact = used or 0, True
    asleep = span - elapsed
    run = Run(
        id=record["Job Id"],
        number=record["Job Id"],
        state=_ending(record) if over else pbs.word(record["job_state"]),
        name=record.get("Job_Name", ""),
        partition=record["queue"],
        nodes=pbs.parse_hosts(record.get("exec_host", "")),
        gpus=pbs.count_gpus(record),
        started=float(started),
        ended=None if lost or ended is None else float(ended),
        elapsed_s=elapsed,
        suspended_s=asleep if asleep > _SLACK_S else 0,
        by="qstat",
        lost=lost,
    )
    # A job that went on from a checkpoint is one run to `run_count`, and its time is that of all its parts.
    return _Read(run, inexact, begun > 1 or (used or 0) > span + _SLACK_S)


def _last_before(record: Mapping[str, str], run: Run | None) -> float:
    """A time by which the runs before this one were over; where it has none, those that there were."""
    if run is not None:
        return run.started
    changed = pbs.parse_utc(record.get("mtime", ""))
    return float("inf") if changed is None else float(changed)


def _unkept(jobs: list[str]) -> tuple[str, ...]:
    sentence = ngettext(
        "PBS keeps only the last run of a job: earlier ones of job {jobs} are not counted.",
        "PBS keeps only the last run of a job: earlier ones of jobs {jobs} are not counted.",
        len(jobs),
    )
    return (sentence.format(jobs=named(jobs)),) if jobs else ()


def _elsewhere(jobs: list[str]) -> tuple[str, ...]:
    sentence = ngettext(
        "Job {jobs} was moved to another PBS server, where its records are: it is not counted.",
        "Jobs {jobs} were moved to another PBS server, where their records are: they are not counted.",
        len(jobs),
    )
    return (sentence.format(jobs=named(jobs)),) if jobs else ()


def _count(text: str) -> int:
    return int(text) if digits(text) else 0


def _ending(record: Mapping[str, str]) -> str:
    """How it ended, in Slurm's words. An interactive job's exit status is 0 whatever its shell returned (measured)."""
    status = record.get("Exit_status", "")
    if status == _AT_ITS_LIMIT:
        return "TIMEOUT"
    return "COMPLETED" if status == "0" else "FAILED"
