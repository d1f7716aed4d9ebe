"""`srun --bcast=FILE PROGRAM`, taken over: srun copies the first word of the command, and that is safe-srun's own.

The option is taken off srun's line. Our prolog, which srun runs between making the step and launching it, has sbcast copy
the program to the same file on the nodes of this step, and the tasks run it from there. sbcast does what srun does (one
library in both, 20.02 to 26.05), except for a folder as the target: only srun can name a file after each node.
"""

from __future__ import annotations

import os

from handwash import run, world
from handwash.frozen import frozen, replace
from handwash.messages import _
from handwash.node import supervisor
from handwash.srun.arguments import CommandLine
from handwash.srun.changes import VARIABLE, whole_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handwash.srun import keeper, record
    from handwash.srun.pipe import Pipe

# With libraries sent along, the shim and its interpreter would be given those too. sbcast knows no other cluster than the
# nearest one.
NOT_WITH = ("send-libs", "bcast-exclude", "clusters", "cluster", "het-group", "pack-group")
NOT_WITH_VARIABLES = ("SLURM_SEND_LIBS", "SLURM_BCAST_EXCLUDE", "SLURM_CLUSTERS", "SLURM_HET_SIZE", "SLURM_PACK_SIZE")
# Others are srun's to refuse, or turn compression off, which leaves the site's choice in force (22.05).
COMPRESSIONS = ("lz4", "zlib")


@frozen
class Copy:
    """A broadcast. `line`: what is left for srun; `command`: sbcast with its options, without the step."""

    line: CommandLine
    source: str
    target: str
    command: tuple[str, ...]


def is_asked(line: CommandLine) -> bool:
    """Whether srun would copy the command's first word."""
    return line.has("bcast") or VARIABLE in world.env


def plan(line: CommandLine) -> Copy | None:
    """How to do it in srun's place; None where that would not be the same, or where srun will refuse the program."""
    target = line.get("bcast") if line.has("bcast") else world.env.get(VARIABLE)
    if len(line.components) != 1 or line.has(*NOT_WITH) or any(name in world.env for name in NOT_WITH_VARIABLES):
        return None
    # Anything but an absolute path has srun choose the folder, or the file's name too.
    if not target or not target.startswith("/") or target.endswith("/"):
        return None
    # The variable is put back for the command, which is not done where only parts of the environment travel.
    if VARIABLE in world.env and not whole_environment(line):
        return None
    component = line.components[0]
    source = find(component.command[0], folder_of(line))
    sbcast = run.find("sbcast")
    if not source or not sbcast or "\n" in source + target + sbcast:
        return None
    taken = {word for option in component.options if option.name == "bcast" for word in option.words}
    rest = replace(
        component,
        options=tuple(option for option in component.options if option.name != "bcast"),
        words=tuple(word for word in component.words if word not in taken),
        command=(target, *component.command[1:]),
    )
    # srun replaces a file that is there, and keeps the program's times.
    command = (sbcast, "--force", "--preserve", *compression(line))
    return Copy(CommandLine((rest,), line.doubtful), source, target, command)


def compression(line: CommandLine) -> tuple[str, ...]:
    """sbcast's option for what srun was told about compression."""
    given = line.get("compress") if line.has("compress") else world.env.get("SLURM_COMPRESS")
    if given == "":
        return ("--compress",)
    return (f"--compress={given}",) if given in COMPRESSIONS else ()


def folder_of(line: CommandLine) -> str:
    """The command's working directory, as srun is told it."""
    for given in (line.get("chdir"), world.env.get("SLURM_WORKING_DIR"), world.env.get("SLURM_REMOTE_CWD")):
        if given:
            return given if given.startswith("/") else f"{os.getcwd()}/{given}"
    return os.getcwd()


def find(command: str, folder: str) -> str:
    """The program to copy, under the name by which srun speaks of it (20.11 to 26.05); empty where it would find none."""
    if command.startswith(("/", ".")):
        path = command if command.startswith("/") else f"{folder}/{command}"
        return path if is_file(path) and os.access(path, os.X_OK) else ""
    for place in (*world.env.get("PATH", "").split(":"), folder):
        path = f"{folder}/{place}/{command}" if place.startswith(".") else f"{place}/{command}"
        # It is the folder that has to be accessible.
        if place and is_file(path) and os.access(place, os.X_OK):
            return path
    return ""


def is_file(path: str) -> bool:
    """Whether there is something that is no folder."""
    return os.path.exists(path) and not os.path.isdir(path)


class Broadcast:
    """A copy on its way: what the prolog is told about it, and what it answers."""

    def __init__(self, copy: Copy, pipe: Pipe) -> None:
        self.copy = copy
        # The prolog writes into it when it has failed.
        self.answer = pipe.put("bcast", "")
        self.terminal = supervisor.terminal_settings()

    def lines(self) -> list[str]:
        """For the prolog: the variable as it was, behind an equals sign where it is set; the rest."""
        own = world.env.get(VARIABLE)
        return [
            "" if own is None else f"={own}",
            self.answer or "",
            self.copy.source,
            self.copy.target,
            *self.copy.command,
        ]

    def has_failed(self) -> bool:
        """Whether the prolog has ended srun, since the program did not get to every node."""
        try:
            return bool(self.answer) and os.path.getsize(self.answer or "") > 0
        except OSError:
            return False

    def restore_terminal(self) -> None:
        """As it was before srun; signals have to be blocked."""
        if self.terminal is not None:
            from handwash.node import terminal

            terminal.restore(self.terminal)

    def finish(self, plan: keeper.Plan, main: record.Main, link: keeper.Link) -> None:
        """After a failure nothing was launched. A job of srun's own is given back, and the record closed.

        In an allocation the step stays until that ends, as with plain srun: scancel finds no node that knows it (22.05).
        """
        from handwash.schedulers.slurm_step import GONE
        from handwash.srun import confirm, receipt

        report = link.report()
        if report is None:
            main.finish("unconfirmed", [])
            return
        target = plan.target(report)
        done = confirm.confirm(target, urgent=True) if target.own else None
        said = receipt.line(
            _("srun ended before it had started anything"),
            receipt.queue(target, done) if done is not None else "",
            about=_("job {job}").format(job=target.name) if target.own else _("step {step}").format(step=target.name),
        )
        main.set(job="+".join(report.jobs), step=report.step, receipt=said)
        main.finish("clean" if done is not None and done.answer.word == GONE else "unconfirmed", [])
        receipt.say(said)
