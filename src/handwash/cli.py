"""The commands: words in, exit code out. Imports nothing heavy; each command is imported when it is asked for."""

from __future__ import annotations

import os
import sys

from handwash import config, render, schedulers, slurm_names, world
from handwash.exits import Exit
from handwash.messages import N_, _, choose

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence


# The words of each command, for --help, in the order in which a person meets them.
COMMANDS: dict[str, str] = {
    "status": N_(
        "where am I, what do I hold and what does it cost, who is on the GPUs, are they idle, what is left over"
    ),
    "where": N_("what kind of node this is, with the evidence"),
    "check": N_("the triple check: queue, GPUs, processes"),
    "clean": N_("end what is left over, and show what came back"),
    "doctor": N_("why no GPU is visible, what is wrong with the set-up, and what to type next"),
    "cost": N_("does a command or a batch script cost GPU-hours, and at most how many"),
    "sessions": N_("what safe-srun recorded, and how each session ended"),
    "usage": N_("GPU-hours of running and recent jobs, from the scheduler's own records"),
    "init": N_("print the hook of a shell"),
    "install": N_("put the hook into the shell's start-up file"),
    "uninstall": N_("take the hook out of the shell's start-up file"),
    "banner": N_("the banner at login (for the hooks)"),
    "leave": N_("the check at exit (for the hooks)"),
}
_WITH_JSON = ("status", "where", "check", "clean", "doctor", "sessions", "usage")
# Never shown in --help: the wrapper calls it.
_WRAPPER = "safe-srun"
# Nor this: a session's guardian starts it.
_NODE_LOOK = "idle-look"


def entry() -> int:
    """The `handwash` console script. PYTHONPATH and PYTHONHOME of the person's own work must not reach handwash."""
    if not sys.flags.isolated and ("PYTHONPATH" in os.environ or "PYTHONHOME" in os.environ):
        main_file = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
        try:
            os.execv(sys.executable, [sys.executable, "-I", "-S", main_file, *sys.argv[1:]])
        except OSError:
            pass  # then in this process, as it is
    return main(sys.argv[1:])


def main(argv: Sequence[str]) -> int:
    """Runs one command and answers its exit code. No traceback reaches the person."""
    render.prepare(sys.stdout)
    render.prepare(sys.stderr)
    try:
        if argv and argv[0] == _WRAPPER:
            from handwash import srun

            return srun.main(list(argv[1:]))
        return _main(list(argv))
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except Exception as error:
        return _fault(error)
    finally:
        render.settle()


def _main(argv: list[str]) -> int:
    render.open_closed_streams()
    settings = config.load()
    slurm_names.choose(settings.slurm_names)
    if settings.lang:
        choose(settings.lang)
    schedulers.choose(settings.scheduler)
    command = argv[0] if argv and not argv[0].startswith("-") else "status"
    words = argv[1:] if argv and argv[0] == command else argv
    if command == _NODE_LOOK and len(words) == 2:
        from handwash.commands import idle_look

        return idle_look.look(settings, words)
    if argv[:2] == ["--json", "cost"]:
        command, words = "cost", ["--json", *argv[2:]]
    if command not in COMMANDS:
        render.warn(_("handwash: there is no command {name}. Try: handwash --help").format(name=repr(command)))
        return Exit.USAGE
    if command not in ("banner", "leave"):
        for complaint in settings.complaints:
            render.warn("handwash: " + render.harmless(complaint, 500))
    as_json = words == ["--json"]
    if command in ("status", "where", "check") and (as_json or (not words and argv)):
        # The everyday calls skip argparse: its import costs more than a bare interpreter start.
        from handwash.commands import looks

        return getattr(looks, command)(settings, as_json)  # type: ignore[no-any-return]
    if command == "leave" and len(words) in (1, 2) and words[0] in ("exit", "logout", "eof", "hup"):
        from handwash.commands import leave

        return leave.leave(settings, words[0], again="--again" in words[1:])
    if command == "banner" and not words:
        from handwash.commands import banner

        return banner.banner(settings)
    if command == "cost" and not {"-h", "--help"} & set(words[:1]):
        # Its words belong to another command: argparse would look for options among them.
        from handwash.commands import cost

        return cost.command(settings, words)
    return _dispatch(settings, command, argv)


def _dispatch(settings: config.Config, command: str, argv: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(argv)
    command = options.command or command  # `handwash --json check`
    if command in ("status", "where", "check"):
        from handwash.commands import looks

        return getattr(looks, command)(settings, options.json)  # type: ignore[no-any-return]
    if command == "clean":
        if options.all_nodes and options.pids:
            parser.error(_("a PID names a process of this node: it does not go with --all-nodes"))
        from handwash.commands import clean

        asked = clean.Options(
            pids=tuple(options.pids),
            yes=options.yes,
            dry_run=options.dry_run,
            session=options.session,
            as_json=options.json,
            all_nodes=options.all_nodes,
            steps=options.steps,
            exactly=None if options.exactly is None else tuple(options.exactly),
        )
        return clean.clean(settings, asked)
    if command == "doctor":
        from handwash.commands import doctor

        return doctor.doctor(settings, options.json)
    if command == "sessions":
        from handwash.commands import sessions

        return sessions.sessions(settings, options.json)
    if command == "usage":
        from handwash.commands import usage

        return usage.usage(settings, options.json, options.since)
    if command in ("init", "install", "uninstall"):
        return _shell_command(command, options)
    if command == "leave":
        from handwash.commands import leave

        return leave.leave(settings, options.how, again=options.again)
    from handwash.commands import banner

    return banner.banner(settings)


def _shell_command(command: str, options: argparse.Namespace) -> int:
    world.add_site_packages()
    if command == "init":
        from handwash.shell import hooks

        return hooks.init(shell=options.shell, out=render.say)
    from handwash.shell import install

    act: Callable[..., int] = install.install if command == "install" else install.uninstall
    return act(shell=options.shell, system=options.system, dry_run=options.dry_run, out=render.say)


def _parser() -> argparse.ArgumentParser:
    import argparse

    from handwash import __version__

    top = argparse.ArgumentParser(
        prog="handwash",
        description=_("Wash your hands before you leave a GPU cluster."),
        epilog=_(
            "Exit codes: 0 clean, 1 something was found, 2 wrong usage, 3 could not tell, 70 a fault in handwash."
        ),
    )
    top.add_argument("--version", action="version", version=f"handwash {__version__}")
    top.add_argument("--json", action="store_true", help=_("print one JSON object"))
    commands = top.add_subparsers(dest="command", metavar=_("COMMAND"))
    parsers = {name: commands.add_parser(name, help=_(text), description=_(text)) for name, text in COMMANDS.items()}
    for name in _WITH_JSON:
        # SUPPRESS: a --json before the command would else be overwritten by the command's own default.
        parsers[name].add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help=_("print one JSON object")
        )
    clean = parsers["clean"]
    clean.add_argument("--yes", action="store_true", help=_("do not ask"))
    clean.add_argument("--dry-run", action="store_true", help=_("show what would be ended, end nothing"))
    clean.add_argument("--session", metavar="ID", help=_("end what a safe-srun session left"))
    clean.add_argument("--all-nodes", action="store_true", help=_("on the other nodes of this job too"))
    # Said by another node's handwash only.
    clean.add_argument("--steps", type=_words, help=argparse.SUPPRESS)
    clean.add_argument("--exactly", type=_identities, action="extend", help=argparse.SUPPRESS)
    clean.add_argument("pids", metavar="PID", nargs="*", type=_pid, help=_("end these processes instead"))
    parsers["usage"].add_argument(
        "--since",
        metavar=_("WHEN"),
        type=_since,
        help=_("count from then on: a day or a time, or how long ago, such as 7d; else from the first of this month"),
    )
    cost = parsers["cost"]
    cost.usage = "handwash cost [--json] -- COMMAND... | handwash cost [--json] SCRIPT"
    cost.add_argument("--json", action="store_true", help=_("print one JSON object"))
    cost.add_argument(
        "words",
        metavar="COMMAND",
        nargs="*",
        help=_("a command line, or a batch script as sbatch or qsub would read it; it is read, never run"),
    )
    parsers["init"].add_argument("shell", metavar="SHELL", help=_("the shell, for example bash"))
    for name in ("install", "uninstall"):
        parsers[name].add_argument("--shell", metavar="SHELL", help=_("the shell; else the one you are in"))
        parsers[name].add_argument("--dry-run", action="store_true", help=_("show the change, write nothing"))
        parsers[name].add_argument(
            "--system",
            action="store_true",
            help=_("for everybody on this machine, in /etc; for every shell, or for --shell"),
        )
    parsers["leave"].add_argument("how", choices=("exit", "logout", "eof", "hup"), help=_("the way out"))
    parsers["leave"].add_argument("--again", action="store_true", help=_("the second attempt in a row"))
    return top


def _pid(text: str) -> int:
    import argparse

    if text.isascii() and text.isdigit() and 0 < int(text) <= 1 << 22:
        return int(text)
    raise argparse.ArgumentTypeError(_("{text} is not a process id").format(text=repr(text)))


def _since(text: str) -> float:
    import argparse

    from handwash import since

    try:
        return since.parse(text, world.now())
    except ValueError:
        sentence = _("{text} cannot be read as a time, or is still to come. For example: {examples}")
        raise argparse.ArgumentTypeError(sentence.format(text=repr(text), examples=since.EXAMPLES)) from None


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _identities(text: str) -> tuple[tuple[int, int], ...]:
    """`PID:START_TICKS,…`."""
    pairs = [word.partition(":") for word in _words(text)]
    return tuple((_pid(pid), int(start)) for pid, _colon, start in pairs)


def _fault(error: BaseException) -> int:
    """One line for the person, the details into the state folder."""
    import traceback

    from handwash import __version__, paths

    where = os.path.join(paths.state_dir(), "fault.log")
    details = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    said = render.harmless(f"{type(error).__name__}: {error}", 200)
    try:
        paths.write_whole(where, f"handwash {__version__}, Python {sys.version}\n{details}".encode("utf-8", "replace"))
        render.warn(_("handwash: an internal fault ({said}). Details: {where}").format(said=said, where=where))
    except OSError:
        render.warn(_("handwash: an internal fault ({said}). The details could not be written.").format(said=said))
    return Exit.FAULT
