"""What a process carries of its session: the mark, inherited whatever it does, and the cookie in its environment."""

from __future__ import annotations

from handwash.node import kernel
from handwash.node.wire import encode, variable
from handwash.teardown import identity, tree


def with_mark(mark: int) -> set[tuple[int, int]]:
    """Processes that descend from a marked one, whoever their parent is now and whatever became of their environment.

    Slurm does not hand this limit on (slurm.conf(5), PropagateResourceLimits): a job submitted from the session has no mark.
    """
    found = set()
    for pid in tree.pids():
        limits = identity.slurp(f"/proc/{pid}/limits")
        if limits and kernel.has_mark(limits, mark):
            began = identity.start_of(pid)
            if began is not None:
                found.add((pid, began))
    return found


def with_cookie(session: str, job: str) -> dict[tuple[int, int], str]:
    """Processes of this user that were started with the session's cookie in their environment, and in no other job; the step
    that each of them names.

    sbatch hands the whole environment on (sbatch(1), --export), and so does `qsub -V` of PBS: a job that was submitted from
    the session carries the cookie too, with a job id of its own: that one lives on.
    """
    own = {b"SLURM_JOB_ID=" + encode(job), b"PBS_JOBID=" + encode(variable(b"PBS_JOBID"))}
    wanted = f"HANDWASH_SESSION={session}".encode()
    found = {}
    for pid in tree.pids():
        data = identity.slurp(f"/proc/{pid}/environ")
        entries = data.split(b"\0") if data else []
        if wanted not in entries:
            continue
        if any(entry not in own for entry in entries if entry.startswith((b"SLURM_JOB_ID=", b"PBS_JOBID="))):
            continue
        began = identity.start_of(pid)
        if began is not None:
            steps = [entry[14:].decode("utf-8", "replace") for entry in entries if entry.startswith(b"SLURM_STEP_ID=")]
            found[pid, began] = steps[-1] if steps else ""
    return found
