"""Slurm as the survey asks it: command lines, and pure readers of what comes back. Measured on 20.11 to 24.11.

A reader gives the answer or raises `CouldNotTell`; an empty queue and a queue that could not be read are never the same.
"""

from __future__ import annotations

from handwash.messages import _
from handwash.model import Job
from handwash.run import CouldNotTell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from handwash.run import Result

# Unit and record separator: no job name can shift a column by holding one of the usual separators. The name comes last.
FIELD = "\x1f"
RECORD = "\x1e"
_COLUMNS = (
    "JobID",
    "JobArrayID",
    "State",
    "BatchFlag",
    "TimeUsed",
    "TimeLimit",
    "NumNodes",
    "NumTasks",
    "tres-alloc",
    "tres-per-job",
    "tres-per-node",
    "tres-per-socket",
    "tres-per-task",
    "OverSubscribe",
    "Partition",
    "NodeList",
    "AllocNodes",
    "AllocSID",
    "Name",
)
# Node names that one expression may stand for. More is a misprint, and would hold the answer up beyond any deadline.
_NODES_CAP = 65536
# Names under which sites have GPUs and accelerators that are billed like them as generic resources: gres.conf(5) leaves the
# name to the site, and AMD's, Hygon's, Ascend's, Cambricon's, Enflame's, Intel's and Moore Threads' are often their own.
GPU_NAMES = ("gpu", "dcu", "npu", "mlu", "gcd", "gcu", "xpu", "hpu", "ppu", "musa", "accelerator")
# Parts of a GPU.
PART_NAMES = ("shard", "mps")
ENDED_STATES = frozenset(
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED TIMEOUT".split()
)


def squeue_argv(uid: int, before: Sequence[str] = ()) -> list[str]:
    """One request for all jobs of one uid, hidden and restricted partitions too; the controller keeps a list per user.

    `before`: columns to put before those of `parse_job`.
    """
    # Width 0: the field whole. Any other width cuts it without a word, and pads it (eight KiB for each job; 22.05).
    columns = [f"{name}:0{FIELD}" for name in (*before, *_COLUMNS[:-1])]
    columns.append(f"{_COLUMNS[-1]}:0{RECORD}")
    return ["squeue", "--noheader", "--all", f"--user={uid}", "--Format=" + ",".join(columns)]


def parse_squeue(result: Result) -> tuple[Job, ...]:
    """The jobs in squeue's answer. Raises CouldNotTell for anything that is not a whole, clean answer."""
    return tuple(parse_job(record) for record in records(result))


def records(result: Result) -> list[str]:
    """The rows of squeue's answer. Raises CouldNotTell for anything that is not a whole, clean answer."""
    words = result.err.decode("utf-8", "replace").strip()
    if result.timed_out:
        raise CouldNotTell(_("squeue did not answer in time: the controller is slow or down. Try `squeue` yourself."))
    if result.capped:
        raise CouldNotTell(_("squeue printed more than can be read."))
    if result.code != 0 or words:
        # A user name that cannot be resolved, a cluster that does not answer: words on stderr with exit code 0 (22.05).
        said = words.splitlines()[0] if words else _("no reason given")
        raise CouldNotTell(_("squeue failed (exit code {code}): {said}").format(code=result.code, said=said))
    text = result.out.decode("utf-8", "replace")
    if not text.strip():
        return []
    found = text.split(RECORD)
    if found.pop().strip():
        raise CouldNotTell(_("squeue's answer breaks off in the middle."))
    return [_without_cluster(record[1:] if record.startswith("\n") else record) for record in found]


def _without_cluster(record: str) -> str:
    """Federated and -M output names the cluster on a line of its own."""
    return record.partition("\n")[2] if record.startswith("CLUSTER: ") else record


def parse_job(record: str) -> Job:
    """One row. Raises CouldNotTell."""
    fields = [field.strip() for field in record.split(FIELD, len(_COLUMNS) - 1)]
    if len(fields) != len(_COLUMNS):
        raise CouldNotTell(_("squeue printed a row that cannot be read."))
    row = dict(zip(_COLUMNS, fields))
    if not digits(row["JobID"]) or not is_job_id(row["JobArrayID"]) or not is_state(row["State"]):
        raise CouldNotTell(_("squeue printed a row that cannot be read."))
    nodes = parse_number(row["NumNodes"].partition("-")[0])
    return Job(
        id=row["JobArrayID"],
        number=row["JobID"],
        state=row["State"],
        name=record.split(FIELD, len(_COLUMNS) - 1)[-1].rstrip(" "),
        partition=row["Partition"],
        nodes=expand_hostlist(row["NodeList"]),
        gpus=count_gpus(row, nodes, parse_number(row["NumTasks"])),
        elapsed_s=parse_time(row["TimeUsed"]),
        limit_s=parse_time(row["TimeLimit"]),
        interactive={"0": True, "1": False}.get(row["BatchFlag"]),
        alloc_host=row["AllocNodes"],
        alloc_sid=parse_number(row["AllocSID"]),
    )


def is_job_id(text: str) -> bool:
    """`123`, `123_4`, `123_[5-100]`, `123_[1,3%4]`, `123+0`."""
    head = text[:1]
    return head in "0123456789" and head != "" and all(c in "0123456789_+[]-,%.:" for c in text)


def is_state(text: str) -> bool:
    return text != "" and all(c.isupper() or c == "_" for c in text)


def parse_number(text: str) -> int | None:
    """A count as squeue prints it, `12` or `1K` (1024); None where there is none."""
    if text[-1:] in ("K", "k") and digits(text[:-1]):
        return int(text[:-1]) * 1024
    return int(text) if digits(text) else None


def parse_time(text: str) -> int | None:
    """Seconds of `M:SS`, `H:MM:SS`, `D-HH:MM:SS`; None for UNLIMITED, NOT_SET, INVALID (clock skew) and the like."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not 2 <= len(parts) <= 3 or (dash and not digits(days)) or not all(digits(part) for part in parts):
        return None
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return seconds + (int(days) * 86400 if dash else 0)


def digits(text: str) -> bool:
    # int() refuses thousands of digits from Python 3.11 on, and no count of Slurm's has more than twenty.
    return text.isascii() and text.isdigit() and len(text) <= 20


def count_gpus(row: dict[str, str], nodes: int | None, tasks: int | None) -> int | None:
    """GPUs that a job holds. What was allocated counts before what was asked for (`--exclusive` takes whole nodes).

    `tres-alloc` names GPUs only where the site accounts for them (AccountingStorageTRES=gres/gpu); else the request is
    multiplied out. None where it cannot be: a whole node's GPUs, GPUs per socket, a count that does not parse.
    """
    allocated = gpus_in(row["tres-alloc"])
    if allocated != 0:
        return allocated
    if row["OverSubscribe"] == "NO":
        # --exclusive, or a partition that gives whole nodes: all their GPUs, however many were asked for (22.05).
        return None
    total = gpus_in(row["tres-per-job"])
    if total != 0:
        return total
    for column, times in (("tres-per-node", nodes), ("tres-per-task", tasks)):
        each = gpus_in(row[column])
        if each != 0:
            return each * times if each is not None and times is not None else None
    return 0 if gpus_in(row["tres-per-socket"]) == 0 else None


def gpus_in(tres: str) -> int | None:
    """GPUs in a list such as `cpu=4,gres/gpu=2,gres/gpu:a100=2` or `gres:gpu:a100:2`; None where the count is unreadable.

    Those under other names too (`GPU_NAMES`). `gres/shard` and `gres/mps` are parts of a GPU and do not count. A typed entry
    repeats the untyped total of its name.
    """
    totals: dict[str, int] = {}
    typed: dict[str, int] = {}
    for entry in tres.split(","):
        name, _equals, count = entry.strip().partition("=")
        parts = name.replace("gres/", "gres:", 1).split("(")[0].split(":")
        if parts[0] == "gres":
            parts = parts[1:]
        if not parts or parts[0] not in GPU_NAMES:
            continue
        if not count:
            count = parts[-1] if len(parts) > 1 and digits(parts[-1]) else "1"
            parts = parts[:-1] if len(parts) > 1 and digits(parts[-1]) else parts
        number = parse_number(count)
        if number is None:
            return None
        if len(parts) == 1:
            totals[parts[0]] = number
        else:
            typed[parts[0]] = typed.get(parts[0], 0) + number
    return sum({**typed, **totals}.values())


def expand_hostlist(text: str) -> tuple[str, ...]:
    """`n[1-3,07],login1` as names, in order. An expression that cannot be read is one name, as it stands."""
    if text in ("", "(null)", "N/A"):
        return ()
    names: list[str] = []
    for part in _split_outside_brackets(text):
        try:
            names.extend(_expand(part, _NODES_CAP - len(names)))
        except ValueError:
            names.append(part)
    return tuple(names)


def _split_outside_brackets(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for character in text:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [part for part in [*parts, current] if part]


def _expand(part: str, cap: int) -> list[str]:
    before, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    inside, closed, after = rest.partition("]")
    # Slurm itself knows at most four dimensions (hostlist.c, HIGHEST_DIMENSIONS).
    if not closed or after.count("[") > 4:
        raise ValueError(part)
    tails = _expand(after, cap)
    names: list[str] = []
    for item in inside.split(","):
        first, _dash, last = item.partition("-")
        last = last or first
        if not digits(first) or not digits(last):
            raise ValueError(part)
        if (int(last) - int(first) + 1) * len(tails) + len(names) > cap:
            raise ValueError(part)
        for number in range(int(first), int(last) + 1):
            names.extend(before + str(number).zfill(len(first)) + tail for tail in tails)
    return names


def scontrol_config_argv() -> list[str]:
    return ["scontrol", "show", "config"]


def parse_config(result: Result, wanted: Sequence[str]) -> dict[str, str] | None:
    """These settings out of `scontrol show config`, empty where one is not set; None where that is no answer."""
    found = dict.fromkeys(wanted, "")
    if result.code != 0 or result.timed_out:
        return None
    for line in result.out.decode("utf-8", "replace").splitlines():
        name, equals, value = line.partition("=")
        if equals and name.strip() in found:
            found[name.strip()] = value.strip().replace("(null)", "")
    return found if any(found.values()) else None


def parse_proctrack(result: Result) -> str | None:
    """`cgroup`, `linuxproc` or `pgid` out of `scontrol show config`; None where it does not say."""
    found = parse_config(result, ["ProctrackType"])
    return found["ProctrackType"].rpartition("/")[2] or None if found else None


def job_in_groups(groups: bytes | None) -> tuple[str | None, str | None]:
    """(job, step) out of a process's control groups, `…/job_42/step_0/…` in v1 and v2; (None, None) where it is in none.

    From 26.05 a job's folder can be named by its SLUID, which is no job id: that gives (None, None) too.
    """
    if not groups or b"/job_" not in groups:
        return None, None
    for line in groups.decode("utf-8", "replace").splitlines():
        parts = line.partition(":")[2].partition(":")[2].split("/")
        for place, part in enumerate(parts):
            if part.startswith("job_") and part[4:].isdigit():
                following = parts[place + 1] if place + 1 < len(parts) else ""
                return part[4:], following[5:] if following.startswith("step_") else None
    return None, None


def nodes_in_config(text: str) -> tuple[str, ...]:
    """Names and host names of the compute nodes in a slurm.conf (slurm.conf(5), "NODE CONFIGURATION"), DEFAULT left out."""
    names: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        words = line.partition("#")[0].split()
        if not words or not words[0].lower().startswith("nodename="):
            continue
        for word in words:
            key, _equals, value = word.partition("=")
            if key.lower() in ("nodename", "nodehostname") and value.upper() != "DEFAULT":
                names.extend(expand_hostlist(value))
    return tuple(names)


def controllers_in_config(text: str) -> tuple[str, ...]:
    """The hosts of the controller in a slurm.conf, `NAME` or `NAME(ADDRESS)`; before 18.08 by other keys (slurm.conf(5))."""
    names: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        key, _equals, value = line.partition("#")[0].strip().partition("=")
        if key.strip().lower() in ("slurmctldhost", "controlmachine", "backupcontroller"):
            names.append(value.strip().partition("(")[0])
    return tuple(name for name in names if name)
