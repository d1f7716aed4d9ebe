"""From what a job asks for to the GPUs that it will hold and for how long, the partition's own settings included. Pure."""

from __future__ import annotations

from fractions import Fraction

from handwash.cost.amounts import Gres
from handwash.frozen import frozen
from handwash.messages import _
from handwash.model import Unknown
from handwash.render import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

    from handwash.cost.request import Request
    from handwash.schedulers.slurm_limits import Group, Limits

    Partitions = Union[tuple[Limits, ...], Unknown]


@frozen
class Part:
    """One component of a job, `copies` times (the tasks of an array). `low`, `high`: GPUs; None where it cannot be told.

    `limit_s`: seconds; None for no limit, and where `limit_known` is False.
    """

    low: Fraction
    high: Fraction | None
    limit_s: int | None
    limit_known: bool = True
    copies: int = 1

    @property
    def gpu_hours(self) -> Fraction | None:
        """The most GPU-hours; None for no limit, and where something is not known."""
        if self.high == 0:
            return Fraction(0)
        if self.high is None or self.limit_s is None:
            return None
        return self.copies * self.high * self.limit_s / 3600


def part(asked: Request, partitions: Partitions) -> tuple[Part, list[str], list[str]]:
    """The component's cost; the reasons; what could not be told."""
    why: list[str] = []
    unknown: list[str] = []
    chosen: tuple[Limits, ...] | None = None
    if isinstance(partitions, Unknown):
        unknown.append(partitions.why)
    else:
        chosen, complaint = _chosen(asked, partitions)
        if complaint:
            unknown.append(complaint)
    low, high = _count(asked, chosen, why, unknown)
    if asked.strange:
        sentence = _("Whether {name} is a kind of GPU is not known here, so there is no upper bound.")
        unknown.append(sentence.format(name=asked.strange))
        high = None
    why[:] = dict.fromkeys(why)
    if high == 0:
        why.append(_("It asks for no GPU: a job on CPUs alone costs no GPU-hours."))
        return Part(low, high, None), why, unknown
    limit_s, known = _limit(asked, chosen, why)
    if not known:
        why.append(_("No --time is given, and the partition's own limit could not be told."))
    return Part(low, high, limit_s, known), why, unknown


def _chosen(asked: Request, partitions: tuple[Limits, ...]) -> tuple[tuple[Limits, ...] | None, str | None]:
    """The partitions in which the job may start."""
    if not asked.partitions:
        default = tuple(one for one in partitions if one.default)
        return (default, None) if default else (None, _("No partition is named, and there is no default one."))
    found = tuple(one for one in partitions if one.name in asked.partitions)
    if len(found) == len(set(asked.partitions)):
        return found, None
    missing = next(name for name in asked.partitions if name not in {one.name for one in found})
    return None, _("There is no partition {name} here, or you may not see it.").format(name=missing)


def _limit(asked: Request, chosen: tuple[Limits, ...] | None, why: list[str]) -> tuple[int | None, bool]:
    """Seconds, None for no limit; and whether that is known."""
    if asked.time_given is not None:
        for one in chosen or ():
            if one.max_s is not None and (asked.time_s is None or asked.time_s > one.max_s):
                sentence = _(
                    "--time={time} is more than partition {name} allows ({limit}): there the job waits or is refused."
                )
                why.append(sentence.format(time=asked.time_given, name=one.name, limit=clock(one.max_s)))
        if asked.time_s is None:
            why.append(_("--time={time} asks for no time limit.").format(time=asked.time_given))
        return asked.time_s, True
    if not chosen:
        return None, False
    times = [one.default_s for one in chosen]
    if None in times:
        name = chosen[times.index(None)].name
        why.append(
            _(
                "No --time is given, and partition {name} sets no limit: it runs until you end it, for a year at most."
            ).format(name=name)
        )
        return None, True
    longest = max(seconds for seconds in times if seconds is not None)
    sentence = _("No --time is given: partition {name} sets {limit}.")
    why.append(sentence.format(name=chosen[times.index(longest)].name, limit=clock(longest)))
    return longest, True


def _count(
    asked: Request, chosen: tuple[Limits, ...] | None, why: list[str], unknown: list[str]
) -> tuple[Fraction, Fraction | None]:
    """The fewest and the most GPUs, in whichever of the partitions; None for the most where that cannot be told."""
    if chosen is not None:
        found = [_in_partition(asked, one, why, unknown) for one in chosen]
        highs = [high for _low, high in found]
        return min(low for low, _high in found), None if None in highs else max(
            high for high in highs if high is not None
        )
    low, most = asked.nodes
    bounds = _asked_for(asked, (low, low if most is None else most), None, why)
    sentence = (
        _("--exclusive takes whole nodes, all their GPUs: how many that is could not be told.")
        if asked.exclusive
        else _(
            "Some partitions give a job whole nodes with every GPU in them. Whether this one does could not be told, so there "
            "is no upper bound."
        )
    )
    why.append(sentence)
    return bounds[0], None


def _in_partition(asked: Request, one: Limits, why: list[str], unknown: list[str]) -> tuple[Fraction, Fraction | None]:
    each = _each_node(asked, one.groups)
    nodes = _nodes(asked, len(each))
    low, high = _asked_for(asked, nodes, one.groups, why)
    if low > sum(each):
        sentence = _("Partition {name} has no nodes with so many GPUs: there the job waits or is refused.")
        why.append(sentence.format(name=one.name))
    whole = asked.exclusive or one.whole_nodes
    strange = next((group.strange for group in one.groups if group.strange), "")
    if whole and strange:
        sentence = _("Nodes of partition {name} have a resource {resource}, which may be a kind of GPU.")
        unknown.append(sentence.format(name=one.name, resource=strange))
        return low, None
    if not whole or not each or not each[-1]:
        return low, high
    fewest, most = Fraction(sum(each[: nodes[0]])), Fraction(sum(each[-nodes[1] :]))
    sentence = (
        _("--exclusive takes whole nodes: all GPUs of each node are held, {gpus}.")
        if asked.exclusive
        else _("Partition {name} gives whole nodes: all GPUs of each node are held, {gpus}.")
    )
    gpus = str(each[-1]) if each[0] == each[-1] else f"{each[0]}-{each[-1]}"
    why.append(sentence.format(name=one.name, gpus=gpus))
    return max(low, fewest), max(high, most)


def _nodes(asked: Request, there: int) -> tuple[int, int]:
    """How many nodes, at the fewest and at the most; no more than there are that will do."""
    low, high = asked.nodes
    most = low if high is None else high
    total = asked.per_job
    if total is not None and total.gpus and asked.nodes == (1, 1) and not asked.names:
        # Each node of the job has one of its GPUs at least; how many nodes that makes is Slurm's choice.
        of_each = max(1, asked.per_node.gpus, asked.per_socket.gpus * asked.sockets)
        most = max(most, -(-total.gpus // of_each))
    return low, max(low, min(most, there)) if there else most


def _each_node(asked: Request, groups: tuple[Group, ...]) -> list[int]:
    """The GPUs of each node on which the job may run, fewest first."""
    each: list[int] = []
    named = set(asked.names)
    for group in groups:
        count = len(named.intersection(group.names)) if named else group.count
        # A job that names nodes and wants more of them gets others too.
        if named and (asked.nodes[1] or asked.nodes[0]) > len(named):
            count = group.count
        if group.gpus >= asked.per_node.gpus and (group.gpus or not asked.any_gpus):
            each += [group.gpus] * count
    return sorted(each)


def _asked_for(
    asked: Request, nodes: tuple[int, int], groups: tuple[Group, ...] | None, why: list[str]
) -> tuple[Fraction, Fraction]:
    bounds = [(Fraction(0), Fraction(0))]
    if asked.per_job is not None and asked.per_job.any():
        bounds.append(_pieces(asked.per_job, groups, why))
        of_each = max(asked.per_node.gpus, asked.per_socket.gpus * asked.sockets)
        if asked.per_job.gpus and of_each:
            # No more nodes than it takes to have them all.
            nodes = (nodes[0], max(nodes[0], min(nodes[1], -(-asked.per_job.gpus // of_each))))
    if asked.per_node.any():
        each_low, each_high = _pieces(asked.per_node, groups, why)
        bounds.append((each_low * nodes[0], each_high * nodes[1]))
        if nodes[0] != nodes[1]:
            why.append(_nodes_sentence(asked, nodes))
    if asked.per_task.any():
        tasks_high = asked.tasks[0] if asked.tasks[1] is None else asked.tasks[1]
        each_low, each_high = _pieces(asked.per_task, groups, why)
        bounds.append((each_low * asked.tasks[0], each_high * tasks_high))
    if asked.per_socket.any():
        each_low, each_high = _pieces(asked.per_socket, groups, why)
        bounds.append((each_low * nodes[0] * asked.sockets, each_high * nodes[1] * asked.sockets))
    return max(low for low, _high in bounds), max(high for _low, high in bounds)


def _nodes_sentence(asked: Request, nodes: tuple[int, int]) -> str:
    if asked.tasks[0] == asked.tasks[1] == asked.nodes[1]:
        sentence = _(
            "{tasks} tasks may be spread over {low} to {high} nodes, with the GPUs asked for on each; -N1 keeps them together."
        )
    else:
        sentence = _("It may get {low} to {high} nodes, with the GPUs asked for on each.")
    return sentence.format(tasks=asked.tasks[0], low=nodes[0], high=nodes[1])


def _pieces(gres: Gres, groups: tuple[Group, ...] | None, why: list[str]) -> tuple[Fraction, Fraction]:
    """A list of resources as GPUs; parts of a GPU count as the fraction that they are where the nodes say into how many
    parts their GPUs are cut, else as a GPU at most."""
    low = high = Fraction(gres.gpus)
    for name, count in (("shard", gres.shards), ("mps", gres.mps)):
        if not count:
            continue
        shares = _shares(name, groups)
        if shares:
            low += count * min(shares)
            high += count * max(shares)
            parts = _range(1 / max(shares), 1 / min(shares))
            sentence = _(
                "gres/{name} is a part of a GPU, others may hold the rest: {count} of {parts} to a GPU, counted as {gpus} GPU. "
                "A site may bill it otherwise."
            )
            gpus = _range(count * min(shares), count * max(shares))
            why.append(sentence.format(name=name, count=count, parts=parts, gpus=gpus))
        else:
            # More than nothing; a share of MPS is one of a single GPU, and each shard lies on one.
            low += Fraction(1, 1000000)
            high += 1 if name == "mps" else count
            sentence = _(
                "gres/{name} is a part of a GPU; how large a part could not be told, so it counts as whole ones."
            )
            why.append(sentence.format(name=name))
    return low, high


def _shares(name: str, groups: tuple[Group, ...] | None) -> list[Fraction]:
    """Which part of a GPU one piece is, on the nodes that have such pieces."""
    found = []
    for group in groups or ():
        pieces = group.shards if name == "shard" else group.mps
        if pieces and group.gpus:
            found.append(Fraction(group.gpus, pieces))
    return found


def _range(low: Fraction, high: Fraction) -> str:
    return number(low) if low == high else f"{number(low)}-{number(high)}"


def number(value: Fraction) -> str:
    """A number of GPUs or GPU-hours for a person: three decimals, rounded up, since all are bounds from above."""
    thousandths = -(-value.numerator * 1000 // value.denominator)
    return f"{thousandths / 1000:.3f}".rstrip("0").rstrip(".")


def clock(seconds: int) -> str:
    """A time limit with its hours, always: `0:05:00`, since `5:00` would be read as hours too."""
    text = duration(seconds)
    return text if text.count(":") == 2 else f"0:{text:0>5}"
