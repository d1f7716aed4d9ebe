"""Which srun has started each step of a job, on which host: what scontrol says of the steps. Measured on 22.05."""

from __future__ import annotations

from handwash.frozen import frozen
from handwash.messages import _
from handwash.run import CouldNotTell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handwash.run import Result

_LAUNCHER = " SrunHost:Pid="


@frozen
class Step:
    """One ordinary step of job `job` that runs. `host`, `pid`: of its srun, as that has told the controller.

    `started`: seconds since the epoch, None where that could not be read.
    """

    job: str
    number: str
    name: str
    host: str
    pid: int
    started: float | None

    @property
    def id(self) -> str:
        """As scancel takes it."""
        return f"{self.job}.{self.number}"


def steps_argv(job: str) -> list[str]:
    """The steps of one job, a line each."""
    return ["scontrol", "--oneliner", "show", "step", job]


def parse_steps(result: Result, job: str) -> tuple[Step, ...]:
    """The steps that an srun has started; batch, extern and interactive steps have none. Raises CouldNotTell."""
    words = result.err.decode("utf-8", "replace").strip()
    out = result.out.decode("utf-8", "replace")
    # "Job step 12. not found", in which stream depends on the release, with exit code 1; or the job is gone.
    if result.code == 1 and ("not found" in out + words or words.endswith("Invalid job id specified")):
        return ()
    if result.timed_out or result.code != 0 or words:
        said = words.splitlines()[0] if words else _("no reason given")
        raise CouldNotTell(_("The steps of job {job} could not be told: {said}").format(job=job, said=said))
    found = (_parse_line(line, job) for line in out.split("\n") if line.startswith("StepId="))
    return tuple(step for step in found if step is not None)


def _parse_line(line: str, job: str) -> Step | None:
    """None for a step that no srun has started, or of which not enough can be read to say anything."""
    number = line.partition("=")[2].partition(" ")[0].rpartition(".")[2]
    # The name comes before it, and can hold anything: the last one is Slurm's own.
    before, found, launcher = line.rpartition(_LAUNCHER)
    host, colon, pid = launcher.partition(" ")[0].rpartition(":")
    if not found or not colon or not _digits(number) or not _digits(pid) or not int(pid) or host in ("", "(null)"):
        return None
    name = before.partition(" Name=")[2].rpartition(" Network=")[0]
    return Step(job, number, name, host.partition(".")[0], int(pid), _time(line))


def _time(line: str) -> float | None:
    """StartTime, in the time zone of whoever asks (scontrol(1), SLURM_TIME_FORMAT is taken away)."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(line.partition(" StartTime=")[2].partition(" ")[0]).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20
