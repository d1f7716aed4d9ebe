"""The job of an srun that was killed between its allocation and the prolog, which would have told it: nobody would end that.

A job that srun has made in this session (setsid(2)) of this host, under this name, since we started it, while neither an srun
nor an salloc lives in the session that could be sitting in it: if there is exactly one, it is the one.
"""

from __future__ import annotations

import os
import time

from handwash import run, slurm_names, world
from handwash.schedulers import slurm
from handwash.srun import confirm, history
from handwash.teardown import identity, tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handwash.model import Job
    from handwash.srun.keeper import Plan

PAUSE = 1.0
# The killed srun's own child, which gives the allocation back if it can, may take this long.
PATIENCE = 5.0
# Slurm tells times in whole seconds.
SLACK = 1.0


def find(plan: Plan) -> tuple[str, ...] | None:
    """The job, alone in a tuple; an empty one where there is none; None where that could not be told."""
    if plan.given_jobs or plan.cluster or not plan.name:
        return None
    begun = world.monotonic()
    looks = 0
    while True:
        found = candidates(plan)
        looks += 1
        if found is None:
            return None
        if not found and looks > 1:
            return ()
        if found and not attended(plan.sid):
            # One that is older than our srun is somebody else's, and ours may be one that we do not see.
            is_ours = len(found) == 1 and is_since(found[0], plan)
            return (found[0].number,) if is_ours else None
        if world.monotonic() - begun > PATIENCE:
            return None
        time.sleep(PAUSE)


def candidates(plan: Plan) -> tuple[Job, ...] | None:
    """The jobs that could be the one; None where the queue did not answer."""
    try:
        jobs = slurm.parse_squeue(confirm.ask(slurm.squeue_argv(world.uid())))
    except run.CouldNotTell:
        return None
    host = os.uname().nodename.partition(".")[0]
    known = {number for session in history.load() for number in session.jobs}
    return tuple(job for job in jobs if job.number not in known and could_be(job, plan, host))


def could_be(job: Job, plan: Plan, host: str) -> bool:
    """Whether an srun of this session may have made it."""
    # The controller names the host by its address: its own one is localhost (22.05).
    here = job.alloc_host.partition(".")[0] in (host, "localhost") and job.alloc_sid == plan.sid
    return here and job.name == plan.name and job.interactive is True


def is_since(job: Job, plan: Plan) -> bool:
    """Whether it has run for no longer than our srun; one that waits has not run."""
    return job.elapsed_s is None or job.elapsed_s <= world.now() - plan.started + SLACK


def attended(sid: int) -> bool:
    """Whether an srun or salloc lives in the session: a job there may be its own."""
    # As much of a name as the kernel keeps (proc(5), comm).
    names = {name.encode()[:15] for program in ("srun", "salloc") for name in slurm_names.candidates(program)}
    for pid in tree.pids():
        stat = identity.stat_of(pid)
        if stat and stat.sid == sid and stat.state not in identity.DEAD_STATES and stat.name in names:
            return True
    return False
