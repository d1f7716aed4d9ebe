"""`handwash cost`: does a command cost GPU-hours, and at most how many. It starts nothing of the person's."""

from __future__ import annotations

import os
import sys

from handwash import answers, render, run, schedulers, survey, world
from handwash.config import Config
from handwash.cost import count, pbs_script, verdict, weigh
from handwash.cost.script import SIZE_CAP
from handwash.cost.sources import Here, Sources
from handwash.cost.verdict import Cost
from handwash.exits import Exit
from handwash.messages import _, ngettext
from handwash.model import Unknown
from handwash.render import harmless
from handwash.survey import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction
    from typing import Any, Union

    from handwash.cost.count import Part, Partitions
    from handwash.cost.pbs_count import Server
    from handwash.model import Job, Survey

    Jobs = Union[tuple[Job, ...], Unknown]

_CODES = {
    verdict.NO: Exit.CLEAN,
    verdict.IF_USED: Exit.FOUND,
    verdict.YES: Exit.FOUND,
    verdict.UNKNOWN: Exit.UNKNOWN,
}
_TEXT_CAP = 256 * 1024
# As much of a file shows whether it is text.
_HEAD = 4096
_LEAST_S = 0.05


def command(settings: Config, words: list[str]) -> int:
    """`cost [--json] -- COMMAND…`, `cost [--json] SCRIPT`: 0 costs nothing · 1 costs · 2 wrong usage · 3 could not tell."""
    words = list(words)
    as_json = False
    while words and words[0] == "--json":
        as_json = True
        del words[0]
    if words[:1] == ["--"]:
        del words[0]
    elif words and words[0].startswith("-"):
        render.warn(
            _("handwash: cost does not know the option {option}. Try: handwash cost --help").format(
                option=repr(words[0])
            )
        )
        return Exit.USAGE
    elif words and os.path.isfile(words[0]) and ("/" in words[0] or world.on_path(words[0]) is None):
        # A batch script, with its arguments.
        as_json = as_json or "--json" in words[1:]
        path = os.path.abspath(words[0])
        words = ["qsub", path] if _is_for_qsub(path, settings.deadline) else ["sbatch", "--", path]
    elif len(words) == 1 and ("/" in words[0] or "." in words[0][1:]) and not weigh.is_code(words[0]):
        there = os.path.exists(words[0])
        sentence = _("handwash: {path} is no regular file.") if there else _("handwash: there is no file {path}.")
        render.warn(sentence.format(path=repr(words[0])))
        return Exit.USAGE
    if not words:
        render.warn(_("handwash: cost needs a command or a script: handwash cost -- COMMAND…"))
        return Exit.USAGE
    return cost(settings, words, as_json)


def _is_for_qsub(path: str, deadline: float) -> bool:
    """Whether qsub and not sbatch is the one to submit this script with, here: by its lines, then by what there is."""
    has_sbatch, has_qsub = run.find("sbatch") is not None, run.find("qsub") is not None
    text = run.looks({"file": lambda: _text(path, _TEXT_CAP)}, deadline)["file"]
    for_qsub = isinstance(text, str) and pbs_script.is_meant(text) and "\n#SBATCH" not in text
    return (for_qsub and (has_qsub or not has_sbatch)) or (has_qsub and not has_sbatch)


def cost(settings: Config, words: list[str], as_json: bool) -> int:
    """The verdict on a command line."""
    found = weigh.weigh(words, world.env, _sources(settings.deadline))
    if as_json:
        answers.show(_json(found))
    else:
        _tell(found)
    return _CODES[found.verdict]


def _json(found: Cost) -> dict[str, Any]:
    return {
        "verdict": found.verdict,
        "gpus": _number(found.gpus),
        "limit_s": found.limit_s,
        "max_gpu_hours": _number(found.max_gpu_hours),
        "why": list(found.why),
        "unknown": list(found.unknown),
    }


def _number(value: Union[Fraction, None]) -> Union[int, float, None]:
    if value is None:
        return None
    return int(value) if value.denominator == 1 else float(value)


def _tell(found: Cost) -> None:
    colour = {verdict.NO: "green", verdict.YES: "red"}.get(found.verdict, "yellow")
    render.say(render.style(sentence(found), colour, sys.stdout))
    for why in found.why:
        render.say("  " + harmless(why, 600))
    for why in found.unknown:
        render.say("  " + _("could not tell: {why}").format(why=harmless(why, 600)))
    if found.verdict == verdict.YES and found.back == "exit":
        render.say(_("To give it back before that: exit"))
    elif found.verdict == verdict.YES and found.back == "qdel":
        render.say(_("To give it back before that: qdel JOB, with the number that `qstat -u $USER` shows"))
    elif found.verdict == verdict.YES and found.back:
        render.say(_("To give it back before that: scancel JOB, with the number that `squeue --me` shows"))


def sentence(found: Cost) -> str:
    """The verdict in one line."""
    if found.verdict == verdict.NO:
        return _("no: it costs no GPU-hours")
    if found.verdict == verdict.IF_USED:
        return _("if used here: it occupies a GPU only if it initialises CUDA on this node")
    if found.verdict == verdict.UNKNOWN:
        return _("could not tell whether it costs GPU-hours")
    what = " + ".join(_what(part) for part in found.costing)
    hours = found.max_gpu_hours
    if hours is not None:
        most = ngettext(
            "yes: at most {hours} GPU-hour ({what})", "yes: at most {hours} GPU-hours ({what})", 1 if hours == 1 else 2
        )
        return most.format(hours=count.number(hours), what=what)
    if any(part.high is None or not part.limit_known for part in found.costing):
        return _("yes: it costs GPU-hours, how many could not be told ({what})").format(what=what)
    return _("yes: GPU-hours without a limit, for as long as it runs ({what})").format(what=what)


def _what(part: Part) -> str:
    """`10 × 2 GPUs × 8:00:00`."""
    if part.high is None and part.low >= 1:
        many = ngettext("at least {count} GPU", "at least {count} GPUs", 1 if part.low == 1 else 2)
        gpus = many.format(count=count.number(part.low))
    elif part.high is None:
        gpus = _("GPUs unknown")
    else:
        many = ngettext("{count} GPU", "{count} GPUs", 1 if part.high == 1 else 2)
        gpus = many.format(count=count.number(part.high))
    if part.limit_s is not None:
        gpus += f" × {count.clock(part.limit_s)}"
    return f"{part.copies} × {gpus}" if part.copies != 1 else gpus


def _sources(deadline: float) -> Sources:
    """What a verdict may ask of this node and of its scheduler: each once, and all of them under one deadline (seconds)."""
    ends_at = world.monotonic() + deadline
    asked: dict[str, Partitions] = {}
    servers: list[Server] = []
    queue: list[Jobs] = []
    seen: list[Survey] = []
    files: dict[tuple[str, str], Any] = {}

    def left() -> float:
        # Something always, for what needs no time at all.
        return max(_LEAST_S, round(ends_at - world.monotonic(), 1))

    def partitions(cluster: str) -> Partitions:
        if cluster not in asked:
            asked[cluster] = _partitions(cluster, left())
        return asked[cluster]

    def pbs() -> Server:
        if not servers:
            servers.append(_pbs(left))
        return servers[0]

    def jobs() -> Jobs:
        if not queue:
            queue.append(_jobs(left()))
        return queue[0]

    def here() -> Here:
        if not seen:
            # The queue tells of the job that this shell is in: where there is none, it is not asked.
            try:
                inside = schedulers.here().membership(procfs.groups("self"), world.env)[0] is not None
            except run.CouldNotTell:
                inside = True
            seen.append(survey.take(left(), only=("node", "gpus", *(("jobs",) if inside else ()))))
        return Here(seen[0].node, seen[0].gpus, seen[0].jobs, seen[0].gpus_in_part)

    def file(kind: str, path: str, read: Callable[[], str | None]) -> Any:
        # A file server that hangs must not hold the answer up.
        if (kind, path) not in files:
            files[kind, path] = run.looks({"file": read}, left())["file"]
        return files[kind, path]

    return Sources(
        partitions,
        pbs,
        jobs,
        here,
        lambda path: file("text", path, lambda: _text(path, _TEXT_CAP)),
        lambda word, folder: file("script " + folder, word, lambda: _script(word, folder)),
        lambda path: file("program", path, lambda: _program(path)),
        world.on_path,
    )


def _jobs(deadline: float) -> Jobs:
    from handwash.schedulers import slurm

    try:
        return slurm.parse_squeue(run.run(slurm.squeue_argv(world.uid()), deadline))
    except run.CouldNotTell as reason:
        return Unknown(str(reason))
    except OSError as error:
        return Unknown(_("squeue could not be asked: {said}.").format(said=error.strerror))


def _partitions(cluster: str, deadline: float) -> Partitions:
    from handwash.schedulers import slurm_limits

    argv = slurm_limits.limits_argv(cluster)
    if run.find(argv[0]) is None:
        return Unknown(_("sinfo is not on the PATH, so the partition could not be asked."))
    try:
        return slurm_limits.parse_limits(run.run(argv, deadline))
    except run.CouldNotTell as reason:
        return Unknown(str(reason))
    except OSError as error:
        return Unknown(_("The partitions could not be told: {said}").format(said=error.strerror))


def _pbs(left: Callable[[], float]) -> Server:
    from handwash.schedulers import pbs_limits, pbs_vnodes

    if run.find("qstat") is None:
        return Unknown(_("qstat is not on the PATH, so the PBS server could not be asked."))
    hosts: Union[tuple[pbs_limits.Host, ...], Unknown]
    try:
        server = pbs_limits.parse_server(run.run(pbs_limits.server_argv(), left()))
        queues = pbs_limits.parse_queues(run.run(pbs_limits.queues_argv(), left()))
    except (run.CouldNotTell, OSError) as reason:
        return Unknown(_said(reason))
    try:
        hosts = pbs_limits.parse_hosts(run.run(pbs_vnodes.vnodes_argv(), left()))
    except (run.CouldNotTell, OSError) as reason:
        hosts = Unknown(_said(reason))
    return pbs_limits.Site(
        pbs_limits.defaults(server),
        server.get("default_queue", ""),
        server.get("default_qsub_arguments", ""),
        queues,
        hosts,
    )


def _said(reason: Exception) -> str:
    if isinstance(reason, OSError):
        return _("The PBS server could not be asked: {said}").format(said=reason.strerror)
    return str(reason)


def _script(word: str, folder: str) -> str:
    """A batch script as sbatch finds it: in the folder of --chdir, along the PATH, in this folder (opt.c, 22.05)."""
    for place in () if word.startswith(".") else (folder or ".", *world.env.get("PATH", "").split(":")):
        path = os.path.join(place, word)
        if os.path.exists(path):
            return _text(path, SIZE_CAP)
    return _text(word, SIZE_CAP)


def _text(path: str, cap: int) -> str:
    """The text of a file, which may hold any bytes; nothing but a regular file is opened. Raises CouldNotTell."""
    content = _beginning(path, cap + 1)
    if content is None:
        raise run.CouldNotTell(_("There is no file {path}.").format(path=path))
    if len(content) > cap:
        raise run.CouldNotTell(_("{path} is too large to be read here.").format(path=path))
    return content.decode("utf-8", "surrogateescape")


def _program(path: str) -> str | None:
    """The beginning of a program's text: "" where it is compiled, None where there is none. Raises CouldNotTell."""
    if path.startswith("~/"):
        path = world.env.get("HOME", "~") + path[1:]
    try:
        content = _beginning(path, _TEXT_CAP)
    except run.CouldNotTell:
        # A script that may not be read cannot be run either; a compiled program can.
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return ""
        raise
    if content is None:
        return None
    return "" if b"\0" in content[:_HEAD] else content.decode("utf-8", "surrogateescape")


def _beginning(path: str, length: int) -> bytes | None:
    """At most so many bytes of a regular file; None where there is none. Raises CouldNotTell."""
    try:
        if not os.path.exists(path):
            return None
        if not os.path.isfile(path):
            raise run.CouldNotTell(_("{path} is no regular file.").format(path=path))
        with open(path, "rb") as file:
            return file.read(length)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise run.CouldNotTell(_("{path} cannot be read: {error}.").format(path=path, error=said)) from error
