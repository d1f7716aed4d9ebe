"""Where GPUs are to be had on a PBS cluster: what pbsnodes says of its vnodes, and a qsub line that would get one. Pure.

Read in the sources of OpenPBS 19.1 to its head of 2026 (pbsnodes.c, attr_node_func.c), not recorded.
"""

from __future__ import annotations

from handwash.messages import _
from handwash.run import CouldNotTell
from handwash.schedulers.base import Partition
from handwash.schedulers.slurm import digits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from handwash.run import Result

# The resource under which PBS itself counts GPUs. A site may have a name of its own, of which no line to type could be made.
_GPUS = "ngpus"
# Alone: every other state, or a second one beside it, takes nothing new (pbs_internal.h).
_USABLE = "free"


def nodes_argv() -> list[str]:
    """All vnodes with their attributes; anybody may ask that (pbsnodes(8B))."""
    return ["pbsnodes", "-a", "-v"]


def parse_nodes(result: Result) -> tuple[Partition, ...] | None:
    """The GPUs of the cluster, those of vnodes that only one queue's jobs get (their attribute `queue`) apart.

    None where no vnode has `ngpus`: then PBS does not count GPUs, or not by this name. Raises CouldNotTell.
    """
    words = result.err.decode("utf-8", "replace").strip()
    if result.timed_out or result.capped or result.code != 0 or words:
        said = words.splitlines()[-1] if words else _("no reason given")
        raise CouldNotTell(_("The nodes could not be told: {said}").format(said=said))
    found: dict[str, Partition] = {}
    for vnode in _records(result.out.decode("utf-8", "replace")):
        gpus = _count(vnode, f"resources_available.{_GPUS}")
        if not gpus:
            continue
        free = gpus - _count(vnode, f"resources_assigned.{_GPUS}") if vnode["state"] == _USABLE else 0
        cpus = _count(vnode, "resources_available.ncpus") or 1
        name = vnode.get("queue", "")
        known = found.get(name, Partition(name, not name, 0, 0, cpus, None))
        idle = known.idle + max(free, 0)
        found[name] = Partition(name, not name, known.gpus + gpus, idle, min(cpus, known.cpus), None)
    return tuple(sorted(found.values(), key=lambda one: (-one.idle, one.name))) or None


def _records(text: str) -> list[dict[str, str]]:
    """Each vnode's attributes. An empty line ends a record; pbsnodes lets newlines of a value through, in a comment say."""
    found = []
    for block in text.split("\n\n"):
        if not block.strip():
            continue
        lines = block.strip("\n").split("\n")
        # Of two lines that begin alike the first is PBS's own: `state` stands before every comment.
        record: dict[str, str] = {}
        for line in lines[1:]:
            name, equals, value = line[5:].partition(" = ")
            if line.startswith("     ") and equals:
                record.setdefault(name, value)
        if "state" not in record:
            raise CouldNotTell(_("pbsnodes printed a node that cannot be read."))
        found.append(record)
    return found


def _count(vnode: Mapping[str, str], name: str) -> int:
    """A resource that is not there is one of which there is nothing."""
    value = vnode.get(name, "0")
    if not digits(value):
        raise CouldNotTell(_("pbsnodes printed a node that cannot be read."))
    return int(value)


def qsub_line(partition: Partition | None = None) -> str:
    """A command that gets one GPU of the partition, or wherever there is one, and a shell on it for an hour."""
    where = f" -q {partition.name}" if partition is not None and partition.name else ""
    cpus = 4 if partition is None or partition.cpus >= 8 else 1
    return f"qsub -I{where} -l select=1:ncpus={cpus}:{_GPUS}=1 -l walltime=01:00:00"
