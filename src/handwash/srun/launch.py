"""Runs srun with a supervisor under every task, waits for it as a shell would, and sees to it that nothing stays."""

from __future__ import annotations

import os
import sys

from handwash import node, world
from handwash.frozen import frozen
from handwash.messages import _
from handwash.node import kernel
from handwash.node.wire import Orders
from handwash.srun import entry, receipt, sessions
from handwash.srun.changes import VARIABLE, Changes, can_report, in_allocation
from handwash.srun.pipe import Pipe
from handwash.srun.twin import Twin

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Sequence

    from handwash.config import Config
    from handwash.srun import keeper, record
    from handwash.srun.arguments import CommandLine, Component
    from handwash.srun.bcast import Broadcast, Copy
else:
    import _signal

TASK = os.path.join(os.path.dirname(node.__file__), "task.py")

# In the task, before there is a Python: $0 is the warning, then interpreter, -I, -S, script, orders, command. Where the node
# has no such interpreter or file the command runs all the same. No variable is set: one of that name may be exported.
SHIM = (
    'if [ -x "$1" ] && [ -r "$4" ]; then exec "$@"; fi; echo "$0" >&2; shift 5; '
    'command -v "$1" >/dev/null || exit 2; exec "$@"'
)


@frozen
class Way:
    """How to run this command line. `plain`: become srun at once. `warning`: why it is not supervised. `copy`: what srun
    was to broadcast, and the prolog does."""

    plain: bool
    supervised: bool
    warning: str = ""
    copy: Copy | None = None


def choose(line: CommandLine) -> Way:
    """Whether tasks of this command line can be supervised. `async` is dealt with before."""
    if line.doubtful is not None or line.has("help", "usage", "version", "autocomplete", "test-only"):
        return Way(plain=True, supervised=False)
    if not any(component.command for component in line.components):
        return Way(plain=True, supervised=False)
    if line.has("no-allocate"):
        return Way(True, False, _("with --no-allocate there is no job to watch over; running plain srun"))
    reason = ""
    copy = None
    names = {option.name for component in line.components for option in component.options}
    if "external-launcher" in names:
        reason = "--external-launcher"
    elif any(name.startswith("container") for name in names) or any(
        name == "SLURM_CONTAINER" or "_container_image" in name for name in world.env
    ):
        reason = "--container"
    elif "bcast" in names or VARIABLE in world.env:
        copy = broadcast_of(line)
        reason = "--bcast" if copy is None else ""
    return unsupervised(reason) if reason else Way(plain=False, supervised=True, copy=copy)


def broadcast_of(line: CommandLine) -> Copy | None:
    """What is to be broadcast; None where only srun can do it. Of --multi-prog it is the file of programs (22.05)."""
    from handwash.srun import bcast

    return None if any(map(is_multi_prog, line.components)) else bcast.plan(line)


def unsupervised(option: str) -> Way:
    """Without supervisors, because of this option."""
    text = _("tasks are not supervised with {option}; the job or step is still confirmed to be gone")
    return Way(False, False, text.format(option=option))


def job_name(component: Component, first: bool) -> list[str]:
    """srun names a job or step after its command: that is the shim now, so the name is given.

    A later component's job is named after the first one's command: its step alone has a name of its own (22.05).
    """
    if component.get("job-name") is not None or (not in_allocation() and ("SLURM_JOB_NAME" in world.env or not first)):
        return []
    return [f"--job-name={os.path.basename(component.command[0])}"]


def build(line: CommandLine, way: Way, orders: Orders, changes: Changes, pipe: Pipe) -> list[str] | None:
    """srun's words with the supervisor under every task; None where they cannot be put into a file of programs."""
    if not way.supervised:
        return line.build(lambda component: component.command, lambda component: changes.options)
    shim = shim_for(orders)
    given = way.copy.line if way.copy is not None else line
    commands = {component: before(shim, component, pipe) for component in given.components}
    if None in commands.values():
        return None

    def more(component: Component) -> list[str]:
        # A copy's job is named after the person's program.
        named = line.components[0] if way.copy is not None else component
        return [*changes.options, *job_name(named, named is line.components[0])]

    return given.build(lambda component: commands[component] or (), more)


def shim_for(orders: Orders) -> list[str]:
    """The words that go before a command."""
    warning = "handwash: " + _("this node has no {python}; running without supervision").format(python=sys.executable)
    return ["/bin/sh", "-c", SHIM, warning, sys.executable, "-I", "-S", TASK, orders.pack()]


def is_multi_prog(component: Component) -> bool:
    """Whether the command is a file that names several."""
    return component.get("multi-prog") is not None or "SLURM_SRUN_MULTI" in world.env


def before(shim: Sequence[str], component: Component, pipe: Pipe) -> Sequence[str] | None:
    """A component's command with the words of the shim before it, or before each program in its file (None: impossible)."""
    if not component.command or not is_multi_prog(component):
        return [*shim, *component.command] if component.command else []
    from handwash.srun import programs

    path, *more = component.command
    text = programs.read(path)
    changed = programs.rewrite(text, shim, len(more)) if text is not None else None
    file = pipe.put(os.path.basename(path), changed) if changed is not None else None
    return [file, *more] if file is not None else None


def given_jobs(line: CommandLine) -> tuple[str, ...]:
    """Jobs in which srun makes a step only: the allocation is somebody else's."""
    named = line.get("jobid") or world.env.get("SLURM_JOB_ID") or ""
    jobs = [named.partition(".")[0].partition("+")[0]]
    # The components of a heterogeneous allocation have ids of their own.
    jobs += [value for name, value in world.env.items() if name.startswith(("SLURM_JOB_ID_HET_", "SLURM_JOB_ID_PACK_"))]
    return tuple(job for job in jobs if job)


def wait_for(child: int, twin: Twin | None) -> int:
    """Waits for srun beside it in the process group; answers its wait status.

    What the terminal or a shell sends goes to both; what is sent to safe-srun alone is passed on; a stop is shown upwards.
    """
    leader = os.getsid(0) == os.getpid()
    while True:
        number, code, _sender = kernel.next_signal()
        if number == _signal.SIGCHLD:
            while True:
                try:
                    pid, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
                except ChildProcessError:
                    return 0
                if pid == 0:
                    break
                if not os.WIFSTOPPED(status):
                    return status
                if not leader:
                    os.kill(os.getpid(), _signal.SIGSTOP)
        elif code == kernel.SI_KERNEL:
            # A terminal that closes hangs up its session leader alone (`ssh -t host safe-srun …`): plain srun would be that.
            # So it would be with a timer that runs since before us.
            if number == _signal.SIGALRM or (leader and number == _signal.SIGHUP):
                pass_on(child, number)
        elif not (twin is not None and twin.had(number)):
            pass_on(child, number)


def pass_on(child: int, number: int) -> None:
    """A signal to srun, which may have ended."""
    try:
        os.kill(child, number)
    except ProcessLookupError:
        pass


def supervise(line: CommandLine, way: Way, srun: str, label: str, settings: Config) -> int:
    """Runs it all; does not return, but ends as srun ended."""
    where = sessions.make()
    session = sessions.new_id()
    pipe = Pipe()
    broadcast = prepare(way.copy, pipe) if way.copy is not None else None
    if way.copy is not None and broadcast is None:
        way = unsupervised("--bcast")
        receipt.say(way.warning)
    changes = Changes(pipe, line, broadcast)
    changes.set(entry.MARK, entry.mark(srun))
    # With --pty the terminal is the program's: there the banner and `handwash` inside the job say it.
    wanted = way.supervised and bool(where) and not line.has("quiet", "pty")
    terminal = receipt.terminal() if wanted else ""
    idle_s = max(settings.idle_after * 60, 1.0) if terminal else 0.0
    own, names = not given_jobs(line), settings.slurm_names or ""
    orders = Orders(session, settings.grace, where, changes.back, own=own, idle_s=idle_s, slurm_names=names)
    words = build(line, way, orders, changes, pipe)
    if words is None:
        way = unsupervised("--multi-prog")
        receipt.say(way.warning)
        words = build(line, way, orders, changes, pipe) or []
    argv = [os.path.basename(srun), *words]
    mask = kernel.block_all()
    try:
        child = os.posix_spawn(
            srun, argv, changes.environment, setsigmask=mask, setsigdef=(_signal.SIGPIPE, _signal.SIGXFSZ)
        )
    except OSError as error:
        pipe.remove()
        receipt.say(_("srun could not be started: {error}").format(error=error.strerror))
        return 125
    # From here on srun's status is what counts. The rest is loaded while srun waits for its allocation.
    watch: tuple[keeper.Plan, record.Main, keeper.Link] | None = None
    twin: Twin | None = None
    try:
        watch = begin_watch(line, way, orders, label, pipe, child, terminal)
        twin = Twin()
    except Exception as error:
        receipt.say_fault(error)
    status = wait_for(child, twin)
    failed = broadcast if broadcast is not None and broadcast.has_failed() else None
    if failed is not None:
        # The prolog has killed srun, which would have ended like this, and with --pty before it took the terminal.
        status = 1 << 8
        failed.restore_terminal()
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
    # Whatever goes wrong now: without a goodbye the keeper finishes the work.
    try:
        if watch is not None:
            if failed is not None:
                failed.finish(*watch)
            else:
                from handwash.srun import finish

                finish.finish(line, *watch, status)
            watch[2].tell("bye")
        pipe.remove()
    except KeyboardInterrupt:
        receipt.say(_("interrupted, not confirmed yet; see `handwash sessions`"))
    except Exception as error:
        receipt.say_fault(error)
    kernel.exit_like(status)
    return 125


def prepare(copy: Copy, pipe: Pipe) -> Broadcast | None:
    """Readies it for the prolog; None where there will be none, or nowhere for its answer."""
    from handwash.srun import bcast

    broadcast = bcast.Broadcast(copy, pipe) if can_report(pipe) else None
    return broadcast if broadcast is not None and broadcast.answer else None


def begin_watch(
    line: CommandLine, way: Way, orders: Orders, label: str, pipe: Pipe, child: int, terminal: str
) -> tuple[keeper.Plan, record.Main, keeper.Link]:
    """Starts the keeper. Loads what is needed at the end: a session may last for days, and handwash be taken away meanwhile."""
    from handwash.srun import finish, keeper, record  # noqa: F401
    from handwash.teardown import identity

    cluster = line.get("clusters") or line.get("cluster") or world.env.get("SLURM_CLUSTERS", "")
    name = ""
    if len(line.components) == 1:
        name = (
            line.get("job-name") or world.env.get("SLURM_JOB_NAME") or os.path.basename(line.components[0].command[0])
        )
    plan = keeper.Plan(
        session=orders.session,
        grace=orders.grace,
        given_jobs=given_jobs(line),
        cluster=cluster,
        supervised=way.supervised,
        name=name,
        sid=os.getsid(0),
        started=world.now(),
        terminal=terminal,
        idle_s=orders.idle_s,
    )
    main = record.Main(orders.session, label, orders.folder)
    link = keeper.Link(pipe, plan, main)
    link.tell("srun", child, identity.start_of(child) or 0)
    return plan, main, link
