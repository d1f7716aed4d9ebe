"""safe-srun: srun, and everything of the session is gone afterwards."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from handwash.config import Config

# What the wrapper gives when it fails before srun runs.
FAILED = 125
INTERPRETERS = ("python", "bash", "sh", "zsh", "dash", "ksh", "perl", "ruby", "julia", "Rscript", "node")


def takes_code(word: str) -> bool:
    """Whether an interpreter's option is followed by code, or may be: alone or among others (`bash -lc`, `perl -ne`)."""
    if word.startswith("--"):
        return word in ("--command", "--eval", "--print")
    return word.startswith("-") and any(letter in "cemp" for letter in word)


def label(command: Sequence[str]) -> str:
    """Program and script names only: whole command lines can carry secrets."""
    program = os.path.basename(command[0])
    if program.startswith(INTERPRETERS):
        for word in command[1:]:
            if takes_code(word):
                break
            if not word.startswith("-"):
                return f"{program} {os.path.basename(word)}"
    return program


def main(argv: Sequence[str]) -> int:
    """`safe-srun ARGV…`. Ends as srun or the command ends; returns only an exit code of its own."""
    from handwash import world

    world.hold_closed_streams()
    if "LC_CTYPE" in os.environ:
        from handwash.node import coerced

        coerced.undo()
    local = argv[:1] == ["--local"]
    try:
        settings = in_force(local)
        return run_local(list(argv[1:]), settings) if local else run_srun(list(argv), settings)
    except Exception as error:
        from handwash.srun import entry

        entry.fall_back(list(argv), error)
        return FAILED


def in_force(local: bool) -> Config:
    """The settings, and their language and names from here on.

    Switched off by the variable, it reads no file, unless only a file can tell what srun is called here: where none is found
    under the name that the environment gives, nor under the usual ones.
    """
    from handwash import config, messages, slurm_names, world
    from handwash.srun import entry

    if world.disabled():
        slurm_names.choose(world.env.get("HANDWASH_SLURM_NAMES"))
        if local or entry.find_srun():
            return config.Config(disable=True)
    settings = config.load()
    slurm_names.choose(settings.slurm_names)
    if settings.lang:
        messages.choose(settings.lang)
    return settings


def run_local(command: list[str], settings: Config) -> int:
    """The command on this host, supervised unless handwash is disabled."""
    from handwash.messages import _
    from handwash.srun import receipt

    if command[:1] == ["--"]:
        del command[0]
    if not command:
        receipt.say(_("--local needs a command"))
        return FAILED
    if settings.disable:
        from handwash.node.command import Command
        from handwash.srun import entry

        entry.give_back_signals()
        return Command(command, dict(os.environb)).execute()
    from handwash.srun import local

    return local.run(command, label(command), settings)


def run_srun(argv: list[str], settings: Config) -> int:
    """srun, supervised where that is possible."""
    from handwash.messages import _
    from handwash.srun import arguments, entry, launch, receipt

    srun = entry.find_srun()
    above = entry.started_by()
    if above and not srun:
        text = _("{srun} starts safe-srun, and there is no other srun behind it on PATH")
        receipt.say(text.format(srun=above))
        return FAILED
    if not srun:
        receipt.say(_no_srun(settings))
        return FAILED
    if settings.disable or above:
        # Started by the srun that a safe-srun has started: that one watches over it.
        entry.become_srun(srun, argv)
    line = arguments.parse(argv, lambda name: option_argument(srun, name), lambda: release(srun))
    if line.has("async"):
        receipt.say(_("--async lets srun return while its step goes on, so nothing could be confirmed; use plain srun"))
        return FAILED
    way = launch.choose(line)
    if way.warning:
        receipt.say(way.warning)
    if way.plain:
        entry.become_srun(srun, argv)
    first = next(component.command for component in line.components if component.command)
    return launch.supervise(line, way, srun, label(first), settings)


def _no_srun(settings: Config) -> str:
    """What to do where there is none: by itself, or in a job that another scheduler gives."""
    from handwash import schedulers
    from handwash.messages import _

    schedulers.choose(settings.scheduler)
    here = schedulers.here()
    if here.launcher or not here.name:
        return _("srun was not found on this host; `safe-srun --local COMMAND` works without a scheduler")
    sentence = _("{scheduler} has no srun: get a job first ({line}), and type in it: safe-srun --local COMMAND")
    return sentence.format(scheduler=here.name, line=here.shell_line() or "…")


def option_argument(srun: str, name: str) -> str:
    """Asks srun about an option that is not in the table; loads what that needs only then."""
    from handwash.srun import confirm

    return confirm.option_argument(srun, name)


def release(srun: str) -> str | None:
    """Asks srun for its release."""
    from handwash.srun import confirm

    return confirm.release(srun)
