"""From what a PBS job asks for to the GPUs that it will hold and for how long, as the server fills the request in. Pure.

The order is the server's: the queue's resources_default, the server's, the queue's resources_max, the server's; then
default_chunk (svr_jobfunc.c `set_resc_deflt`, vnparse.c `do_schedselect` of the head of April 2026; 19.1.3 and 23.06.06 were
compared in part).
"""

from __future__ import annotations

from fractions import Fraction

from handwash.cost import pbs_amounts
from handwash.cost.amounts import Unreadable
from handwash.cost.count import Part, clock
from handwash.cost.pbs_amounts import Chunk
from handwash.frozen import frozen
from handwash.messages import _
from handwash.model import Unknown
from handwash.schedulers import pbs_limits
from handwash.schedulers.slurm import digits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Union

    from handwash.cost.pbs_request import Asked
    from handwash.schedulers.pbs_limits import Defaults, Host, Site

    Server = Union[Site, Unknown]


@frozen
class _InQueue:
    """The job as one queue would have it. `filled`: its resources by name; `by`: of a default the queue whose it is, "" for the
    server's; `defaults`: those of queue and server; `hosts`: on which it may run, None where that could not be told.
    """

    queue: str
    filled: Mapping[str, str]
    by: Mapping[str, str]
    defaults: tuple[Defaults, ...]
    hosts: tuple[Host, ...] | None


def part(asked: Asked, site: Server) -> tuple[Part, list[str], list[str]]:
    """The job's cost; the reasons; what could not be told. Raises `Unreadable`."""
    why: list[str] = []
    unknown: list[str] = []
    places = _places(asked, site, unknown)
    found = [_gpus(place, why, unknown) for place in places]
    low = min(low for low, _high in found)
    highs = [high for _low, high in found]
    high = None if None in highs else max(high for high in highs if high is not None)
    why[:] = dict.fromkeys(why)
    if high == 0:
        why.append(_("It asks for no GPU: a job on CPUs alone costs no GPU-hours."))
        return Part(low, high, None), why, unknown
    limits = [_limit(place, why) for place in places]
    known = all(known for _seconds, known in limits)
    times = [seconds for seconds, _known in limits]
    if not known:
        why.append(_("No walltime is given, and what the server sets could not be told."))
    longest = None if None in times else max(seconds for seconds in times if seconds is not None)
    return Part(low, high, longest, known), why, unknown


def _places(asked: Asked, site: Server, unknown: list[str]) -> list[_InQueue]:
    """The queues in which it may come to run; one that is not known where that could not be told."""
    names = site if isinstance(site, Unknown) else _queues(asked.queue, site)
    if isinstance(site, Unknown) or isinstance(names, Unknown):
        unknown += [one.why for one in (names,) if isinstance(one, Unknown)]
        return [_InQueue("", asked.resources, {}, (), None)]
    if isinstance(site.hosts, Unknown):
        unknown.append(site.hosts.why)
    return [_in_queue(name, asked, site) for name in names]


def _queues(name: str, site: Site) -> tuple[str, ...] | Unknown:
    """The queues in which the job may come to run: a routing queue passes it on (qsub(1B), -q)."""
    queue, at, server = name.partition("@")
    if at:
        return Unknown(_("It goes to the server {server}, which is not asked here.").format(server=server))
    queue = queue or site.default
    if not queue:
        return Unknown(_("No queue is named, and there is no default one."))
    found: list[str] = []
    waiting, seen = [queue], {queue}
    while waiting:
        queue = waiting.pop()
        known = site.queues.get(queue)
        if known is None:
            sentence = _("There is no queue {name} here, or you may not see it.")
            return Unknown(sentence.format(name=queue))
        if not known.routes:
            found.append(queue)
        waiting += [one for one in known.routes if one not in seen]
        seen.update(known.routes)
    # A routing queue that leads back to itself alone leads nowhere.
    return tuple(found) or Unknown(_("No queue in which it could run is known here."))


def _in_queue(name: str, asked: Asked, site: Site) -> _InQueue:
    queue = site.queues[name]
    filled, by = dict(asked.resources), {}
    for resources, owner, whole in (
        (queue.defaults.job, name, True),
        (site.defaults.job, "", True),
        (queue.defaults.most, name, False),
        (site.defaults.most, "", False),
    ):
        for resource, value in resources.items():
            if resource not in filled and (whole or resource not in ("select", "place")):
                filled[resource], by[resource] = value, owner
    hosts = None
    if not isinstance(site.hosts, Unknown):
        hosts = tuple(host for host in site.hosts if host.queues & {"", name})
    return _InQueue(name, filled, by, (queue.defaults, site.defaults), hosts)


def _gpus(place: _InQueue, why: list[str], unknown: list[str]) -> tuple[Fraction, Fraction | None]:
    """The fewest and the most GPUs; None for the most where that cannot be told."""
    chunks = [_with_defaults(chunk, place.defaults, why) for chunk in _chunks(place)]
    counts = [(count, *pbs_limits.gpus_in(resources)) for count, resources in chunks]
    low = sum(count * gpus for count, gpus, _strange in counts)
    strange = next((strange for _count, _gpus, strange in counts if strange), "")
    # What no chunk has stays with the job as a whole: the server notes it, and it may be billed, though no host gives it.
    named = {name for _count, resources in chunks for name in resources}
    beside = {name: value for name, value in place.filled.items() if name not in named}
    extra = pbs_limits.gpus_in(beside)[0]
    strange = strange or pbs_limits.gpus_in({name: value for name, value in beside.items() if name not in place.by})[1]
    for name, owner in place.by.items():
        # What the chunks say counts before that.
        in_force = name in beside or not {"select", "nodes"} & place.filled.keys()
        if name == "select" or (in_force and pbs_limits.gpus_in({name: place.filled[name]})[0]):
            sentence = (
                _("Queue {name} gives it {resource}, since it does not say.")
                if owner
                else _("The server gives it {resource}, since it does not say.")
            )
            why.append(sentence.format(name=owner, resource=f"{name}={place.filled[name]}"))
    if strange:
        sentence = _("Whether {name} is a kind of GPU is not known here, so there is no upper bound.")
        unknown.append(sentence.format(name=strange))
    if place.hosts is None:
        why.append(
            _(
                "Some hosts are given whole, with every GPU in them. Whether this job gets such ones could not be told, so "
                "there is no upper bound."
            )
        )
    if strange or place.hosts is None:
        return Fraction(low), None
    most = _whole_hosts(place, sum(count for count, _resources in chunks), why, unknown)
    return Fraction(low), None if most is None else Fraction(max(low + extra, most))


def _chunks(place: _InQueue) -> tuple[Chunk, ...]:
    """The job as chunks: those of select, those of nodes, or one with all that it asks for (`set_select_and_place`)."""
    if "select" in place.filled and "nodes" in place.filled:
        raise Unreadable(_("select and nodes do not go together."))
    if "select" in place.filled:
        return pbs_amounts.select(place.filled["select"])
    if "nodes" in place.filled:
        return pbs_amounts.nodes(place.filled["nodes"])
    return (Chunk(1, place.filled),)


def _with_defaults(chunk: Chunk, given: Sequence[Defaults], why: list[str]) -> tuple[int, Mapping[str, str]]:
    """How often, and with which resources."""
    count = chunk.count
    resources = dict(chunk.resources)
    for one in given:
        have = {name.lower() for name in resources}
        for name, value in one.chunk.items():
            if name.lower() == "nchunk":
                if count is None:
                    count = int(value) if digits(value) else 1
            elif name.lower() not in have:
                resources[name] = value
                if pbs_limits.gpus_in({name: value})[0]:
                    why.append(
                        _("Each chunk gets {resource} here, where it does not say.").format(resource=f"{name}={value}")
                    )
    return (1 if count is None else count), resources


def _whole_hosts(place: _InQueue, chunks: int, why: list[str], unknown: list[str]) -> int | None:
    """The most GPUs that whole hosts make, 0 where none is given whole, None where that cannot be told.

    A chunk lies on one host, so no more hosts than chunks; which ones is the scheduler's choice.
    """
    sharing = _sharing(place.filled)
    hosts = place.hosts or ()
    whole = [
        host for host in hosts if any(_is_whole(one, sharing) for one in host.sharing) and (host.gpus or host.strange)
    ]
    if not whole:
        return 0
    strange = next((host.strange for host in whole if host.strange), "")
    if strange:
        sentence = _("Hosts of queue {name} have a resource {resource}, which may be a kind of GPU.")
        unknown.append(sentence.format(name=place.queue, resource=strange))
        return None
    most = sum(sorted((host.gpus for host in hosts), reverse=True)[:chunks])
    sentence = (
        _("place={place} takes whole hosts: all GPUs of each host count.").format(
            place=place.filled.get("place", "excl")
        )
        if sharing in ("excl", "exclhost")
        else _("Hosts of queue {name} are given whole: all GPUs of each host count.").format(name=place.queue)
    )
    why.append(sentence)
    return most


def _sharing(filled: Mapping[str, str]) -> str:
    """`excl`, `exclhost`, `shared`, or "" for none of them; behind a list of nodes `#excl` (`set_select_and_place`)."""
    words = filled.get("place", "").lower().split(":")
    if "excl" in filled.get("nodes", "").lower().split("#")[1:]:
        words.append("excl")
    return next((word for word in ("exclhost", "excl", "shared") if word in words), "")


def _is_whole(attribute: str, sharing: str) -> bool:
    """Whether a vnode with this attribute `sharing` goes to one job alone (pbs_node_attributes(7B))."""
    if attribute == "ignore_excl":
        return False
    if attribute == "default_shared":
        return sharing in ("excl", "exclhost")
    # force_excl, force_exclhost, and whatever is not known here, always; default_excl, default_exclhost where not told else.
    return not (attribute.startswith("default_") and sharing == "shared")


def _limit(place: _InQueue, why: list[str]) -> tuple[int | None, bool]:
    """Seconds, None for no limit; and whether that is known."""
    filled, by = place.filled, place.by
    # A job that may shrink gets a time between two (pbs_resources(7B), "min_walltime").
    shrinks = "min_walltime" in filled
    names = [
        name
        for name in ("walltime", "min_walltime", "max_walltime")
        if name in filled and (shrinks or name == "walltime")
    ]
    if "max_walltime" in names and "walltime" in by:
        names.remove("walltime")
    times = {name: pbs_amounts.seconds(name, filled[name]) for name in names}
    if "walltime" not in times and "max_walltime" not in times:
        if place.hosts is None and not place.defaults:
            return None, False
        why.append(_("No walltime is given, and neither the queue nor the server sets one: it runs until you end it."))
        return None, True
    name = max(times, key=lambda one: times[one])
    longest = times[name]
    if name in by:
        sentence = (
            _("No walltime is given: queue {name} sets {limit}.")
            if by[name]
            else _("No walltime is given: the server sets {limit}.")
        )
        why.append(sentence.format(name=by[name], limit=clock(longest)))
    elif shrinks:
        why.append(_("It may be given less time than {limit}, which is what counts here.").format(limit=clock(longest)))
    for one in place.defaults:
        most = one.most.get("walltime")
        if most is not None and pbs_amounts.seconds("walltime", most) < longest:
            sentence = _("{name}={time} is more than queue {queue} allows ({limit}): there the job is refused.")
            limit = clock(pbs_amounts.seconds("walltime", most))
            why.append(sentence.format(name=name, time=filled[name], queue=place.queue, limit=limit))
            break
    return longest, True
