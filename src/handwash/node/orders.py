"""The orders that travel from safe-srun to the node in one argument. It shows in the process list: no secrets in it."""

import posix
import sys

from handwash.node import lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# A step may start long after safe-srun, and handwash may have been replaced meanwhile.
FORM = "1"

# The variable in which those travel that a shell on the way would drop.
KEPT = "HANDWASH_KEPT"


def encode(text: str) -> bytes:
    """As `os.fsencode`."""
    return text.encode(sys.getfilesystemencoding(), "surrogateescape")


def decode(data: bytes) -> str:
    """As `os.fsdecode`."""
    return data.decode(sys.getfilesystemencoding(), "surrogateescape")


def variable(name: bytes) -> str:
    """An environment variable of this process; empty where it is not set."""
    return decode(posix.environ.get(name, b""))


def job_and_step() -> "tuple[str, str]":
    """The ids in which this process runs; empty without a scheduler."""
    return variable(b"SLURM_JOB_ID"), variable(b"SLURM_STEP_ID")


def node_name() -> str:
    """Slurm's name for this node, else the host's."""
    return variable(b"SLURMD_NODENAME") or posix.uname().nodename.split(".")[0]


class Orders:
    """What the supervisor is told: the session's id, the seconds of grace, the folder for part files, the environment
    variables to put right for the command (None: take out), and whether the job is this srun's own."""

    def __init__(
        self, session: str, grace: float, folder: str, environment: "Mapping[str, str | None]", own: bool = False
    ) -> None:
        self.session = session
        self.grace = grace
        self.folder = folder
        self.environment = dict(environment)
        self.own = own
        # The slurmstepd that has started the task, without which nobody can end the step or hear of its end; 0: none.
        self.slurmstepd = 0

    def mark(self) -> int:
        """The number by which the processes of this session in this step are known (`kernel.mark`)."""
        tail = self.session.rpartition("-")[2]
        number = int(tail, 16) if tail.isalnum() else 0
        # The components of a heterogeneous job may share a node: each is a step of its own there.
        for text in job_and_step():
            number = (number * 6364136223846793005 + (int(text) if text.isdigit() else 0)) % 2**62
        return number

    def pack(self) -> str:
        """To one argument."""
        changes = [f"-{name}" if value is None else f"+{name}={value}" for name, value in self.environment.items()]
        return lines.join([FORM, self.session, f"{self.grace:g}", self.folder, int(self.own), *changes])

    @classmethod
    def unpack(cls, text: str) -> "Orders":
        """The reverse of `pack`. ValueError: this was not packed by this version."""
        form, *fields = lines.split(text)
        if form != FORM:
            raise ValueError("handwash was replaced after safe-srun had started")
        session, grace, folder, own, *changes = fields
        environment: dict[str, str | None] = {}
        for change in changes:
            name, equals, value = change[1:].partition("=")
            environment[name] = value if equals else None
        return cls(session, float(grace), folder, environment, own == "1")
