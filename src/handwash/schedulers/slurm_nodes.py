"""What handwash asks of Slurm about the other nodes of a job: its living steps, and a step of its own beside them."""

from __future__ import annotations

from handwash.messages import _
from handwash.run import CouldNotTell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from handwash.model import Job
    from handwash.run import Result

# squeue's name of the column (20.11 to 24.11).
_HEADER = "STEPID"


def steps_argv(jobs: Sequence[str]) -> list[str]:
    """The steps that run of one job, or of the components of one. With the header: an answer without one is no answer."""
    return ["squeue", "--steps", "--jobs", ",".join(jobs), "--format=%i"]


def parse_steps(result: Result, job: str) -> tuple[str, ...]:
    """The steps' numbers or names (`0`, `batch`, `interactive`). Raises CouldNotTell."""
    words = result.err.decode("utf-8", "replace").strip()
    if result.timed_out or result.code != 0 or words:
        said = words.splitlines()[0] if words else _("no reason given")
        raise CouldNotTell(_("The steps of job {job} could not be told: {said}").format(job=job, said=said))
    rows = result.out.decode("utf-8", "replace").split()
    found = []
    # What is on no step's list counts as left over: that of a wrapper around squeue that failed is not taken for one.
    if rows[:1] != [_HEADER]:
        raise CouldNotTell(
            _("The steps of job {job} could not be told: {said}").format(job=job, said=_("no reason given"))
        )
    for line in rows[1:]:
        number, dot, step = line.partition(".")
        if not dot or not number[:1].isdigit():
            raise CouldNotTell(_("squeue printed a row that cannot be read."))
        found.append(step)
    return tuple(found)


def beside_argv(job: Job, node: str, command: Sequence[str]) -> list[str]:
    """srun for one task on one node of the job, beside whatever runs there (--overlap: from 20.11 on).

    It takes the job's GPUs as its own, else a control group would hide their device files from it. A component of a
    heterogeneous job, `123+1`, is the leader's number and its place (srun(1), --het-group).
    """
    leader, plus, place = job.id.partition("+")
    which = [f"--jobid={leader}", f"--het-group={place}"] if plus else [f"--jobid={job.number}"]
    words = ["--overlap", *which, f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--cpus-per-task=1"]
    return ["srun", "--quiet", "--input=none", "--job-name=handwash", *words, *command]


def outside_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables of the job and step that one is in: srun reads most of them as options."""
    kept = ("SLURM_CONF",)
    return {name: value for name, value in env.items() if not name.startswith("SLURM") or name in kept}
