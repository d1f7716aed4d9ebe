"""From the words of a command to the verdict on it. Pure: what has to be looked at is asked of `Sources`, and only then."""

from __future__ import annotations

import os
import re

from handwash import slurm_names
from handwash.cost import here, jobs, qsub, signs
from handwash.cost.amounts import Unreadable
from handwash.cost.pbs_script import is_meant
from handwash.cost.place import ASSIGNMENT, Place, after, home_of, makes_steps, reader
from handwash.cost.programs import (
    CHANGES,
    ELSEWHERE,
    GIT_TEXT,
    HARMLESS,
    INTERPRETER,
    PREFIXES,
    RUNS_WORDS,
    SCONTROL_ASKS,
    SHELLS,
    STARTERS,
    Prefix,
)
from handwash.cost.shellcode import DYNAMIC, Compound, commands
from handwash.cost.sources import Sources
from handwash.cost.verdict import NO, UNKNOWN, YES, Cost, together
from handwash.frozen import replace
from handwash.messages import _
from handwash.model import Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_OTHER_SHELLS = frozenset(("csh", "tcsh", "fish", "pwsh", "xonsh", "nu", "elvish"))
# Code that runs code that runs code: enough of it, and an end where a script runs itself.
_DEEPEST = 8
_MOST_COMMANDS = 2000
# The job that a command is about to be inside of, in the place of its number.
_NEW_JOB = "new"
_SCHEDULERS_VARIABLES = ("SLURM", "SBATCH_", "SALLOC_", "PBS_", "CUDA_VISIBLE_DEVICES")


def weigh(words: Sequence[str], env: Mapping[str, str], sources: Sources) -> Cost:
    """The verdict on a command line, as it would be typed in this shell with this environment.

    A single word with blanks or operators in it is a line in quotes: shell code.
    """
    place = Place(env, [])
    if len(words) == 1 and is_code(words[0]):
        return _code(words[0], place, sources)
    return _weigh(list(words), place, sources)


def is_code(word: str) -> bool:
    """Whether a word is more than the name of a program."""
    return bool(re.search(r"[\s;|&]", word))


def _weigh(words: list[str], place: Place, sources: Sources) -> Cost:
    while words and (found := ASSIGNMENT.fullmatch(words[0])):
        place = replace(place, env={**place.env, found[1]: found[2]})
        del words[0]
    if not words:
        return Cost(NO, (_("There is no command in it."),))
    place.seen.append(None)
    if place.depth > _DEEPEST or len(place.seen) > _MOST_COMMANDS:
        return _cannot_judge(words[0])
    if DYNAMIC in words[0]:
        return Cost(UNKNOWN, unknown=(_("The name of the command is in a variable."),))
    if words[0] in place.aliases:
        sentence = _("{name} is an alias made here, and what it stands for is not read.")
        return Cost(UNKNOWN, unknown=(sentence.format(name=words[0]),), starts=True)
    name = os.path.basename(words[0])
    own = slurm_names.own(name)
    deeper = replace(place, depth=place.depth + 1)
    if name == "safe-srun" and words[1:2] == ["--local"]:
        return _weigh(words[3:] if words[2:3] == ["--"] else words[2:], deeper, sources)
    if own in STARTERS:
        return _starter(STARTERS[own], name, words[1:], deeper, sources)
    if name == "env":
        return _env(words[1:], deeper, sources)
    if name in PREFIXES:
        return _behind(name, PREFIXES[name], words[1:], deeper, sources)
    if name in SHELLS:
        return _shell(name, words[1:], deeper, sources)
    if name == "qsub":
        return _qsub(words[1:], deeper, sources)
    if name in CHANGES:
        return _changes_jobs(name)
    if name == "eval":
        return _code(" ".join(words[1:]), deeper, sources)
    if name in (".", "source") and len(words) > 1:
        return _file(words[1], deeper, sources)
    if own == "scontrol":
        return _scontrol(name, words[1:])
    if name in ELSEWHERE or (name in _OTHER_SHELLS and len(words) > 1):
        sentence = _("What {program} starts, where and how often, is not read here.")
        starts = bool(signs.JOB.search(" ".join((name, *words[1:]))))
        return Cost(UNKNOWN, unknown=(sentence.format(program=name),), starts=starts)
    if own in HARMLESS:
        starter = _starter_in_words(own, words, deeper, sources)
        return _stands_in_words(name, starter) if starter else Cost(NO, (_(HARMLESS[own]).format(program=name),))
    return _program(name, words, deeper, sources)


def _starter_in_words(name: str, words: list[str], place: Place, sources: Sources) -> str:
    """The starter in the words of a program that is harmless by itself, where it may run a command that stands there, or ""."""
    line = " ".join(words[1:])
    if name == "trap" or (name == "git" and words[1:2] != [] and words[1] not in GIT_TEXT):
        return signs.in_text(line, reader(place, sources), inside=makes_steps(place)).word
    if name in RUNS_WORDS or (name == "man" and any(word.startswith("-") for word in words[1:])):
        # What files of theirs hold is text to them.
        found = signs.ANY.search(line)
        return found[1] if found else ""
    return ""


def _stands_in_words(name: str, starter: str) -> Cost:
    sentence = _(
        "{program} may run {starter}, which stands in its words or in a script that it runs; what it makes of it is not "
        "read here."
    )
    return Cost(UNKNOWN, unknown=(sentence.format(program=name, starter=starter),), starts=True)


def _cannot_judge(what: str) -> Cost:
    sentence = _("{what}: this shell code is more than a list of commands, and cannot be judged as a whole.")
    return Cost(UNKNOWN, unknown=(sentence.format(what=what.replace(DYNAMIC, "$…")[:60]),))


def _starter(command: str, name: str, words: list[str], place: Place, sources: Sources) -> Cost:
    """srun, salloc, sbatch; and what the command behind their options makes besides."""
    # Within a job srun makes steps alone.
    makes_jobs = command != "srun" or not place.inside
    try:
        found = jobs.of(command, words, place.env, sources, inside=place.inside, moved=place.moved)
    except Unreadable as reason:
        sentence = _("{program} would refuse it, or reads it in another way: {reason}")
        return Cost(UNKNOWN, unknown=(sentence.format(program=name, reason=reason),), starts=makes_jobs)
    cost = replace(found.cost, starts=makes_jobs and found.cost.verdict == UNKNOWN)
    # The programs of a step are found on its node, with the PATH that it has there.
    inside = replace(place, inside=True, env={**place.env, "SLURM_JOB_ID": _NEW_JOB})
    return _with_inner(cost, found.commands, inside, sources)


def _with_inner(outer: Cost, commands: tuple[tuple[str, ...], ...], inside: Place, sources: Sources) -> Cost:
    """The verdict on a job, with what the commands make that run in it."""
    costs = [outer]
    for inner in commands:
        cost = _weigh(list(inner), inside, sources)
        # A job's own program costs nothing more; only a job that it makes does, or may make.
        if cost.verdict == YES or cost.starts or (cost.verdict == UNKNOWN and outer.verdict == NO):
            costs.append(cost)
    return outer if len(costs) == 1 else together(costs)


def _qsub(words: list[str], place: Place, sources: Sources) -> Cost:
    """qsub, and the command behind its dashes, which runs in the home folder, in no job of Slurm's."""
    try:
        found = qsub.of(words, place.env, sources, moved=place.moved)
    except Unreadable as reason:
        sentence = _("{program} would refuse it, or reads it in another way: {reason}")
        return Cost(UNKNOWN, unknown=(sentence.format(program="qsub", reason=reason),), starts=True)
    cost = replace(found.cost, starts=found.cost.verdict == UNKNOWN)
    env = {name: value for name, value in place.env.items() if not name.startswith("SLURM_JOB")}
    return _with_inner(cost, found.commands, replace(place, inside=True, moved=True, env=env), sources)


def _changes_jobs(name: str) -> Cost:
    sentence = _("{program} changes jobs or queues: a job that it lets start or run on costs what it asked for.")
    return Cost(UNKNOWN, unknown=(sentence.format(program=name),), starts=True)


def _env(words: list[str], place: Place, sources: Sources) -> Cost:
    """env(1): the environment changed, then the command."""
    env = dict(place.env)
    while words:
        word = words.pop(0)
        if word in ("-i", "-", "--ignore-environment"):
            env = {}
        elif word in ("-u", "--unset") and words:
            env.pop(words.pop(0), None)
        elif word.startswith("--unset=") or (word.startswith("-u") and not word.startswith("--")):
            env.pop(word[8:] if word.startswith("--") else word[2:], None)
        elif word in ("-C", "--chdir") and words:
            place = replace(place, moved=True)
            del words[0]
        elif word.startswith("--chdir="):
            place = replace(place, moved=True)
        elif word.startswith(("-S", "--split-string")):
            return _cannot_judge("env " + word)
        elif word == "--":
            break
        elif not word.startswith("-"):
            words.insert(0, word)
            break
    if not words:
        return Cost(NO, (_(HARMLESS["printenv"]).format(program="env"),))
    return _weigh(words, replace(place, env=env), sources)


def _behind(name: str, prefix: Prefix, words: list[str], place: Place, sources: Sources) -> Cost:
    """The command behind a prefix such as nohup or timeout."""
    words = list(words)
    while words and words[0].startswith("-") and words[0] != "-":
        word = words.pop(0)
        if word == "--":
            break
        if name == "command" and set(word[1:]) & {"v", "V"}:
            words = []
        elif name == "sudo" and (word == "--preserve-env" or ("E" in word[1:] and not word.startswith("--"))):
            sources = replace(sources, keeps_environment=True)
        if word.startswith("--"):
            if word[2:] in prefix.long and words:
                del words[0]
        elif word[-1] in prefix.short and not set(word[1:-1]) & set(prefix.short) and words:
            del words[0]
    del words[: prefix.words]
    if name == "sudo" and not sources.keeps_environment:
        kept = {key: value for key, value in place.env.items() if not key.startswith(_SCHEDULERS_VARIABLES)}
        place = replace(place, env=kept)
    if not words:
        return Cost(NO, (_(HARMLESS["printenv"]).format(program=name),))
    if name == "watch":
        cost = _code(" ".join(words), place, sources)
        return cost if cost.verdict != YES else Cost(UNKNOWN, unknown=(_("watch starts it again and again."),))
    return _weigh(words, place, sources)


def _shell(name: str, words: list[str], place: Place, sources: Sources) -> Cost:
    """A shell: its code, its script, or itself."""
    code = False
    words = list(words)
    while words and words[0][:1] in ("-", "+") and len(words[0]) > 1:
        word = words.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            if word in ("--rcfile", "--init-file"):
                return _cannot_judge(f"{name} {word}")
            continue
        code = code or "c" in word
        # `-o pipefail`, `-O extglob`, also bundled.
        if word[-1] in "oO" and words:
            del words[0]
    if code:
        return _code(words[0], place, sources) if words else Cost(NO, (_("There is no command in it."),))
    if words:
        return _file(words[0], place, sources)
    if place.code:
        return _cannot_judge(name)
    sentence = _("A shell by itself uses no GPU; what you type in it may: ask for that.")
    cost = _at_this_place(name, place, sources)
    return cost if cost.verdict == NO else Cost(NO, (sentence,))


def _file(path: str, place: Place, sources: Sources) -> Cost:
    """A file of shell code."""
    if DYNAMIC in path or (place.moved and not os.path.isabs(path)):
        return _cannot_judge(path)
    text = sources.text(path)
    if isinstance(text, Unknown):
        return Cost(UNKNOWN, unknown=(text.why,))
    return _of_script(path, text, _code(text, place, sources, path))


def _of_script(path: str, text: str, cost: Cost) -> Cost:
    """The verdict on a script that is run and not submitted: where it is a batch script, that is said."""
    if re.search(r"^#SBATCH", text, re.MULTILINE):
        sentence = _(
            "Only sbatch reads the #SBATCH lines of {path}: run like this they are comments, and it runs here. What sbatch "
            "would make of it: handwash cost {path}"
        )
        cost = replace(cost, why=(sentence.format(path=path), *cost.why))
    elif is_meant(text):
        sentence = _(
            "Only qsub reads the #PBS lines of {path}: run like this they are comments, and it runs here. What qsub would make "
            "of it: handwash cost -- qsub {path}"
        )
        cost = replace(cost, why=(sentence.format(path=path), *cost.why))
    return cost


def _code(code: str, place: Place, sources: Sources, what: str = "") -> Cost:
    """Shell code: every command of it may run."""
    try:
        lists = commands(code)
    except Compound:
        return _compound(code, place, sources, what or code.strip().splitlines()[0])
    place = replace(place, code=True)
    costs = []
    for words in lists:
        words = [home_of(word, place) for word in words]
        costs.append(_weigh(list(words), place, sources))
        place = after(words, place)
    return together(costs) if costs else Cost(NO, (_("There is no command in it."),))


def _compound(code: str, place: Place, sources: Sources, what: str) -> Cost:
    """Shell code with loops, functions and the like: unknown where anything in it may start a job or runs elsewhere."""
    found = signs.in_text(code, reader(place, sources), inside=makes_steps(place), code=True)
    if found.word:
        sentence = _(
            "{what}: {word} stands in this shell code, which is more than a list of commands, and cannot be judged."
        )
        reason = sentence.format(what=what.replace(DYNAMIC, "$…")[:60], word=found.word.strip("\"'"))
        # A command whose name is in a variable is a weak sign: wrappers along the PATH are full of them.
        return Cost(UNKNOWN, unknown=(reason,), starts="$" not in found.word)
    if found.unread and not place.inside:
        return Cost(UNKNOWN, unknown=tuple(_not_read(path) for path in found.unread[:3]))
    return _at_this_place(what.replace(DYNAMIC, "$…")[:60], place, sources)


def _not_read(path: str) -> str:
    return _("{path}, which it runs, could not be read.").format(path=path)


def _scontrol(name: str, words: list[str]) -> Cost:
    """Asking is free; what changes a job can let it start, or run longer. `name`: what it is called here."""
    verb = next((word for word in words if not word.startswith("-")), "help").replace(DYNAMIC, "$…")
    asks = verb.lower() in SCONTROL_ASKS or any(one.startswith(verb.lower()) for one in ("show", "ping", "version"))
    if asks:
        return Cost(NO, (_(HARMLESS["squeue"]).format(program=name),))
    sentence = _(
        "{program} {verb} changes the scheduler's state: a job that it lets start or run on costs what it asked for."
    )
    return Cost(UNKNOWN, unknown=(sentence.format(program=name, verb=verb),), starts=True)


def _program(name: str, words: list[str], place: Place, sources: Sources) -> Cost:
    """Any other program: it may start jobs by its words, it may be a script that does; else the node decides."""
    # What a script named first makes of it is read in full below.
    line = " ".join((name, *words[1:]) if INTERPRETER.fullmatch(name) else words[1:])
    if name in ("make", "gmake"):
        line += " ./GNUmakefile ./makefile ./Makefile"
    found = signs.in_text(line, reader(place, sources), inside=makes_steps(place))
    if found.word:
        return _stands_in_words(name, found.word)
    cost = _at_this_place(name, place, sources)
    if "/" in words[0]:
        path: str | None = words[0]
    else:
        search = place.env.get("PATH")
        path = sources.find(words[0], None if search is None or DYNAMIC in search else search)
    text = None if path is None or (place.moved and not os.path.isabs(path)) else sources.program(path)
    if isinstance(text, str) and not INTERPRETER.fullmatch(name):
        shell = _interpreter(text)
        if shell in SHELLS and path is not None:
            known = _of_script(path, text, _code(text, place, sources, path))
            # A wrapper along the PATH may be more than can be read here; a sign in it counts all the same.
            if known.verdict != UNKNOWN or known.starts or "/" in words[0]:
                return known
        starter = signs.in_text(text, reader(place, sources), inside=makes_steps(place)).word
        if starter:
            return _stands_in_words(name, starter)
    if cost.verdict != NO or place.inside:
        return cost
    if text is None and path is not None and place.moved and not os.path.isabs(path):
        sentence = _("The folder in which {path} is looked for is not this one.")
        return Cost(UNKNOWN, unknown=(sentence.format(path=path),))
    if text is None:
        return _no_such_program(words[0], sources)
    if isinstance(text, Unknown):
        return Cost(UNKNOWN, unknown=(text.why,))
    if found.unread:
        return Cost(UNKNOWN, unknown=tuple(_not_read(one) for one in found.unread[:3]))
    return cost


def _interpreter(text: str) -> str:
    """The name of the program that runs a script: a shell where its first line names none (execvp(3)); "" for no script."""
    if not text.startswith("#!"):
        return "sh" if text.strip() else ""
    first = text.partition("\n")[0][2:].split()
    if first and os.path.basename(first[0]) == "env":
        first = [word for word in first[1:] if not word.startswith("-") and "=" not in word] or first
    return os.path.basename(first[0]) if first else ""


def _no_such_program(word: str, sources: Sources) -> Cost:
    sentence = _("There is no program {name} here: an alias, a function or a misprint, which cannot be judged.")
    reasons = [sentence.format(name=repr(word))]
    if word and "/" not in word and isinstance(sources.program("./" + word), str):
        also = _("A file of that name is here; as a batch script: handwash cost {name}")
        reasons.append(also.format(name=word))
    return Cost(UNKNOWN, unknown=tuple(reasons))


def _at_this_place(name: str, place: Place, sources: Sources) -> Cost:
    if place.inside:
        return Cost(NO, (_("It runs inside the job, which is billed as a whole."),))
    cost = here.program(name, place.env, sources.here())
    if cost.verdict != NO or name in SHELLS:
        return cost
    sentence = _("That holds unless {program} submits jobs itself, which is not seen here.")
    return replace(cost, why=(*cost.why, sentence.format(program=name)))
