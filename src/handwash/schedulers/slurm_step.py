"""What safe-srun asks of Slurm about its own job or step: command lines, and pure readers of what comes back.

Tried on 22.05. Every reader has a third answer beside yes and no: could not tell.
"""

from __future__ import annotations

from handwash.frozen import frozen
from handwash.messages import _
from handwash.schedulers.slurm import GPU_NAMES, gpus_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handwash.run import Result

GONE, THERE, UNKNOWN = "gone", "there", "unknown"
# squeue's names of the two columns asked for (20.11 to 24.11).
HEADERS = ("JOBID:STATE", "STEPID:RUNNING")


@frozen
class Target:
    """What one srun started: its job or jobs (more than one for a heterogeneous job), its step, and on which cluster.

    `own`: srun made the job, so the job is to end with it; else only the step is.
    """

    jobs: tuple[str, ...]
    step: str
    own: bool
    cluster: str = ""

    @property
    def steps(self) -> tuple[str, ...]:
        """The step in each of the jobs, as Slurm writes it."""
        return tuple(f"{job}.{self.step}" for job in self.jobs)

    @property
    def name(self) -> str:
        """The job for a person."""
        return f"{self.jobs[0]}.{self.step}" if self.jobs and self.step and not self.own else "+".join(self.jobs)


@frozen
class Answer:
    """`word`: gone, there, unknown. `detail`: the job's state, or why it could not be told."""

    word: str
    detail: str = ""


def is_ambiguous(target: Target) -> bool:
    """Whether srun could choose among clusters: on another one the same number is somebody else's job, or none."""
    return "," in target.cluster or target.cluster.lower() == "all"


def cluster_option(target: Target) -> list[str]:
    return [f"--clusters={target.cluster}"] if target.cluster else []


def queue_argv(target: Target) -> list[str]:
    """squeue for exactly this job (hidden partitions too) or this step."""
    # The state comes after a colon that no id holds; neither field is anything that a person can choose.
    if target.own:
        return ["squeue", "--all", *cluster_option(target), "-j", ",".join(target.jobs), "-o", "%i:%T"]
    # A step has no state column: its row is its state.
    return ["squeue", "--all", *cluster_option(target), "-s", ",".join(target.steps), "-o", "%i:RUNNING"]


def parse_queue(result: Result) -> Answer:
    """squeue's answer about one target."""
    words = " ".join(result.err.decode("utf-8", "replace").split())
    if result.timed_out or result.code is None:
        return Answer(UNKNOWN, _("squeue did not answer in time"))
    rows = [row for row in result.out.decode("utf-8", "replace").split("\n") if row.strip()]
    # -M names the cluster on a line of its own before the header.
    rows = [row.strip() for row in rows if not row.startswith("CLUSTER: ")]
    # Nothing found is a header alone: an answer without one is no answer, of a wrapper around squeue that failed say.
    headed = bool(rows) and rows[0] in HEADERS
    states = []
    for row in rows[headed:]:
        number, colon, state = row.partition(":")
        if not colon or not number[:1].isdigit() or not state.replace("_", "").isalpha():
            return Answer(UNKNOWN, _("squeue's answer could not be read"))
        states.append(state)
    if states:
        return Answer(THERE, states[0])
    # Exit code 1 with one id, 0 with several (22.05).
    if words == "slurm_load_jobs error: Invalid job id specified":
        return Answer(GONE)
    if result.code != 0 or words:
        return Answer(UNKNOWN, words[:200] or _("squeue failed with exit code {code}").format(code=result.code))
    return Answer(GONE) if headed else Answer(UNKNOWN, _("squeue printed nothing at all"))


def cancel_argv(target: Target, *, whole_job: bool) -> list[str]:
    """scancel for the step, or for the job where it is ours."""
    what = target.jobs if whole_job and target.own else target.steps
    return ["scancel", *cluster_option(target), *what]


def gpus_argv(target: Target, number: int = 0) -> list[str]:
    """The detailed record of one job."""
    return ["scontrol", *cluster_option(target), "--detail", "--oneliner", "show", "job", target.jobs[number]]


def parse_gpus(result: Result) -> int | None:
    """How many GPUs the job holds; None where that is not told. MPS and shards are parts of a GPU and do not count."""
    if result.code != 0:
        return None
    words = result.out.decode("utf-8", "replace").split()
    for word in words:
        name, _equals, value = word.partition("=")
        if name == "JOB_GRES":
            return sum(count_of(item) for item in value.split(",") if item.partition(":")[0] in GPU_NAMES)
    # A job without any generic resource has no JOB_GRES at all; TRES names GPUs where the site accounts for them.
    for word in words:
        if word.startswith(("TRES=", "AllocTRES=")):
            return gpus_in(word.partition("=")[2])
    return None


def count_of(item: str) -> int:
    """`gpu:a100:2` or `gpu:2` or `gpu:a100:2(IDX:0-1)` to 2; `gpu` alone is one."""
    last = item.partition("(")[0].rpartition(":")[2]
    return int(last) if last.isdigit() else 1


def parse_arity(result: Result) -> str:
    """What `srun --NAME` alone says about an option: `required`, `unknown` (srun refuses it), else `no`."""
    words = result.err.decode("utf-8", "replace")
    if "requires an argument" in words:
        return "required"
    if "unrecognized" in words or "ambiguous" in words or "unknown option" in words or result.code is None:
        return "unknown"
    return "no"


def parse_release(result: Result) -> str | None:
    """`slurm-wlm 22.05.8` or `slurm 24.11.5` to the release."""
    last = result.out.decode("utf-8", "replace").split()[-1:]
    return last[0] if last and last[0][:1].isdigit() else None
