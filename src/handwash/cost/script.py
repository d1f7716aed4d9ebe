"""The #SBATCH lines of a batch script, read as sbatch reads them (opt.c: `_opt_batch_script`, `get_argument`). Pure."""

from __future__ import annotations

from handwash.cost.amounts import Unreadable
from handwash.frozen import frozen
from handwash.messages import _

# isspace(3) in the C locale.
_SPACES = " \t\n\v\f\r"
# sbatch(1): files of other batch systems are translated, unless --ignore-pbs is given.
_FOREIGN = ("#PBS", "#BSUB")
# Slurm's own cap (sbatch.c).
SIZE_CAP = 4 * 1024 * 1024


@frozen
class Directives:
    """The words of the #SBATCH lines, for each component of the job. `foreign`: another batch system's first line, or "".

    `late`: the number of the first #SBATCH line behind the first command, which is ignored; 0 where there is none.
    """

    components: tuple[tuple[str, ...], ...]
    foreign: str = ""
    late: int = 0


def directives(text: str) -> Directives:
    """Takes a script apart. Raises `Unreadable` where sbatch would refuse the script."""
    if not text.strip():
        raise Unreadable(_("The script is empty."))
    if not text.startswith("#!"):
        raise Unreadable(_("sbatch takes no script whose first line does not begin with #!."))
    if "\0" in text:
        raise Unreadable(_("sbatch takes no script with a NUL character in it."))
    if "\r\n" in text:
        raise Unreadable(_("sbatch takes no script with DOS line breaks (CR LF)."))
    components: list[list[str]] = [[]]
    foreign = ""
    late = 0
    over = False
    for number, line in enumerate(text.split("\n"), start=1):
        magic = next((word for word in ("#SBATCH", "#SLURM") if line.startswith(word)), None)
        if over:
            late = late or (number if magic else 0)
            continue
        if magic is None:
            stripped = line.strip(_SPACES)
            if stripped and not stripped.startswith("#"):
                over = True
                continue
            if line.startswith(_FOREIGN):
                foreign = foreign or line
            continue
        rest = line[len(magic) :].lstrip(_SPACES)
        if _separator(rest):
            components.append([])
        components[-1] += _words(rest, number)
    return Directives(tuple(map(tuple, components)), foreign, late)


def _separator(text: str) -> int:
    """The length of the word that begins the next component of a heterogeneous job, 0 where there is none."""
    for word in ("packjob", "hetjob"):
        if text[: len(word)].lower() == word and (len(text) == len(word) or text[len(word)] in _SPACES):
            return len(word)
    return 0


def _words(text: str, number: int) -> list[str]:
    words: list[str] = []
    while True:
        word, text = _next_word(text, number)
        if word is None:
            return words
        words.append(word)


def _next_word(text: str, number: int) -> tuple[str | None, str]:
    """The next word and what comes after it; None at the end, at a comment, and at a word that is empty in quotes.

    A backslash before a blank keeps it, else the next character stands for itself; quotes keep blanks and `#`.
    """
    text = text.lstrip(_SPACES)
    if _separator(text):
        return None, ""  # what stands behind it on its line is not read
    if text.startswith(":"):
        raise Unreadable(
            _("Line {number} of the script: sbatch does not take a word that begins with a colon.").format(
                number=number
            )
        )
    kept: list[str] = []
    quote = ""
    escaped = False
    place = 0
    while place < len(text) and (quote or text[place] not in _SPACES):
        letter = text[place]
        if escaped:
            escaped = False
        elif letter == "\\":
            place += 1
            if text[place : place + 1] == " ":
                kept.append(" ")
                place += 1
            else:
                escaped = True
            continue
        elif quote:
            if letter == quote:
                quote = ""
                place += 1
                continue
        elif letter in "\"'":
            quote = letter
            place += 1
            continue
        elif letter == "#":
            break
        kept.append(letter)
        place += 1
    if quote:
        raise Unreadable(_("Line {number} of the script: a quote is not closed.").format(number=number))
    return ("".join(kept) if kept else None), text[place:]
