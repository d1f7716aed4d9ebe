"""Where a command is met: its environment, and what those before it have changed for it."""

from __future__ import annotations

import os
import re

from handwash.cost.shellcode import DYNAMIC
from handwash.cost.sources import Sources
from handwash.frozen import frozen, replace
from handwash.model import Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Union

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@frozen
class Place:
    """Where a command is met. `env`: its environment; `inside`: in a job that is judged already, so that only new jobs count.

    `moved`: the working directory is no longer the one here. `code`: it stands in shell code, with others around it.
    `aliases`: those that the code has made. `seen`: a mark for each command that has been judged so far.
    """

    env: Mapping[str, str]
    seen: list[None]
    inside: bool = False
    moved: bool = False
    code: bool = False
    depth: int = 0
    aliases: frozenset[str] = frozenset()


def makes_steps(place: Place) -> bool:
    """Whether srun makes no job here: in one that is judged already, with its number still in the environment."""
    return place.inside and bool(place.env.get("SLURM_JOB_ID"))


def reader(place: Place, sources: Sources) -> Callable[[str], Union[str, Unknown, None]]:
    """What `signs.in_text` reads files by."""

    def read(path: str) -> Union[str, Unknown, None]:
        path = home_of(path, place)
        if DYNAMIC in path or (place.moved and not os.path.isabs(path)):
            return None
        return sources.program(path)

    return read


def home_of(word: str, place: Place) -> str:
    """`~/x` as the shell reads it; `~name/x` is not known here. A word in quotes that begins like this is rare enough."""
    if not word.startswith("~"):
        return word
    first, slash, rest = word.partition("/")
    folder = place.env.get("HOME") if first == "~" else None
    return (folder or DYNAMIC) + slash + rest


def after(words: list[str], place: Place) -> Place:
    """What a command of the shell's own changes for those that follow."""
    env = dict(place.env)
    if words[0] in ("cd", "pushd", "popd"):
        return replace(place, moved=True)
    if words[0] == "alias":
        return replace(place, aliases=place.aliases | {word.partition("=")[0] for word in words[1:]})
    if words[0] == "unset":
        for name in words[1:]:
            env.pop(name, None)
    elif words[0] == "export" or all(ASSIGNMENT.fullmatch(word) for word in words):
        for word in words:
            found = ASSIGNMENT.fullmatch(word)
            if found and (words[0] == "export" or found[1] in env):
                env[found[1]] = found[2]
    return replace(place, env=env)
