"""One job of PBS: whether it is gone, and how it is ended. Command lines, and pure readers of what comes back.

Measured on OpenPBS 23.06 and its head of 2026. PBS's exit codes are its error numbers modulo 256 (pbs_error.h).
"""

from __future__ import annotations

from handwash.messages import _
from handwash.run import CouldNotTell
from handwash.schedulers import pbs
from handwash.schedulers.slurm_step import GONE, THERE, UNKNOWN, Answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handwash.run import Result

# What qdel answers beside gone, there (it ends, or will) and unknown: the job is somebody else's.
REFUSED = "refused"
# PBSE_UNKJOBID, also of a finished job where no history is kept; PBSE_HISTJOBID, a finished job. Each with its words.
_GONE = {153: "Unknown Job Id", 35: "Job has finished"}
# PBSE_BADSTATE: the job is ending already.
_ENDING = 168
# PBSE_PERM.
_NOT_YOURS = 159


def state_argv(job: str) -> list[str]:
    """qstat for exactly this job."""
    return ["qstat", "-f", "-w", job]


def parse_state(result: Result, job: str) -> Answer:
    """qstat's answer about one job. The detail is PBS's letter for its state, or why it could not be told."""
    if result.timed_out or result.code is None:
        return Answer(UNKNOWN, _("qstat did not answer in time"))
    words = _words(result)
    if not result.out.strip() and _is_gone(result.code, words, job):
        return Answer(GONE)
    if result.code != 0 or words:
        return Answer(UNKNOWN, words[:200] or _("qstat failed with exit code {code}").format(code=result.code))
    try:
        found = pbs.records(result)
    except CouldNotTell as reason:
        return Answer(UNKNOWN, str(reason))
    state = found[0].get("job_state", "") if len(found) == 1 and found[0]["Job Id"] == job else ""
    if state in ("F", "X"):
        return Answer(GONE, state)
    # Moved to another server: what became of it there is not said here.
    if len(state) != 1 or not state.isupper() or state == "M":
        return Answer(UNKNOWN, _("qstat's answer could not be read"))
    return Answer(THERE, state)


def cancel_argv(job: str) -> list[str]:
    """qdel: TERM, and KILL after the server's `kill_delay` (10 s where it is not set)."""
    return ["qdel", job]


def parse_cancel(result: Result, job: str) -> Answer:
    """qdel's answer: there (the job ends now), gone, refused, or unknown with the reason."""
    if result.timed_out or result.code is None:
        return Answer(UNKNOWN, _("qdel did not answer in time"))
    words = _words(result)
    if result.code == 0:
        return Answer(THERE, words[:200])
    if _is_gone(result.code, words, job):
        return Answer(GONE)
    if result.code == _ENDING:
        return Answer(THERE, words[:200])
    if result.code == _NOT_YOURS:
        return Answer(REFUSED, words[:200])
    return Answer(UNKNOWN, words[:200] or _("qdel failed with exit code {code}").format(code=result.code))


def _words(result: Result) -> str:
    return " ".join(result.err.decode("utf-8", "replace").split())


def _is_gone(code: int, words: str, job: str) -> bool:
    """PBS's own words about this very job: an exit code alone can be that of anything that failed on the way."""
    return code in _GONE and _GONE[code] in words and job in words.replace(",", " ").split()
