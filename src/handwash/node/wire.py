"""What goes between the processes of a session: fields on lines, over a socket or in a file, and the orders that travel from
safe-srun to the node in one argument. They show in the process list: no secrets in them.
"""

import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# The first line of a file.
HEADER = "handwash-session 1"
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": "\\0"}
_MEANINGS = {escape[1]: character for character, escape in _ESCAPES.items()}

# A step may start long after safe-srun, and handwash may have been replaced meanwhile.
FORM = "3"

# The variable in which those travel that a shell on the way would drop.
KEPT = "HANDWASH_KEPT"


def escape(text: str) -> str:
    """One field on one line."""
    if text.isalnum():
        return text
    return "".join(_ESCAPES.get(character, character) for character in text)


def unescape(text: str) -> str:
    """The reverse of `escape`; an unknown escape stands for its letter."""
    if "\\" not in text:
        return text
    parts: list[str] = []
    letters = iter(text)
    for letter in letters:
        if letter == "\\":
            following = next(letters, "")
            parts.append(_MEANINGS.get(following, following))
        else:
            parts.append(letter)
    return "".join(parts)


def join(fields: "Sequence[object]") -> str:
    """Fields to one line without its end."""
    return "\t".join(escape(str(field)) for field in fields)


def split(line: str) -> "list[str]":
    """One line to its fields."""
    return [unescape(field) for field in line.split("\t")]


def pack(rows: "Iterable[Sequence[object]]") -> bytes:
    """Rows to the content of a file."""
    text = "\n".join([HEADER, *(join(row) for row in rows), ""])
    return text.encode("utf-8", "surrogateescape")


def unpack(data: bytes) -> "list[list[str]] | None":
    """The content of a file to its rows; None where it is not ours, of another version, or cut short."""
    text = data.decode("utf-8", "surrogateescape")
    if not text.endswith("\n"):
        return None
    first, *rest = text[:-1].split("\n")
    return [split(line) for line in rest] if first == HEADER else None


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
    """The ids in which this process runs; empty without a scheduler, or without steps (PBS).

    A PBS_JOBID alone was typed by hand, or is exported by a script that serves several schedulers.
    """
    pbs_job = variable(b"PBS_JOBID") if variable(b"PBS_ENVIRONMENT") else ""
    return variable(b"SLURM_JOB_ID") or pbs_job, variable(b"SLURM_STEP_ID")


def node_name() -> str:
    """Slurm's name for this node, else the host's."""
    return variable(b"SLURMD_NODENAME") or posix.uname().nodename.split(".")[0]


class Orders:
    """What the supervisor is told: the session's id, the seconds of grace, the folder for part files, the environment
    variables to put right for the command (None: take out), whether the job is this srun's own, after how many seconds
    GPUs that do nothing are to be told of (0: never), and the setting of Slurm's names ("": none): a node whose home
    directory does not answer cannot read it again."""

    def __init__(
        self,
        session: str,
        grace: float,
        folder: str,
        environment: "Mapping[str, str | None]",
        own: bool = False,
        idle_s: float = 0.0,
        slurm_names: str = "",
    ) -> None:
        self.session = session
        self.grace = grace
        self.folder = folder
        self.environment = dict(environment)
        self.own = own
        self.idle_s = idle_s
        self.slurm_names = slurm_names
        # Those that a scheduler of the site's own sets in its jobs. Not packed: what is in a step is in a job of Slurm.
        self.variables: tuple[bytes, ...] = ()
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
        rest = [int(self.own), f"{self.idle_s:g}", self.slurm_names, *changes]
        return join([FORM, self.session, f"{self.grace:g}", self.folder, *rest])

    @classmethod
    def unpack(cls, text: str) -> "Orders":
        """The reverse of `pack`. ValueError: this was not packed by this version."""
        form, *fields = split(text)
        if form != FORM:
            raise ValueError("handwash was replaced after safe-srun had started")
        session, grace, folder, own, idle_s, names, *changes = fields
        environment: dict[str, str | None] = {}
        for change in changes:
            name, equals, value = change[1:].partition("=")
            environment[name] = value if equals else None
        return cls(session, float(grace), folder, environment, own == "1", float(idle_s), names)
