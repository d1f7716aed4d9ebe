"""srun, salloc and sbatch: the job that a command line makes, or the step in one that is there. Pure."""

from __future__ import annotations

from handwash import slurm_names
from handwash.cost import count, here, request, script, signs
from handwash.cost.amounts import Unreadable, array
from handwash.cost.options import PLUG_INS, SALLOC, SALLOC_VARIABLES, SBATCH, SBATCH_VARIABLES, SRUN_VARIABLES
from handwash.cost.request import Options
from handwash.cost.shellcode import DYNAMIC
from handwash.cost.verdict import NO, UNKNOWN, YES, Cost, of_parts, together
from handwash.frozen import frozen, replace
from handwash.messages import _
from handwash.model import Unknown
from handwash.srun import arguments
from handwash.srun.options import OPTIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from handwash.cost.sources import Sources
    from handwash.srun.arguments import CommandLine, Option, Table

_TABLES: dict[str, tuple[Table, Sequence[tuple[str, str]]]] = {
    "srun": (OPTIONS, SRUN_VARIABLES),
    "salloc": (SALLOC, SALLOC_VARIABLES),
    "sbatch": (SBATCH, SBATCH_VARIABLES),
}
_TELLS = ("help", "usage", "version")


@frozen
class Found:
    """`commands`: what runs inside the job."""

    cost: Cost
    commands: tuple[tuple[str, ...], ...] = ()


def of(
    command: str, words: Sequence[str], env: Mapping[str, str], sources: Sources, *, inside: bool, moved: bool
) -> Found:
    """The verdict on `command` (srun, salloc, sbatch) with these words. Raises `Unreadable`.

    `inside`: in a job that is judged already. `moved`: in another folder than this one.
    """
    table, _variables = _TABLES[command]
    line = arguments.parse(words, lambda name: PLUG_INS.get(name, "unknown"), table=table)
    if command == "sbatch":
        line = _without_the_scripts_words(line, words)
    components = line.components
    if line.has(*_TELLS) or _lists_resources(line):
        sentence = _("{program} prints its help and makes no job.")
        return Found(Cost(NO, (sentence.format(program=slurm_names.name(command)),)))
    if line.doubtful:
        raise Unreadable(_("The option {option} is not known here.").format(option=line.doubtful))
    if any(DYNAMIC in word for one in components for word in (*one.words, *one.command[:1])):
        raise Unreadable(_("An option is in a variable."))
    if line.has("test-only"):
        return Found(Cost(NO, (_("--test-only asks when it would start, and makes no job."),)))
    commands = _commands(line) if command != "sbatch" else ()
    if command == "srun":
        step = _step(line, env, sources, inside)
        if step is not None:
            return Found(step, commands)
    given = [one.options for one in components]
    if command == "sbatch":
        return Found(_batch(line, given, env, sources, moved))
    back = "exit" if line.has("pty") or (command == "salloc" and not line.has("no-shell")) else "scancel"
    return Found(_new_job(command, [()] * len(given), given, env, sources, [], [], back), commands)


def _commands(line: CommandLine) -> tuple[tuple[str, ...], ...]:
    """What srun or salloc runs: the commands, each line of a file of them (srun(1), --multi-prog), and before and after."""
    commands = [one.command for one in line.components if one.command]
    if line.has("multi-prog"):
        # A line is the tasks' numbers and a command: as code, a program of that name whose words are searched.
        commands = [("sh", *words[:1]) for words in commands]
    around = ("prolog", "epilog", "task-prolog", "task-epilog")
    programs = [option.value for one in line.components for option in one.options if option.name in around]
    return (*commands, *((program,) for program in programs if program))


def _without_the_scripts_words(line: CommandLine, words: Sequence[str]) -> CommandLine:
    """The line up to its script: what stands behind that belongs to the script, a colon and options too (sbatch.c, 22.05)."""
    used = next((place for place, one in enumerate(line.components) if one.command), None)
    if used is None:
        return line
    kept = line.components[: used + 1]
    # As many words as those components have, with the colons between them.
    length = sum(len(one.words) + one.dashes + len(one.command) for one in kept) + used
    doubtful = arguments.parse(words[:length], lambda name: PLUG_INS.get(name, "unknown"), table=SBATCH).doubtful
    return replace(line, components=kept, doubtful=doubtful)


def _lists_resources(line: CommandLine) -> bool:
    return any((line.get(name) or "").lower() in ("help", "list") for name in ("gres", "gpus"))


def _step(line: CommandLine, env: Mapping[str, str], sources: Sources, inside: bool) -> Cost | None:
    """The verdict on a step; None where srun would make a job of its own (srun(1), --jobid and SLURM_JOB_ID)."""
    if line.has("no-allocate"):
        return Cost(NO, (_("--no-allocate makes no job; only the administrator may use it."),))
    # SLURM_JOBID alone makes no step: srun reads it no more since 19.05 (src/srun/libsrun/opt.c).
    job = line.get("jobid") or env.get("SLURM_JOB_ID")
    if not job:
        return None
    if inside:
        return Cost(NO, (_("It runs inside the job, which is billed as a whole."),))
    if DYNAMIC in job:
        raise Unreadable(_("An option is in a variable."))
    queue = sources.jobs()
    step = _("It is a step of job {job} and adds nothing to what that costs.").format(job=job)
    if isinstance(queue, Unknown):
        return Cost(NO, (step, here.rate(job, None)), (queue.why,))
    row = next((one for one in queue if job in (one.number, one.id)), None)
    if row is None:
        sentence = _(
            "Job {job} is not in your queue: srun refuses to start a step of it, and makes no job in its place."
        )
        return Cost(NO, (sentence.format(job=job), _("To ask for a job of its own: unset SLURM_JOB_ID SLURM_JOBID")))
    return Cost(NO, (step, here.rate(job, row)))


def _batch(
    line: CommandLine, given: list[tuple[Option, ...]], env: Mapping[str, str], sources: Sources, moved: bool
) -> Cost:
    name = next((one.command[0] for one in line.components if one.command), None)
    why: list[str] = []
    unknown: list[str] = []
    written: list[tuple[Option, ...]] = [()]
    body = ""
    if line.has("wrap"):
        if name is not None:
            raise Unreadable(_("--wrap and a script do not go together."))
        body = line.get("wrap") or ""
    elif name is None:
        if not line.has("external"):
            return Cost(UNKNOWN, unknown=(_("sbatch reads the script from standard input, which is not read here."),))
    else:
        text: str | Unknown = (
            Unknown(_("The folder in which {path} is looked for is not this one.").format(path=name))
            if moved and not name.startswith("/")
            else sources.script(name, line.get("chdir") or "")
        )
        if isinstance(text, Unknown):
            return Cost(UNKNOWN, unknown=(text.why,))
        body = text
        found = script.directives(text)
        written = [_script_options(words) for words in found.components]
        if found.late:
            sentence = _("Line {number} of {path} stands behind the first command: sbatch ignores it.")
            why.append(sentence.format(number=found.late, path=name))
        elif not any(found.components):
            why.append(_("There is no #SBATCH line in {path}.").format(path=name))
        ignores = line.has("ignore-pbs") or env.get("SBATCH_IGNORE_PBS", "0") != "0"
        if found.foreign and not ignores and not any(one.name == "ignore-pbs" for part in written for one in part):
            sentence = _("sbatch also reads the lines of another scheduler in it, which are not read here: {line}")
            return Cost(UNKNOWN, unknown=(sentence.format(line=found.foreign[:80]),))
    # Where the script has more components than the command line, the last one's options hold for the rest too.
    total = max(len(written), len(given))
    written += [()] * (total - len(written))
    given = given + [given[-1]] * (total - len(given))
    cost = _new_job("sbatch", written, given, env, sources, why, unknown, "scancel")
    return with_the_scripts_own(cost, body, line.get("chdir") or "", sources, moved, steps=True)


def with_the_scripts_own(cost: Cost, text: str, folder: str, sources: Sources, moved: bool, *, steps: bool) -> Cost:
    """The verdict on a batch job, with what its script may make besides. `steps`: srun makes no jobs in it."""

    def read(path: str) -> str | Unknown | None:
        if moved and not path.startswith(("/", "~")):
            return None
        return sources.program(path if path.startswith(("/", "~")) or not folder else f"{folder}/{path}")

    found = signs.in_text(text, read, inside=steps)
    if found.word:
        sentence = _("The script itself submits jobs, by {word}: what they cost is not counted here.")
        return together((cost, Cost(UNKNOWN, unknown=(sentence.format(word=found.word),), starts=True)))
    if not found.unread:
        return cost
    sentence = _("{path}, which the script runs, was not read: jobs that it submits would cost besides.")
    reasons = tuple(sentence.format(path=path) for path in found.unread[:3])
    if cost.verdict == NO:
        return together((cost, Cost(UNKNOWN, unknown=reasons)))
    return replace(cost, why=(*cost.why, *reasons))


def _script_options(words: Sequence[str]) -> tuple[Option, ...]:
    component, end, doubtful = arguments.parse_component(
        words, 0, lambda name: PLUG_INS.get(name, "unknown"), lambda: None, SBATCH
    )
    if doubtful:
        raise Unreadable(_("The option {option} is not known here.").format(option=doubtful))
    if component.command or end < len(words):
        wrong = component.command[0] if component.command else words[end]
        raise Unreadable(_("{word} in an #SBATCH line is no option.").format(word=wrong))
    return component.options


def _new_job(
    command: str,
    written: list[tuple[Option, ...]],
    given: list[tuple[Option, ...]],
    env: Mapping[str, str],
    sources: Sources,
    why: list[str],
    unknown: list[str],
    back: str,
) -> Cost:
    """The verdict on a job of these components: options in the script, then those of the environment, then those given."""
    table, variables = _TABLES[command]
    parts = []
    for first, last in zip(written, given):
        options = Options()
        options.add(first)
        options.add_variables(variables, env, table)
        options.add(last)
        if any(DYNAMIC in value for value in options.values.values()):
            raise Unreadable(_("An option is in a variable."))
        asked = request.request(options, command)
        complaint = request.unclear_cluster(asked)
        part, reasons, missing = count.part(
            asked, Unknown(complaint) if complaint else sources.partitions(asked.cluster)
        )
        indices = options.get("array")
        if command == "sbatch" and indices is not None:
            tasks, at_once = array(indices)
            part = replace(part, copies=tasks)
            reasons.append(array_sentence(tasks, at_once))
        parts.append(part)
        why += reasons
        unknown += missing
    cost = of_parts(tuple(parts), why, unknown, back)
    if cost.verdict == YES:
        cost = replace(cost, why=(*cost.why, *billed()))
    return cost


def billed() -> tuple[str, ...]:
    """What holds for every job with GPUs."""
    return (
        _("GPUs are billed from the job's start to its end, whether they are used or not."),
        _("As long as it waits in the queue it costs nothing."),
    )


def array_sentence(tasks: int, at_once: int | None) -> str:
    if at_once is None or at_once >= tasks:
        return _("The array has {tasks} tasks, each with GPUs and a time limit of its own.").format(tasks=tasks)
    sentence = _(
        "The array has {tasks} tasks, each with GPUs and a time limit of its own; at most {count} run at a time."
    )
    return sentence.format(tasks=tasks, count=at_once)
