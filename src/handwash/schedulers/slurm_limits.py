"""What a partition gives a job that does not say: its time limits, whether it gives whole nodes, and the GPUs of its nodes."""

from __future__ import annotations

from handwash.frozen import frozen
from handwash.messages import _
from handwash.run import CouldNotTell
from handwash.schedulers.slurm import (
    FIELD,
    GPU_NAMES,
    PART_NAMES,
    RECORD,
    expand_hostlist,
    gpus_in,
    parse_number,
    parse_time,
)
from handwash.schedulers.slurm_partitions import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handwash.run import Result

# Generic resources that are no GPUs: disks, memory, networks, licences, and accelerators of other kinds.
NO_GPUS = frozenset(
    "bandwidth bb burst_buffer burstbuffer craynetwork cvmfs disk fpga gpfs hbm hca ib infiniband license localdisk "
    "localscratch localssd localtmp lscratch lustre matlab mem mic network nic none nvme nvmeof roce scratch ssd "
    "storage tmp tmpdir tmpdisk tmpfs vgpu_license".split()
) | {""}
_COLUMNS = ("Partition", "DefaultTime", "Time", "OverSubscribe", "Nodes", "Gres", "NodeList")


@frozen
class Group:
    """Nodes of a partition that are alike. `gpus`: of each; `shards`, `mps`: into how many parts all of them are cut.

    `strange`: a resource of theirs that is not known here and may be a GPU, or "".
    """

    names: tuple[str, ...]
    count: int
    gpus: int
    shards: int = 0
    mps: int = 0
    strange: str = ""


@frozen
class Limits:
    """One partition. Times in seconds, None for no limit; `default_s`: what a job gets that names none.

    `whole_nodes`: a job gets all of its nodes (OverSubscribe=EXCLUSIVE).
    """

    name: str
    default: bool
    default_s: int | None
    max_s: int | None
    whole_nodes: bool
    groups: tuple[Group, ...]


def limits_argv(cluster: str = "") -> list[str]:
    """sinfo for all partitions, hidden and restricted ones too, in one request."""
    columns = [f"{name}:0{FIELD}" for name in _COLUMNS[:-1]] + [f"{_COLUMNS[-1]}:0{RECORD}"]
    where = [f"--clusters={cluster}"] if cluster else []
    return ["sinfo", "--noheader", "--all", *where, "--Format=" + ",".join(columns)]


def parse_limits(result: Result) -> tuple[Limits, ...]:
    """The partitions in sinfo's answer. Raises CouldNotTell for anything that is not a whole, clean answer."""
    words = result.err.decode("utf-8", "replace").strip()
    if result.timed_out:
        raise CouldNotTell(_("The partitions could not be told: {said}").format(said=_("no answer in time")))
    if result.code != 0 or words or result.capped:
        said = words.splitlines()[0] if words else _("no reason given")
        raise CouldNotTell(_("The partitions could not be told: {said}").format(said=said))
    found: dict[str, Limits] = {}
    for record in result.out.decode("utf-8", "replace").split(RECORD):
        record = record.lstrip("\n")
        if record.startswith("CLUSTER: "):
            record = record.partition("\n")[2]
        if not record.strip():
            continue
        fields = [field.strip() for field in record.split(FIELD)]
        if len(fields) != len(_COLUMNS):
            raise CouldNotTell(_("sinfo printed a row that cannot be read."))
        row = dict(zip(_COLUMNS, fields))
        name = row["Partition"].rstrip("*")
        known = found.get(name)
        found[name] = Limits(
            name=name,
            default=row["Partition"].endswith("*"),
            default_s=_default(row["DefaultTime"], _time(row["Time"])),
            max_s=_time(row["Time"]),
            whole_nodes=row["OverSubscribe"] == "EXCLUSIVE",
            groups=(*(known.groups if known else ()), _group(row)),
        )
    return tuple(found.values())


def _group(row: dict[str, str]) -> Group:
    gres = plain(row["Gres"])
    count, gpus = parse_number(row["Nodes"]), gpus_in(gres)
    if count is None or gpus is None:
        raise CouldNotTell(_("sinfo printed a row that cannot be read."))
    shards, mps = _parts(gres, "shard"), _parts(gres, "mps")
    return Group(expand_hostlist(row["NodeList"]), count, gpus, shards, mps, _strange(gres))


def _strange(gres: str) -> str:
    """The first resource in a list that is neither a GPU nor known to be none."""
    names = (item.strip().partition(":")[0].lower() for item in gres.split(","))
    known = (*GPU_NAMES, *PART_NAMES, *NO_GPUS)
    return next((name for name in names if name not in known and not name.startswith("(")), "")


def _parts(gres: str, name: str) -> int:
    """The count of a resource in a list such as `gpu:a100:2,shard:a100:8`."""
    total = 0
    for item in gres.split(","):
        words = item.split(":")
        if words[0] == name:
            total += parse_number(words[-1]) or 0
    return total


def _time(text: str) -> int | None:
    if text == "infinite":
        return None
    seconds = parse_time(text)
    if seconds is None:
        raise CouldNotTell(_("sinfo printed a row that cannot be read."))
    return seconds


def _default(text: str, most: int | None) -> int | None:
    """The time that a job gets that names none: DefaultTime, where that is not set MaxTime."""
    return most if text == "n/a" else _time(text)
