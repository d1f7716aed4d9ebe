"""What a process carries of its session: the mark, inherited whatever it does, and the cookie in its environment."""

from __future__ import annotations

import posix

from handwash.node import kernel
from handwash.teardown import identity, tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

# What names the job that a process is in, a variable for each scheduler whose jobs may take the submitter's environment along:
# Slurm (sbatch(1)), PBS and Torque (qsub(1B)), LSF (bsub(1)), Flux (flux-environment(7)), Grid Engine (qsub(1)), OAR
# (oarsub(1)), Cobalt (its qsub(1)), Fujitsu's (pjsub(1)), HTCondor (its manual, "Services for Running Jobs": a folder that no
# two jobs share). The second one has to stand beside it where anybody may use the first name for something else.
_JOBS: dict[bytes, bytes | None] = {
    b"SLURM_JOB_ID": None,
    b"PBS_JOBID": None,
    b"LSB_JOBID": None,
    b"FLUX_JOB_ID": None,
    b"JOB_ID": b"SGE_TASK_ID",
    b"OAR_JOB_ID": None,
    b"COBALT_JOBID": None,
    b"PJM_JOBID": None,
    b"_CONDOR_SCRATCH_DIR": None,
}
# What only the node's own daemon sets, slurmstepd or MOM: who has this beside the number is in that scheduler's job.
_PROOFS = ((b"SLURM_JOB_ID", b"SLURMD_NODENAME"), (b"PBS_JOBID", b"PBS_ENVIRONMENT"))


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


def with_cookie(session: str, own: Mapping[bytes, bytes]) -> dict[tuple[int, int], str]:
    """Processes of this user that were started with the session's cookie in their environment, and in no other job; the step
    that each of them names.

    sbatch hands the whole environment on (sbatch(1), --export), qsub where it is told to (qsub(1B), -V), so a job that was
    submitted from the session carries the cookie too, with a job id of its own: that one lives on. `own`: see `own_job`.
    """
    wanted = f"HANDWASH_SESSION={session}".encode()
    found = {}
    for pid in tree.pids():
        data = identity.slurp(f"/proc/{pid}/environ")
        entries = data.split(b"\0") if data else []
        if wanted not in entries:
            continue
        if is_in_another_job(entries, own):
            continue
        began = identity.start_of(pid)
        if began is not None:
            steps = [entry[14:].decode("utf-8", "replace") for entry in entries if entry.startswith(b"SLURM_STEP_ID=")]
            found[pid, began] = steps[-1] if steps else ""
    return found


def own_job(variables: Mapping[bytes, bytes], more: Sequence[bytes] = ()) -> dict[bytes, bytes]:
    """What tells the job of a process with these variables from another one: `is_in_another_job` compares just these names.

    In a job of Slurm, or of PBS, its number alone: what a script exports for programs that know another scheduler makes no
    other job. Elsewhere every name, and `more` of a scheduler of the site's own, empty where there is no such job: to spare
    what only seems to be in a job costs less than to end somebody's job.
    """
    for name, proof in _PROOFS:
        if variables.get(name) and variables.get(proof):
            return {name: variables[name]}
    found = {name: variables.get(name, b"") for name in (*_JOBS, *more)}
    return {name: value if _counts(name, variables) else b"" for name, value in found.items()}


def own_job_here(more: Sequence[bytes] = ()) -> dict[bytes, bytes]:
    """`own_job` of this process."""
    return own_job(posix.environ, more)


def is_in_another_job(entries: Sequence[bytes], own: Mapping[bytes, bytes]) -> bool:
    """Whether an environment, as /proc shows it, names another job than `own` (`own_job`). An empty number names none."""
    named = [entry.partition(b"=")[::2] for entry in entries]
    names = {name for name, _value in named}
    return any(value and own.get(name, value) != value and _counts(name, names) for name, value in named)


def _counts(name: bytes, names: Container[bytes]) -> bool:
    """Whether it is a scheduler's, by the names that are set beside it."""
    beside = _JOBS.get(name)
    return beside is None or beside in names
