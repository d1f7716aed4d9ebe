"""What a PBS server adds to a request that does not say: the defaults and limits of its queues, and the GPUs of its hosts.

The forms are those of OpenPBS's head of April 2026 (qstat.c `prt_attr`, pbsnodes.c `prt_node`); 19.1.3 and 23.06.06 were
compared in part.
"""

from __future__ import annotations

from handwash.frozen import frozen
from handwash.messages import _
from handwash.run import CouldNotTell
from handwash.schedulers import pbs_vnodes
from handwash.schedulers.pbs import gpu_kind
from handwash.schedulers.slurm import GPU_NAMES, digits
from handwash.schedulers.slurm_limits import NO_GPUS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Union

    from handwash.model import Unknown
    from handwash.run import Result

# Resources that PBS has by itself (master_resc_def_all.xml) and that its sites have made their own, none of them GPUs.
PLAIN = NO_GPUS | frozenset(
    "accelerator_group accelerator_memory accelerator_model aoe arch chunk_type cpupercent cpus cput energy eoe exec_vnode "
    "file hbmem host hpm hpmem max_walltime min_walltime mpiprocs ncpus nchunk nice nmics nodect nodemask nodes ompthreads "
    "partition pcap_accelerator pcap_node pcput pe_mask pgov place pmem preempt_targets procs pstate pvmem qlist resc select "
    "site soft_walltime software ssinodes start_time vmem vnode vntype walltime".split()
)
_FALSE = ("false", "f", "n", "no", "0")


@frozen
class Defaults:
    """What a queue or the server gives, by resource, as PBS prints it: to a job that does not say (`job`), to each chunk
    that does not (`chunk`), and at most (`most`)."""

    job: Mapping[str, str]
    chunk: Mapping[str, str]
    most: Mapping[str, str]


@frozen
class Queue:
    """`routes`: the queues to which a routing queue passes its jobs on; () for one in which they run."""

    defaults: Defaults
    routes: tuple[str, ...] = ()


@frozen
class Host:
    """`gpus`: of all its vnodes. `sharing`: their attribute of that name; `queues`: those that they are kept for, "" for any.

    `strange`: a resource of theirs that is not known here and may be a GPU, or "".
    """

    gpus: int
    sharing: frozenset[str]
    queues: frozenset[str]
    strange: str = ""


@frozen
class Site:
    """`arguments`: what the administrator has qsub add to its command line; `default`: the queue where none is named."""

    defaults: Defaults
    default: str
    arguments: str
    queues: Mapping[str, Queue]
    hosts: Union[tuple[Host, ...], Unknown]


def server_argv() -> list[str]:
    return ["qstat", "-B", "-f"]


def queues_argv() -> list[str]:
    return ["qstat", "-Q", "-f"]


def gpus_in(resources: Mapping[str, str]) -> tuple[int, str]:
    """The GPUs that these resources count, and the first that may be one too, though that is not known here, or "".

    A text that names a kind of GPU (`gpu_model=a100`) is no more than a description where GPUs are counted beside it.
    """
    total = 0
    strange = described = ""
    for name, value in resources.items():
        counted = digits(value)
        if name.lower() in PLAIN or value.lower() in _FALSE or (counted and not int(value)):
            continue
        if gpu_kind(name) and counted:
            total += int(value)
        elif counted or (gpu_kind(name) and value.lower() not in ("true", "t", "y", "yes")):
            strange = strange or name
        elif any(kind in name.lower() for kind in GPU_NAMES):
            described = described or name
    return total, strange or ("" if total else described)


def parse_server(result: Result) -> dict[str, str]:
    """The attributes of the server. Raises CouldNotTell for anything that is not a whole, clean answer of a PBS server."""
    found = _blocks(result, "Server:")
    # What stands in for PBS elsewhere (a wrapper around Slurm) knows no such attribute.
    server = next(iter(found.values()), {})
    if "pbs_version" not in server:
        raise CouldNotTell(_("qstat printed something that cannot be read."))
    return server


def parse_queues(result: Result) -> dict[str, Queue]:
    """The queues by name. Raises CouldNotTell."""
    found = {}
    for name, attributes in _blocks(result, "Queue:").items():
        kind = attributes.get("queue_type", "")
        if not kind.startswith(("E", "R")):
            raise CouldNotTell(_("qstat printed something that cannot be read."))
        routes = attributes.get("route_destinations", "") if kind.startswith("R") else ""
        words = tuple(word for word in routes.replace(",", " ").split())
        # One that passes its jobs on and does not say to which.
        found[name] = Queue(defaults(attributes), words or (("",) if kind.startswith("R") else ()))
    return found


def defaults(attributes: Mapping[str, str]) -> Defaults:
    """Those of a server or a queue."""

    def of(prefix: str) -> dict[str, str]:
        return {name[len(prefix) :]: value for name, value in attributes.items() if name.startswith(prefix)}

    return Defaults(of("resources_default."), of("default_chunk."), of("resources_max."))


def parse_hosts(result: Result) -> tuple[Host, ...]:
    """The hosts in the answer of pbsnodes. Raises CouldNotTell."""
    hosts: dict[str, Host] = {}
    available = "resources_available."
    for vnode in pbs_vnodes.parse_vnodes(result):
        resources = {name[len(available) :]: value for name, value in vnode.items() if name.startswith(available)}
        name = resources.get("host") or vnode.get("Mom") or vnode[""]
        # What is counted on another vnode, `@name`, counts there.
        gpus, strange = gpus_in({key: value for key, value in resources.items() if not value.startswith("@")})
        known = hosts.get(name, Host(0, frozenset(), frozenset()))
        hosts[name] = Host(
            known.gpus + gpus,
            known.sharing | {vnode.get("sharing", "default_shared")},
            known.queues | {vnode.get("queue", "")},
            known.strange or strange,
        )
    return tuple(hosts.values())


def _blocks(result: Result, head: str) -> dict[str, dict[str, str]]:
    """`attribute = value` below each head; a value that is too long for its line goes on behind a tab on the next one."""
    found: dict[str, dict[str, str]] = {}
    current: dict[str, str] | None = None
    name = ""
    for line in pbs_vnodes.whole(result).split("\n"):
        if line.startswith(head):
            current = found.setdefault(line[len(head) :].strip(), {})
            name = ""
        elif line.startswith("\t") and current is not None and name:
            current[name] += line[1:]
        elif line.startswith("    ") and current is not None and " =" in line:
            name, _equals, value = line[4:].partition(" = " if " = " in line else " =")
            current[name] = value
        elif line.strip():
            raise CouldNotTell(_("qstat printed something that cannot be read."))
    return found
