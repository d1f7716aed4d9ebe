"""The amounts in an option of qsub: resource lists, chunks, nodes, times, arrays, as OpenPBS reads them. Pure.

From set_resource.c, pbs_quote_parse.c, grunt_parse.c, node_manager.c and attr_fn_time.c of the head of April 2026;
set_resource.c of 19.1.3 and 23.06.06 was compared.
"""

from __future__ import annotations

import re

from handwash.cost.amounts import Unreadable
from handwash.cost.pbs_options import SPACES
from handwash.frozen import frozen
from handwash.messages import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_COUNT = re.compile(r"([0-9]{1,9})[ \t\n\v\f\r]*(?::|$)", re.ASCII)
_TIME = re.compile(r"([0-9]{1,9})((?::[0-9]{1,9}){0,3})(\.[0-9]{0,9})?", re.ASCII)
_ARRAY = re.compile(r"([0-9]{1,7})-([0-9]{1,7})(?::([0-9]{1,7}))?(?:%([0-9]{1,9}))?", re.ASCII)
# Words in a list of nodes that say something of its processors.
_OF_NODES = ("ppn", "cpp", "ncpus")


@frozen
class Chunk:
    """Resources that lie on one host together, `count` times; None where it is not said how often."""

    count: int | None
    resources: Mapping[str, str]


def resource_list(text: str) -> list[tuple[str, str]]:
    """The value of -l: `select=2:ngpus=1,walltime=1:0:0`. A value ends at a comma or a blank outside quotes."""
    bad = Unreadable(_("-l {value} is no list of resources that PBS can read.").format(value=text))
    found: list[tuple[str, str]] = []
    place = 0
    while place < len(text):
        start = place + len(text[place:]) - len(text[place:].lstrip(SPACES))
        place = start
        while place < len(text) and text[place] not in "=,":
            place += 1
        if start == place:
            raise bad
        name = re.split("[ \t\n\v\f\r]", text[start:place])[0]
        value = ""
        if text[place : place + 1] == "=":
            value, place = _value(text, place + 1, bad)
        found.append((name, value))
        if text[place : place + 1] == ",":
            place += 1
            if place == len(text):
                raise bad
    return found


def _value(text: str, place: int, bad: Unreadable) -> tuple[str, int]:
    while place < len(text) and text[place] in SPACES:
        place += 1
    kept: list[str] = []
    quote = inside = ""
    while place < len(text):
        letter = text[place]
        if letter == "&" or not (letter.isprintable() or letter in SPACES):
            raise bad
        if inside:
            if letter == inside:
                inside = ""
            else:
                kept.append(letter)
        elif letter in "\"'" and quote in ("", letter):
            # Within one value the other quote stands for itself.
            quote = inside = letter
        elif letter == "," or letter in SPACES:
            break
        else:
            kept.append(letter)
        place += 1
    if inside:
        raise bad
    return "".join(kept), place


def select(text: str) -> tuple[Chunk, ...]:
    """`2:ncpus=4:ngpus=2+1:ngpus=1`."""
    bad = Unreadable(_("select={value} is no selection that PBS can read.").format(value=text))
    pieces = _outside_quotes(text, "+", bad)
    if len(pieces) > 1 and not pieces[-1]:
        del pieces[-1]
    chunks = tuple(_chunk(piece.lstrip(SPACES), bad) for piece in pieces)
    if sum(1 if chunk.count is None else chunk.count for chunk in chunks) == 0:
        raise bad
    return chunks


def _chunk(text: str, bad: Unreadable) -> Chunk:
    count = None
    if text[:1].isdigit():
        found = _COUNT.match(text)
        if not found:
            raise bad
        count = int(found[1])
        text = text[found.end() :]
    elif not text:
        raise bad
    resources: dict[str, str] = {}
    pairs = _outside_quotes(text, ":", bad)
    if not pairs[-1].strip(SPACES):
        # A colon may stand at the end.
        del pairs[-1]
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip(SPACES)
        value = re.sub(r"^(['\"])(.*?)\1", r"\2", value.strip(SPACES), flags=re.DOTALL)
        if not equals or not name[:1].isalpha() or name in resources or re.search(r"[\s'\"]", name):
            raise bad
        resources[name] = value
    return Chunk(count, resources)


def _outside_quotes(text: str, separator: str, bad: Unreadable) -> list[str]:
    pieces = [""]
    quote = ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == separator:
            pieces.append("")
            continue
        elif letter in "()":
            raise bad
        pieces[-1] += letter
    if quote:
        raise bad
    return pieces


def nodes(text: str) -> tuple[Chunk, ...]:
    """`2:ppn=4:gpus=1+node7#shared`: the older form. That GPUs are counted in it is Torque's; OpenPBS refuses the word."""
    bad = Unreadable(_("nodes={value} is no number of nodes that PBS can read.").format(value=text))
    specification, *everywhere = text.split("#")
    chunks: list[Chunk] = []
    for piece in specification.split("+"):
        words = piece.split(":")
        count = 1
        if words[0].isdigit():
            found = _COUNT.fullmatch(words[0])
            if not found or not int(found[1]):
                raise bad
            count = int(found[1])
            del words[0]
        resources: dict[str, str] = {}
        for word in (*words, *(one for one in everywhere if one.lower() not in ("excl", "shared"))):
            name, equals, value = word.partition("=")
            if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII) or name in resources:
                raise bad
            if name.lower() not in _OF_NODES:
                resources[name] = value if equals else "True"
        chunks.append(Chunk(count, resources))
    return tuple(chunks)


def seconds(name: str, text: str) -> int:
    """A time: `S`, `M:S`, `H:M:S`, a part of a second more; and Torque's `D:H:M:S`."""
    found = _TIME.fullmatch(text)
    total = 0
    if found:
        *days, hours, minutes, last = [0, 0, 0, int(found[1]), *map(int, found[2].split(":")[1:])][-4:]
        total = ((sum(days) * 24 + hours) * 60 + minutes) * 60 + last + (1 if (found[3] or ".").strip(".0") else 0)
    if not total:
        raise Unreadable(_("{name}={value} is no time that PBS can read.").format(name=name, value=text))
    return total


def array(text: str) -> tuple[int, int | None]:
    """How many subjobs a -J has, and how many of them may run at once (None: all): `0-9:2%3`."""
    found = _ARRAY.fullmatch(text)
    first, last, step = (int(found[1]), int(found[2]), int(found[3] or 1)) if found else (0, 0, 0)
    if not found or last < first or not step:
        raise Unreadable(_("-J {value} is no array that PBS can read.").format(value=text))
    return len(range(first, last + 1, step)), (int(found[4]) or None) if found[4] else None
