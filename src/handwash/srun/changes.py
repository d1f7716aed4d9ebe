"""What is added to srun's environment, and how the command and the person's own prolog get theirs back."""

from __future__ import annotations

import os

from handwash import siteinfo, slurm_names, world
from handwash.node import wire
from handwash.node.wire import KEPT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handwash.srun.arguments import CommandLine
    from handwash.srun.bcast import Broadcast
    from handwash.srun.pipe import Pipe

HERE = os.path.dirname(os.path.abspath(__file__))
PROLOG = os.path.join(HERE, "prolog.sh")
# For both scripts in one variable, a line each: the pipe; then the program to run after ours and the person's own
# variable, behind an equals sign where it is set, for the prolog and for the epilog; then what there is to broadcast.
SCRIPTS = "HANDWASH_SCRIPTS"
# By which --bcast can be asked for, too: srun must not see it where the prolog does the work.
VARIABLE = "SLURM_BCAST"
# The site's own prolog is not known yet: the script has to ask, by the program that is named behind this.
ASK = "?"

# One variable can hold 128 KiB with its name (execve(2), MAX_ARG_STRLEN), in UTF-8.
KEPT_LIMIT = 32000


def in_allocation() -> bool:
    """Whether srun will make a step only. SLURM_JOBID alone says nothing to it since 19.05."""
    return "SLURM_JOB_ID" in world.env


def can_report(pipe: Pipe) -> bool:
    """Whether there will be a prolog of ours."""
    return bool(pipe.path) and os.access(PROLOG, os.X_OK)


def exports(line: CommandLine) -> str:
    """What srun is told to export."""
    return line.get("export") or world.env.get("SLURM_EXPORT_ENV", "ALL")


def whole_environment(line: CommandLine) -> bool:
    """Whether all variables travel to the tasks."""
    return exports(line).upper().split(",")[0] == "ALL"


class Changes:
    """srun's `environment`; `options` to put after the person's; `back`: variables to set (None: take out) for the command."""

    def __init__(self, pipe: Pipe, line: CommandLine, broadcast: Broadcast | None = None) -> None:
        self.environment = dict(world.env)
        self.options: list[str] = []
        exported = [name.partition("=") for name in exports(line).split(",")]
        whole = whole_environment(line)
        # What the shim's shell may set on its way (dash: PWD, IFS; bash: all of them).
        self.back: dict[str, str | None] = {}
        for name in ("PWD", "OLDPWD", "SHLVL", "_", "IFS"):
            self.back[name] = self.environment.get(name) if whole else None
            for given, equals, value in exported:
                if given == name:
                    self.back[name] = value if equals else self.environment.get(name)
        if whole and in_allocation() and line.get("job-name") is None:
            # The option that names the step would change the allocation's name in the command's environment. Each
            # component of a heterogeneous one has a name of its own; the last one used is shown to all (22.05).
            group = (line.get("het-group") or "0").replace(",", "-").rpartition("-")[2]
            for name in ("SLURM_JOB_NAME", f"SLURM_JOB_NAME_HET_GROUP_{group}"):
                if name in self.environment:
                    self.back["SLURM_JOB_NAME"] = self.environment[name]
                    break
        elif whole and len(line.components) > 1 and "SLURM_JOB_NAME" not in self.environment:
            # One name for all components: the last that was given, else the first command's.
            first = line.components[0].command[:1]
            self.back["SLURM_JOB_NAME"] = line.get("job-name") or os.path.basename(first[0] if first else "")
        # dash drops what no shell can have as a name, bash's exported functions (BASH_FUNC_module%%) among it;
        # bash as a script's shell drops prompts.
        dropped = [
            f"{name}={value}"
            for name, value in self.environment.items()
            if name in ("PS1", "PS2") or not (name.isascii() and name.isidentifier())
        ]
        if broadcast is not None and VARIABLE in self.environment:
            dropped.append(f"{VARIABLE}={self.environment.pop(VARIABLE)}")
        kept = wire.join(dropped)
        if whole and dropped and len(kept) < KEPT_LIMIT:
            self.set(KEPT, kept)
        if can_report(pipe):
            self.add_scripts(pipe, line, broadcast)

    def add_scripts(self, pipe: Pipe, line: CommandLine, broadcast: Broadcast | None) -> None:
        """Our prolog reports job and step. An epilog is put before the person's own one, which would see our command."""
        outer = self.environment.get(SCRIPTS, "").split("\n")
        site = siteinfo.remembered() or {"SrunProlog": ASK + slurm_names.name("scontrol"), "SrunEpilog": ""}
        scripts = [pipe.path]
        for number, (role, setting) in enumerate((("prolog", "SrunProlog"), ("epilog", "SrunEpilog"))):
            ours = os.path.join(HERE, f"{role}.sh")
            name = f"SLURM_{role.upper()}"
            own = self.environment.get(name)
            if own == ours:
                # Within a task that is not supervised nothing puts the variables back: chained to itself it would never end.
                own = outer[2 * number + 2][1:] or None if len(outer) >= 5 else None
            given = line.get(role)
            chained = given or own or site[setting]
            scripts += [chained, "" if own is None else f"={own}"]
            if role == "epilog" and not chained:
                continue
            self.set(name, ours)
            if given:
                # The option would win over the variable: ours is given after it.
                self.options.append(f"--{role}={ours}")
            if role == "prolog" and (not chained or chained.startswith(ASK)):
                # srun says in it that a prolog runs, and leaves it so for the tasks (22.05).
                self.back["SLURM_SCRIPT_CONTEXT"] = self.environment.get("SLURM_SCRIPT_CONTEXT")
        self.set(SCRIPTS, "\n".join([*scripts, *(broadcast.lines() if broadcast is not None else ())]))

    def set(self, name: str, value: str) -> None:
        self.back[name] = self.environment.get(name)
        self.environment[name] = value
