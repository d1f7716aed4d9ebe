"""Where GPUs are to be had on this cluster: what sinfo says of partitions, and an srun line that would get one."""

from __future__ import annotations

from handwash import slurm_names
from handwash.messages import _
from handwash.run import CouldNotTell
from handwash.schedulers.base import Partition
from handwash.schedulers.slurm import FIELD, RECORD, gpus_in, parse_number, parse_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handwash.run import Result

# `+` (default) marks no state; the others say that a node sleeps, is about to be rebooted, does not answer and the like.
_USABLE = frozenset(("idle", "mixed", "allocated"))
_COLUMNS = ("Partition", "Available", "StateLong", "Nodes", "CPUs", "Gres", "GresUsed", "Time")
_LONGEST_S = 3600


def sinfo_argv() -> list[str]:
    """All partitions that the person may see, a row for each group of nodes that are alike."""
    columns = [f"{name}:0{FIELD}" for name in _COLUMNS[:-1]] + [f"{_COLUMNS[-1]}:0{RECORD}"]
    return ["sinfo", "--noheader", "--Format=" + ",".join(columns)]


def parse_sinfo(result: Result) -> tuple[Partition, ...]:
    """The partitions that have GPUs, those with the most idle ones first. Raises CouldNotTell."""
    words = result.err.decode("utf-8", "replace").strip()
    if result.timed_out or result.code != 0 or words:
        said = words.splitlines()[0] if words else _("no reason given")
        raise CouldNotTell(_("The partitions could not be told: {said}").format(said=said))
    found: dict[str, Partition] = {}
    for record in result.out.decode("utf-8", "replace").split(RECORD):
        fields = [field.strip() for field in record.split(FIELD)]
        if len(fields) != len(_COLUMNS):
            if record.strip():
                raise CouldNotTell(_("sinfo printed a row that cannot be read."))
            continue
        row = dict(zip(_COLUMNS, fields))
        each, used = gpus_in(plain(row["Gres"])), gpus_in(plain(row["GresUsed"]))
        nodes = parse_number(row["Nodes"]) or 0
        if not each or row["Available"] != "up":
            continue
        name = row["Partition"].rstrip("*")
        usable = row["StateLong"] in _USABLE
        idle = nodes * max(each - (used or 0), 0) if usable else 0
        cpus = parse_number(row["CPUs"].rstrip("+")) or 1
        known = found.get(name)
        found[name] = Partition(
            name,
            row["Partition"].endswith("*"),
            nodes * each + (known.gpus if known else 0),
            idle + (known.idle if known else 0),
            min(cpus, known.cpus) if known else cpus,
            parse_time(row["Time"]),
        )
    return tuple(sorted(found.values(), key=lambda one: (-one.idle, not one.default, one.name)))


def plain(gres: str) -> str:
    """`gpu:a100:2(S:0-1),gpu:v100:1(IDX:0)` without what is in parentheses, where commas can be."""
    kept, depth = "", 0
    for character in gres:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and character != ")":
            kept += character
    return kept


def srun_line(partition: Partition) -> str:
    """A command that gets one GPU of the partition and a shell on it; an hour, or less where the partition gives less."""
    seconds = min(_LONGEST_S, partition.limit_s or _LONGEST_S)
    time = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    cpus = 4 if partition.cpus >= 8 else 1
    srun = slurm_names.name("srun")
    return f"{srun} --partition={partition.name} --gres=gpu:1 --cpus-per-task={cpus} --time={time} --pty bash"


def parse_clock(result: Result) -> str | None:
    """When the controller answered, as `scontrol show config` heads its answer: `2026-11-30T21:00:00`, local time."""
    first = result.out.decode("utf-8", "replace").partition("\n")[0]
    stamp = first.rpartition(" ")[2]
    return stamp if result.code == 0 and len(stamp) == 19 and stamp[10:11] == "T" else None
