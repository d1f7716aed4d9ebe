"""The #PBS lines of a script, as qsub reads them (OpenPBS: qsub_sup.c `get_script`, check_job_script.c). Pure."""

from __future__ import annotations

from handwash.cost.amounts import Unreadable
from handwash.cost.pbs_options import SPACES, parse, split
from handwash.frozen import frozen
from handwash.messages import _

PREFIX = "#PBS"


@frozen
class Directives:
    """`options`: letter and value, in order. `late`: the number of the first line with the prefix that is ignored, since it
    stands behind the first command; 0 where there is none."""

    options: tuple[tuple[str, str], ...]
    late: int = 0


def directives(text: str, prefix: str = PREFIX) -> Directives:
    """Takes a script apart; with an empty prefix nothing in it is read. Raises `Unreadable` where qsub would refuse it."""
    if "\r\n" in text:
        raise Unreadable(_("qsub takes no script with DOS line breaks (CR LF)."))
    options: list[tuple[str, str]] = []
    late = 0
    over = False
    lines = iter(enumerate(text.split("\n"), start=1))
    for number, line in lines:
        stripped = line.strip(SPACES)
        if not prefix or not stripped.startswith(prefix):
            over = over or (bool(stripped) and not line.startswith((":", "#!")) and not stripped.startswith("#"))
            continue
        if over:
            late = late or number
            continue
        # A backslash at the end goes on with the next line.
        while stripped.endswith("\\"):
            _number, more = next(lines, (0, ""))
            stripped = stripped[:-1] + more.rstrip(SPACES)
        open_quote = _("Line {number} of the script: a quote is not closed.").format(number=number)
        found = parse(split(stripped[len(prefix) :], open_quote))
        if found.script is not None or found.command:
            word = found.script if found.script is not None else "--"
            raise Unreadable(_("Line {number} of the script: {word} is no option.").format(number=number, word=word))
        options += found.options
    return Directives(tuple(options), late)


def is_meant(text: str) -> bool:
    """Whether a line of it is meant for qsub."""
    return any(line.strip(SPACES).startswith(PREFIX) for line in text.split("\n"))
