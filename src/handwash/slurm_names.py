"""Under which name each of Slurm's programs is to be had: some sites give them names of their own.

On Tianhe systems `srun` is `yhrun`, `squeue` is `yhqueue` and `yhq`, `sinfo` is `yhinfo` and `yhi`, and so on; Slurm's own
names may be missing from PATH. Everything else here speaks of programs by Slurm's own names: `run` starts what they are
called here, `messages` says it.
"""

from __future__ import annotations

from handwash import world

PROGRAMS = (
    *("sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol", "sdiag", "sinfo", "sprio"),
    *("squeue", "sreport", "srun", "sshare", "sstat", "strigger"),
)
# Tianhe's: `yh` in the place of the first letter, and two short ones besides.
_TIANHE: dict[str, tuple[str, ...]] = {program: ("yh" + program[1:],) for program in PROGRAMS}
_TIANHE["sinfo"] += ("yhi",)
_TIANHE["squeue"] += ("yhq",)
# What every cluster has: by these it shows how a program is called that is not here.
_USUAL = ("squeue", "srun", "sinfo")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
# Beside these it is part of another word, of a path, a placeholder or a #SBATCH line.
_BEFORE = _LETTERS | frozenset("_-.{/#")
_AFTER = _LETTERS | frozenset("_-}/")

# Seconds that a sentence waits for the folders of PATH, one of which may be of a server that is gone.
_PATIENCE_S = 0.5

_set: dict[str, str] = {}
_own: dict[str, str] = {}
# By PATH: the names that were looked for there and whether they are there; None where it did not answer.
_seen: dict[str, dict[str, bool] | None] = {}


def parse(text: str) -> dict[str, str] | None:
    """The setting: `yh`, in the place of the first letter of all of them, or `srun=NAME sbatch=NAME`, or both.

    The name of each program that it speaks of; None where it makes no sense.
    """
    words = text.split()
    prefixes = [word for word in words if "=" not in word]
    found = {program: prefixes[0] + program[1:] for program in PROGRAMS} if prefixes else {}
    for word in words:
        program, equals, name = word.partition("=")
        if equals and program in PROGRAMS:
            found[program] = name
        elif equals:
            return None
    good = len(prefixes) <= 1 and all(name and set(name) <= _LETTERS | set("._+-") for name in found.values())
    return found if good and not any(name.startswith("-") for name in found.values()) else None


def choose(setting: str | None) -> None:
    """Puts the names of a setting first, for the rest of this process."""
    global _set, _own
    _set = (parse(setting) or {}) if setting else {}
    _seen.clear()
    _own = {name: program for program in PROGRAMS for name in candidates(program)}
    _own.update((program, program) for program in PROGRAMS)


def candidates(program: str) -> tuple[str, ...]:
    """The names under which a program may be found, in the order in which they are tried: the site's, Slurm's, Tianhe's."""
    chosen = (_set[program],) if program in _set else ()
    return tuple(dict.fromkeys((*chosen, program, *_TIANHE.get(program, ()))))


def find(program: str) -> str | None:
    """The path of a program on PATH, one of Slurm's under whichever of its names; None where it is not there."""
    return next((path for path in map(world.on_path, candidates(program)) if path is not None), None)


def name(program: str) -> str:
    """What one of Slurm's programs is called here, one that is not here as the others would have it; any other as it is.

    Each name is looked for once in this process. Where PATH does not answer it is the one that would be tried first.
    """
    if program not in _TIANHE:
        return program
    for one in candidates(program):
        if _is_there(one):
            return one
    if program not in _set:
        for other in _USUAL:
            if next(filter(_is_there, candidates(other)), other) in _TIANHE[other]:
                return _TIANHE[program][0]
    return candidates(program)[0]


def _is_there(name: str) -> bool:
    path = world.env.get("PATH", "")
    known = _seen.setdefault(path, {})
    if known is None:
        return False
    if name not in known:
        from handwash import patience

        answer: list[bool] = []
        if not patience.bounded(lambda: answer.append(world.on_path(name) is not None), _PATIENCE_S):
            _seen[path] = None
        known[name] = answer == [True]
    return known[name]


def own(name: str) -> str:
    """Slurm's own name for what goes by one of its names; any other name as it is."""
    return _own.get(name, name)


def here(text: str) -> str:
    """Our own words, with each of Slurm's programs by the name that it has here. Never for text that comes from elsewhere."""
    places = []
    for program in PROGRAMS:
        place = text.find(program)
        while place >= 0:
            end = place + len(program)
            if _is_word(text, place, end):
                places.append((place, end, program))
            place = text.find(program, end)
    for place, end, program in sorted(places, reverse=True):
        text = text[:place] + name(program) + text[end:]
    return text


def _is_word(text: str, place: int, end: int) -> bool:
    after = text[end : end + 2]
    is_file = after[:1] == "." and after[1:] in _LETTERS
    return text[place - 1 : place] not in _BEFORE and after[:1] not in _AFTER and not is_file


choose(None)
