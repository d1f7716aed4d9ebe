"""Which jobs are mine: one request to the scheduler, and the site's process tracking, asked once and remembered."""

from __future__ import annotations

from handwash import run, siteinfo, world
from handwash.messages import _
from handwash.model import Job
from handwash.schedulers import slurm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def look() -> dict[str, Any]:
    """Squeue's answer as it came, and the process tracking. No scheduler at all is an answer: no jobs."""
    argv = slurm.squeue_argv(world.uid())
    if run.find(argv[0]) is None:
        if siteinfo.config_file() is not None or world.env.get("SLURM_JOB_ID"):
            raise run.CouldNotTell(
                _("squeue is not on the PATH, though this is a Slurm cluster. Try `module load slurm`.")
            )
        return {"result": None, "proctrack": None}
    # The deadline of the look ends this request too; its own limit is only a backstop.
    result = run.run(argv, timeout=60)
    answer = (result.code, result.out, result.err, result.timed_out, result.capped)
    return {"result": answer, "proctrack": proctrack() if result.code == 0 and not result.err else None}


def read(seen: dict[str, Any]) -> Any:
    """The jobs, or `Unknown` with the reason."""
    from handwash.model import Unknown

    if seen["result"] is None:
        return ()
    try:
        jobs: tuple[Job, ...] = slurm.parse_squeue(run.Result(*seen["result"]))
    except run.CouldNotTell as reason:
        return Unknown(str(reason))
    return jobs


def proctrack() -> str | None:
    """The site's process tracking, from the person's state folder or, at most once a day, from the controller."""
    # The controller has just answered squeue; if it is slow now, the jobs must not wait for this.
    known = siteinfo.ask(timeout=1)
    return known["ProctrackType"].rpartition("/")[2] or None if known else None
