"""Runs srun with a supervisor under every task, waits for it as a shell would, and sees to it that nothing stays."""

from __future__ import annotations

import os
import sys

from handwash import config, world
from handwash.frozen import frozen
from handwash.messages import _
from handwash.srun import entry, kernel, lines, receipt, sessions
from handwash.srun.orders import KEPT, Orders
from handwash.srun.pipe import Pipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Sequence

    from handwash.srun import keeper, record
    from handwash.srun.arguments import CommandLine, Component
else:
    import _signal

HERE = os.path.dirname(os.path.abspath(__file__))
PROLOG = os.path.join(HERE, "prolog.sh")
TASK = os.path.join(HERE, "task.py")

# In the task, before there is a Python: $0 is the warning, then interpreter, -I, -S, script, orders, command. Where the node
# has no such interpreter or file the command runs all the same. No variable is set: one of that name may be exported.
SHIM = (
    'if [ -x "$1" ] && [ -r "$4" ]; then exec "$@"; fi; echo "$0" >&2; shift 5; '
    'command -v "$1" >/dev/null || exit 2; exec "$@"'
)

# One variable can hold 128 KiB with its name (execve(2), MAX_ARG_STRLEN), in UTF-8.
KEPT_LIMIT = 32000


@frozen
class Way:
    """How to run this command line. `plain`: become srun at once. `warning`: why it is not supervised."""

    plain: bool
    supervised: bool
    warning: str = ""


def choose(line: CommandLine) -> Way:
    """Whether tasks of this command line can be supervised. `async` is dealt with before."""
    if line.doubtful is not None or line.has("help", "usage", "version", "autocomplete", "test-only"):
        return Way(plain=True, supervised=False)
    if not any(component.command for component in line.components):
        return Way(plain=True, supervised=False)
    if line.has("no-allocate"):
        return Way(True, False, _("with --no-allocate there is no job to watch over; running plain srun"))
    reason = ""
    names = {option.name for component in line.components for option in component.options}
    if "multi-prog" in names:
        reason = "--multi-prog"
    elif "bcast" in names or "SLURM_BCAST" in world.env:
        reason = "--bcast"
    elif "external-launcher" in names:
        reason = "--external-launcher"
    elif any(name.startswith("container") for name in names) or any(
        name == "SLURM_CONTAINER" or "_container_image" in name for name in world.env
    ):
        reason = "--container"
    if not reason:
        return Way(plain=False, supervised=True)
    text = _("tasks are not supervised with {option}; the job or step is still confirmed to be gone")
    return Way(False, False, text.format(option=reason))


def in_allocation() -> bool:
    """Whether srun will make a step only."""
    return "SLURM_JOB_ID" in world.env or "SLURM_JOBID" in world.env


def job_name(component: Component) -> list[str]:
    """srun names a job or step after its command: that is the shim now, so the name is given."""
    if component.get("job-name") is not None or ("SLURM_JOB_NAME" in world.env and not in_allocation()):
        return []
    return [f"--job-name={os.path.basename(component.command[0])}"]


class Changes:
    """What is added to srun's environment, and how the command gets the person's own back."""

    def __init__(self, pipe: Pipe, line: CommandLine) -> None:
        self.environment = dict(world.env)
        export = line.get("export") or self.environment.get("SLURM_EXPORT_ENV", "ALL")
        whole_environment = export.upper().split(",")[0] == "ALL"
        # What the shim's shell may set on its way (dash: PWD; bash: all four).
        names = ("PWD", "OLDPWD", "SHLVL", "_") if whole_environment else ()
        self.back: dict[str, str | None] = {name: self.environment.get(name) for name in names}
        if whole_environment and in_allocation() and line.get("job-name") is None:
            # The option that names the step would change the allocation's name in the command's environment.
            self.back["SLURM_JOB_NAME"] = self.environment.get("SLURM_JOB_NAME")
        # dash drops what no shell can have as a name, bash's exported functions (BASH_FUNC_module%%) among it;
        # bash as a script's shell drops prompts.
        dropped = [
            f"{name}={value}"
            for name, value in self.environment.items()
            if name in ("PS1", "PS2") or not (name.isascii() and name.isidentifier())
        ]
        kept = lines.join(dropped)
        if whole_environment and dropped and len(kept) < KEPT_LIMIT:
            self.set(KEPT, kept)
        if not pipe.path or not os.access(PROLOG, os.X_OK):
            return
        chained = line.get("prolog") or self.environment.get("SLURM_PROLOG")
        outer = self.environment.pop("HANDWASH_PROLOG", None)
        if chained == PROLOG:
            # Within a task that is not supervised nothing puts the variables back: chained to itself it would never end.
            chained = outer
        self.set("SLURM_PROLOG", PROLOG)
        self.set("HANDWASH_REPORT", pipe.path)
        if chained:
            self.set("HANDWASH_PROLOG", chained)
        else:
            # srun says in it that a prolog runs, and leaves it so for the tasks (22.05).
            self.back["SLURM_SCRIPT_CONTEXT"] = self.environment.get("SLURM_SCRIPT_CONTEXT")

    def set(self, name: str, value: str) -> None:
        self.back[name] = self.environment.get(name)
        self.environment[name] = value


def build(line: CommandLine, way: Way, orders: Orders, changes: Changes) -> list[str]:
    """srun's words with the supervisor under every task."""
    # The person's own --prolog would win over the variable: ours is given after it, and runs theirs.
    prolog = [f"--prolog={PROLOG}"] if line.get("prolog") and "SLURM_PROLOG" in changes.back else []
    if not way.supervised:
        return line.build(lambda component: component.command, lambda component: prolog)
    warning = "handwash: " + _("this node has no {python}; running without supervision").format(python=sys.executable)
    shim = ["/bin/sh", "-c", SHIM, warning, sys.executable, "-I", "-S", TASK, orders.pack()]
    return line.build(
        lambda component: [*shim, *component.command] if component.command else [],
        lambda component: [*prolog, *job_name(component)],
    )


def given_jobs(line: CommandLine) -> tuple[str, ...]:
    """Jobs in which srun makes a step only: the allocation is somebody else's."""
    named = line.get("jobid") or world.env.get("SLURM_JOB_ID") or world.env.get("SLURM_JOBID") or ""
    jobs = [named.partition(".")[0].partition("+")[0]]
    # The components of a heterogeneous allocation have ids of their own.
    jobs += [value for name, value in world.env.items() if name.startswith(("SLURM_JOB_ID_HET_", "SLURM_JOB_ID_PACK_"))]
    return tuple(job for job in jobs if job)


def wait_for(child: int) -> int:
    """Waits for srun as its twin in the process group; answers its wait status.

    What the terminal sends goes to both; what is sent to safe-srun alone is passed on; a stop is shown to the shell.
    """
    leader = os.getsid(0) == os.getpid()
    while True:
        number, code, _sender = kernel.next_signal() or (0, 0, 0)
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
        elif code != kernel.SI_KERNEL:
            if number == _signal.SIGCONT and not is_stopped(child):
                continue
            try:
                os.kill(child, number)
            except ProcessLookupError:
                pass


def is_stopped(child: int) -> bool:
    """Whether srun still is stopped. A shell continues the whole group, and srun says that it got SIGCONT each time."""
    from handwash.teardown import identity

    found = identity.read(child)
    return found is not None and found.state == "T"


def supervise(line: CommandLine, way: Way, srun: str, label: str) -> int:
    """Runs it all; does not return, but ends as srun ended."""
    settings = config.load()
    where = sessions.make()
    session = sessions.new_id()
    pipe = Pipe()
    changes = Changes(pipe, line)
    changes.set(entry.MARK, entry.mark(srun))
    orders = Orders(session, settings.grace, where, changes.back, own=not given_jobs(line))
    argv = ["srun", *build(line, way, orders, changes)]
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
    try:
        watch = begin_watch(line, way, orders, label, pipe, child)
    except Exception as error:
        say_fault(error)
    status = wait_for(child)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
    # Whatever goes wrong now: without a goodbye the keeper finishes the work.
    try:
        if watch is not None:
            finish(line, *watch, status)
            watch[2].tell("bye")
        pipe.remove()
    except KeyboardInterrupt:
        receipt.say(_("interrupted, not confirmed yet; see `handwash sessions`"))
    except Exception as error:
        say_fault(error)
    kernel.exit_like(status)
    return 125


def say_fault(error: Exception) -> None:
    """One line where handwash itself failed."""
    receipt.say(_("a fault in handwash, not confirmed yet: {error}").format(error=f"{type(error).__name__}: {error}"))


def begin_watch(
    line: CommandLine, way: Way, orders: Orders, label: str, pipe: Pipe, child: int
) -> tuple[keeper.Plan, record.Main, keeper.Link]:
    """Starts the keeper."""
    from handwash.srun import keeper, record
    from handwash.teardown import identity

    cluster = line.get("clusters") or line.get("cluster") or world.env.get("SLURM_CLUSTERS", "")
    plan = keeper.Plan(orders.session, orders.grace, given_jobs(line), cluster, way.supervised)
    main = record.Main(orders.session, label, orders.folder)
    link = keeper.Link(pipe, plan, main)
    link.tell("srun", child, identity.start_of(child) or 0)
    return plan, main, link


def finish(line: CommandLine, plan: keeper.Plan, main: record.Main, link: keeper.Link, status: int) -> None:
    """Confirms, waits for the nodes' words, closes the record and says the receipt."""
    from handwash.schedulers.slurm_step import GONE
    from handwash.srun import confirm, keeper, record

    report = link.report()
    if report is None:
        report = report_of_parts(record.parts_of(plan.session, main.where))
    if report is None:
        # Usually no step was launched: srun refused the command line, or the wait in the queue was given up.
        nothing = os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0 and bool(link.pipe.path)
        main.finish("clean" if nothing else "unconfirmed", [])
        if not nothing:
            receipt.say(_("could not tell which job this was, so nothing is confirmed; see `squeue --me`"))
        return
    target = plan.target(report)
    done = confirm.confirm(target, urgent=os.WIFSIGNALED(status))
    words, silent = keeper.wait_for_words(plan, report, main.where, done.answer.word == GONE)
    outcome = keeper.outcome(plan, done, words, silent)
    left = [(pid, why) for word in words for pid, _start, why in word.left]
    ended = sum(word.ended for word in words)
    what = ""
    if not plan.supervised:
        what = _("processes were not looked at")
    elif ended or left or not silent:
        what = receipt.processes(ended, sum(word.killed for word in words), left)
    said = receipt.line(
        what,
        receipt.silent_nodes(silent) if silent else "",
        "" if all(word.complete or word.cgroup for word in words) else _("could not tell whether all of it has ended"),
        receipt.queue(target, done),
        receipt.cost(link.gpus(), world.now() - report.at) if target.own else "",
        about=_("job {job}").format(job=target.name) if target.own else _("step {step}").format(step=target.name),
    )
    main.set(job="+".join(report.jobs), step=report.step, receipt=said)
    main.finish(outcome, words)
    if outcome != "clean" or not line.has("quiet"):
        receipt.say(said)


def report_of_parts(words: Sequence[record.PartWord]) -> keeper.Report | None:
    """Job and step from the nodes, where the prolog could not report."""
    from handwash.srun import keeper

    for word in words:
        if word.job.isdigit():
            return keeper.Report((word.job,), word.step, 0, world.now())
    return None
