"""What a PBS job asks for: the options of the command line, of the script, and of the server, the first ones winning. Pure."""

from __future__ import annotations

import re

from handwash.cost import pbs_amounts
from handwash.cost.amounts import Unreadable
from handwash.frozen import frozen
from handwash.messages import _
from handwash.schedulers.slurm import digits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What -W may set without a change to what the job costs (qsub(1B)); all else is not guessed at.
_HARMLESS = frozenset(
    "block create_resv_from_job depend group_list interactive max_run_subjobs pwd release_nodes_on_stageout run_count "
    "sandbox stagein stageout tolerate_node_failures umask".split()
)


@frozen
class Asked:
    """`resources`: those of -l, by name, as they stand. `queue`: "" for none named. `array`: subjobs, and how many at once."""

    resources: Mapping[str, str]
    queue: str = ""
    array: tuple[int, int | None] | None = None
    interactive: bool = False
    held: bool = False


def request(passes: Sequence[Sequence[tuple[str, str]]]) -> Asked:
    """Reads options, those that win first (qsub.c `process_opts`). Raises `Unreadable` where qsub would refuse them."""
    resources: dict[str, str] = {}
    last: dict[str, str] = {}
    for options in passes:
        of_this: dict[str, str] = {}
        for letter, value in options:
            if letter == "l":
                _add(value, of_this)
            elif letter == "W":
                for name, text in _attributes(value):
                    last.setdefault(name, text)
        for name, value in of_this.items():
            resources.setdefault(name, value)
        # Of one kind the last one holds.
        for letter, value in reversed(options):
            last.setdefault(letter, value)
    if "select" in resources and "nodes" in resources:
        raise Unreadable(_("select and nodes do not go together."))
    interactive = "I" in last or last.get("interactive", "").lower() == "true"
    array = pbs_amounts.array(last["J"]) if "J" in last else None
    if array and interactive:
        raise Unreadable(_("An interactive job is no array."))
    at_once = last.get("max_run_subjobs", "")
    if array and digits(at_once):
        array = (array[0], int(at_once))
    return Asked(resources, last.get("q", ""), array, interactive, "h" in last)


def _add(text: str, to: dict[str, str]) -> None:
    for name, value in pbs_amounts.resource_list(text):
        # `ncpus=4:ngpus=1` is a chunk without its `select=`: PBS takes it for no number.
        if name not in ("select", "nodes", "place") and re.search(r":\w+=", value):
            raise Unreadable(_("-l {value} is no list of resources that PBS can read.").format(value=text))
        if to.get(name, value) != value:
            sentence = _("{name} is given twice, {one} and {other}: which of them counts is not known here.")
            raise Unreadable(sentence.format(name=name, one=to[name], other=value))
        to[name] = value


def _attributes(text: str) -> list[tuple[str, str]]:
    """`name=value,name=value`, where a comma before the next name ends a value (parse_equal.c)."""
    first, *rest = text.split("=")
    names, values = [first], []
    for piece in rest[:-1]:
        value, comma, name = piece.rpartition(",")
        if not comma:
            raise Unreadable(_("-W {value} cannot be read here.").format(value=text))
        values.append(value)
        names.append(name)
    values += rest[-1:]
    for name in names:
        if name.strip() not in _HARMLESS:
            raise Unreadable(_("-W {value} cannot be read here.").format(value=text))
    return [(name.strip(), value.strip().strip("'\"")) for name, value in zip(names, values)]
