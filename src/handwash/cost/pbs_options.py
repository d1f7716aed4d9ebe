"""qsub's words taken apart: options, script or command; and words that stand on one line. Pure.

From qsub.c (`process_opts`, `make_argv`) and qsub_sup.c of OpenPBS's head of April 2026; 19.1.3 and 23.06.06 have the same
option letters.
"""

from __future__ import annotations

from handwash.cost.amounts import Unreadable
from handwash.frozen import frozen
from handwash.messages import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_WITH_VALUE = "aAcCeJjklmMNopPqrRSuvW"
_ALONE = "fhIVXz"
# isspace(3) in the C locale.
SPACES = " \t\n\v\f\r"


@frozen
class Line:
    """`options`: letter and value, in order. `script`: "-" for standard input. `command`: what follows `--`."""

    options: tuple[tuple[str, str], ...]
    script: str | None = None
    command: tuple[str, ...] = ()


def parse(words: Sequence[str]) -> Line:
    """Takes a command line apart. Raises `Unreadable` where qsub would refuse it."""
    options: list[tuple[str, str]] = []
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if word == "--":
            if place == len(words):
                raise Unreadable(_("No command follows the two dashes."))
            return Line(tuple(options), None, tuple(words[place:]))
        if not word.startswith("-") or word == "-":
            if place < len(words):
                # getopt(3) would read on behind it; qsub then prints its usage.
                raise Unreadable(_("qsub takes nothing behind its script: {word}").format(word=words[place]))
            return Line(tuple(options), word)
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in _ALONE:
                options.append((letter, ""))
            elif letter in _WITH_VALUE and (letters or place < len(words)):
                options.append((letter, letters or words[place]))
                place += not letters
                letters = ""
            else:
                option = word if word.startswith("--") else "-" + letter
                raise Unreadable(_("The option {option} is not known here.").format(option=option))
    return Line(tuple(options))


def split(text: str, complaint: str) -> list[str]:
    """The words of one line, without their quotes and backslashes. Raises `Unreadable` with the complaint."""
    words: list[str] = []
    kept: list[str] = []
    begun = False
    quote = ""
    letters = iter(text)
    for letter in letters:
        if quote:
            if letter == quote:
                quote = ""
            else:
                kept.append(letter)
        elif letter in SPACES:
            if begun:
                words.append("".join(kept))
                kept, begun = [], False
        else:
            begun = True
            if letter in "\"'":
                quote = letter
            else:
                kept.append(next(letters, "") if letter == "\\" else letter)
    if quote:
        raise Unreadable(complaint)
    return [*words, "".join(kept)] if begun else words
