"""What pbsnodes says of the vnodes of a PBS cluster, where GPUs are to be had on it, and a qsub line that gets one. Pure.

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


def vnodes_argv() -> list[str]:
    """All vnodes with their attributes; anybody may ask that (pbsnodes(8B))."""
    return ["pbsnodes", "-a", "-v"]


def whole(result: Result) -> str:
    """What one of PBS's commands has said. Raises CouldNotTell for anything that is not a whole, clean answer."""
    words = result.err.decode("utf-8", "replace").strip()
    if result.timed_out or result.capped or result.code != 0 or words:
        said = _("no answer in time") if result.timed_out else _("no reason given")
        said = words.splitlines()[-1] if words and not result.timed_out else said
        raise CouldNotTell(_("The PBS server could not be asked: {said}").format(said=said))
    return result.out.decode("utf-8", "replace")


def parse_vnodes(result: Result) -> list[dict[str, str]]:
    """Each vnode's attributes, and its name as "". Raises CouldNotTell.

    An empty line ends a record. pbsnodes lets a newline in a value through, in an administrator's comment say: lines in another
    form are passed over, and the first of two attributes counts, for most stand before the comment (master_node_attr_def.xml).
    """
    found = []
    for block in whole(result).split("\n\n"):
        if not block.strip():
            continue
        first, *lines = block.strip("\n").split("\n")
        vnode: dict[str, str] = {"": first.strip()}
        for line in lines:
            name, equals, value = line.strip().partition(" =")
            if line.startswith("     ") and equals:
                vnode.setdefault(name, value.strip())
        if first.startswith(" ") or len(vnode) == 1:
            raise CouldNotTell(_("pbsnodes printed something that cannot be read."))
        found.append(vnode)
    return found


def parse_gpus(result: Result) -> tuple[Partition, ...] | None:
    """The GPUs of the cluster, those of vnodes that only one queue's jobs get (their attribute `queue`) apart.

    Those that any job may get come first where some of them are idle: who may use a queue is not known here. None where no
    vnode has `ngpus`: then PBS does not count GPUs, or not by this name. Raises CouldNotTell.
    """
    found: dict[str, Partition] = {}
    for vnode in parse_vnodes(result):
        gpus = _count(vnode, f"resources_available.{_GPUS}")
        if not gpus:
            continue
        free = gpus - _count(vnode, f"resources_assigned.{_GPUS}") if vnode.get("state") == _USABLE else 0
        cpus = _count(vnode, "resources_available.ncpus") or 1
        name = vnode.get("queue", "")
        known = found.get(name, Partition(name, not name, 0, 0, cpus, None))
        idle = known.idle + max(free, 0)
        found[name] = Partition(name, not name, known.gpus + gpus, idle, min(cpus, known.cpus), None)
    return tuple(sorted(found.values(), key=lambda one: (not one.idle, not one.default, -one.idle, one.name))) or None


def _count(vnode: Mapping[str, str], name: str) -> int:
    """How many there are: none of a resource that is not there, or that is counted on another vnode (`@name`)."""
    value = vnode.get(name, "0")
    if value.startswith("@"):
        return 0
    if not digits(value):
        raise CouldNotTell(_("pbsnodes printed something that cannot be read."))
    return int(value)


def qsub_line(partition: Partition | None = None) -> str:
    """A command that gets one GPU of the partition, or wherever there is one, and a shell on it for an hour."""
    where = f" -q {partition.name}" if partition is not None and partition.name else ""
    cpus = 4 if partition is None or partition.cpus >= 8 else 1
    return f"qsub -I{where} -l select=1:ncpus={cpus}:{_GPUS}=1 -l walltime=01:00:00"
