"""Under every task: an outer and an inner supervisor in one interpreter, the command below them.

    slurmstepd (or a shell) -> outer -> inner -> command -> whatever it starts

Both are subreapers, so what the command leaves behind falls to the inner one, and to the outer one if the inner is killed;
a guardian beside them takes over when both are dead. They share the command's process group and keep out of its way:
signals that the kernel sends to the group are for the command, others are passed on once, stdio is not touched.
"""

import posix
import time

from handwash.node import kernel
from handwash.node.chain import Chain, join
from handwash.node.command import Command, command_environment
from handwash.node.wire import Orders

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Sequence

    from handwash.node.sweep import Sweep
else:
    import _signal

ALARM = _signal.SIGALRM
HANGUP = _signal.SIGHUP
CHILD = _signal.SIGCHLD
CONTINUE = _signal.SIGCONT
# From the kernel: something has come, or the end has, on the connection to the guardian.
GUARDIAN = _signal.SIGIO

# How long a signal to the outer supervisor waits for the same one to arrive at the inner one, and how far apart the two
# may be: proctrack/linuxproc signals every process of the step, pgid the group, cgroup only slurmstepd's own child.
SETTLE = 0.02
TOGETHER = 0.5

# Seconds.
LOAD_AFTER = 1.0


class Ending:
    """How a task ended: the command's wait status, and what the teardown found, killed and had to leave.

    `complete`: the kernel has said that nothing is left (which needs a subreaper).
    """

    def __init__(
        self,
        status: int,
        ended: int = 0,
        killed: int = 0,
        left: "Sequence[tuple[int, str]]" = (),
        complete: bool = True,
    ) -> None:
        self.status = status
        self.complete = complete
        self.ended = ended
        self.killed = killed
        self.left = list(left)

    def pack(self) -> bytes:
        return "\n".join(
            [
                f"{self.status} {self.ended} {self.killed} {int(self.complete)}",
                *(f"{pid} {why}" for pid, why in self.left),
            ]
        ).encode()

    @classmethod
    def unpack(cls, data: bytes) -> "Ending":
        first, *rest = data.decode().split("\n")
        status, ended, killed, complete = map(int, first.split())
        left = [(int(pid), why) for pid, _, why in (line.partition(" ") for line in rest)]
        return cls(status, ended, killed, left, bool(complete))


def may_stop() -> bool:
    """Whether a stop of the command is to be shown upwards: to a shell that can continue us, never as session leader."""
    if posix.getsid(0) == posix.getpid():
        return False
    try:
        posix.close(posix.open("/dev/tty", posix.O_RDWR | posix.O_CLOEXEC | posix.O_NOCTTY))
    except OSError:
        return False
    return True


def terminal_settings() -> "tuple[int, list[object]] | None":
    """The terminal and its settings, if standard input, output or error is one."""
    for fd in (0, 1, 2):
        if posix.isatty(fd):
            try:
                from handwash.node import terminal
            except ImportError:
                return None
            return terminal.settings(fd)
    return None


def load_rest() -> None:
    """Loads what the teardown needs, once the command has taken its time: a session may last for days, and handwash may have
    been taken away at its end. A task that ends at once never needs it, or finds it still in place."""
    kernel.keep_pages()
    try:
        from handwash.node import sweep  # noqa: F401
    except Exception:
        pass


def end_rest(grace: float, ending: Ending) -> "Sweep | None":
    """Ends what is left below this process, and adds that to `ending`; None where nothing was left."""
    if kernel.reap():
        return None
    from handwash.node.sweep import Sweep

    rest = Sweep()
    rest.run(grace)
    ending.ended += len(rest.ended)
    ending.killed += len(rest.killed)
    ending.left += [(pid, why) for (pid, _start), why in rest.left.items()]
    ending.complete = rest.complete
    return rest


def supervise(main: Command, orders: Orders, chain: "Chain | None") -> "Ending":
    """Runs the command below an inner supervisor to its end and beyond; answers when nothing of it is left.

    If the task's slurmstepd dies before the command, all of it is ended at once.
    """
    ignored_chld = _signal.getsignal(CHILD) == _signal.SIG_IGN
    mask = kernel.block_all()
    mark = orders.mark()
    outer = posix.getpid()
    try:
        settings = terminal_settings()
        complete = kernel.become_subreaper()
        if chain is not None and not complete:
            chain.tell("incomplete")
        kernel.prctl(kernel.PR_SET_NAME, b"handwash")
        read_end, write_end = posix.pipe()
        stops = may_stop()
        if chain is not None:
            chain.open()
        inner = posix.fork()
    except Exception as error:
        # No more processes or files, say: the command itself needs none. Without the goodbye the guardian would end it.
        text = f"handwash: {type(error).__name__}: {error}; running without supervision\n"
        try:
            posix.write(2, text.encode(errors="replace"))
        except OSError:
            pass
        if chain is not None:
            chain.tell("incomplete")
            chain.goodbye()
        # What the guardian has said has left one waiting, and so has a closed standard error: they would end us.
        kernel.forget(GUARDIAN, _signal.SIGPIPE)
        # Exec keeps this, and the command would have to collect what is not its own.
        kernel.become_subreaper(False)
        main.become(mask, ignored_chld)
    if inner == 0:
        try:
            posix.close(read_end)
            if chain is not None:
                chain.be_second()
            ending = run_inner(main, mark, orders.grace, outer, chain, mask, ignored_chld, stops)
            posix.write(write_end, ending.pack())
            kernel.exit_like(ending.status)
        finally:
            posix._exit(125)
    posix.close(write_end)
    try:
        if chain is not None:
            chain.be_first()
        status = watch_inner(inner, stops, chain, orders.slurmstepd)
    except Exception:
        status = just_wait(inner)
    if status is None:
        if chain is not None:
            chain.tell("orphaned")
        posix.kill(inner, _signal.SIGKILL)
        status = _signal.SIGKILL
    ending = Ending(status, complete=False)
    try:
        data = posix.read(read_end, 65536)
        posix.close(read_end)
        ending = Ending.unpack(data) if data else Ending(status)
        # Nothing is left here unless the inner one was killed: then its children are ours now.
        rest = end_rest(orders.grace, ending)
        if rest is not None and chain is not None:
            # Now that nothing is left that could go to init.
            chain.renew()
            chain.tell_ended(rest)
    except Exception:
        leave_to_guardian(chain, ending)
    ending.complete = ending.complete and complete and not ending.left
    if settings is not None and posix.WIFSIGNALED(ending.status):
        from handwash.node import terminal

        terminal.restore(settings)
    return ending


def just_wait(pid: int) -> int:
    """A child's wait status. A fault of ours must cost neither the command nor its exit code."""
    while True:
        try:
            return posix.waitpid(pid, 0)[1]
        except ChildProcessError:
            return 0


def leave_to_guardian(chain: "Chain | None", ending: Ending) -> None:
    """What cannot be ended here: the code for it was taken away or is broken. The guardian has been whole since it started."""
    ending.complete = False
    if chain is not None:
        chain.leaked = True


def collect(child: int, stops: bool) -> "int | None":
    """Collects whoever has ended below this process; the wait status of this child, if it has. Its stop is shown upwards."""
    while True:
        try:
            pid, status = posix.waitpid(-1, posix.WNOHANG | posix.WUNTRACED)
        except ChildProcessError:
            return 0
        if pid == 0:
            return None
        if pid == child and posix.WIFSTOPPED(status):
            if stops:
                posix.kill(posix.getpid(), _signal.SIGSTOP)
        elif pid == child:
            return status


def watch_inner(inner: int, stops: bool, chain: "Chain | None", slurmstepd: int) -> "int | None":
    """The outer supervisor: passes on what is meant for the command, until the inner one has ended; its wait status.

    None when its slurmstepd died first.
    """
    leader = posix.getsid(0) == posix.getpid()
    loads = kernel.alarm(LOAD_AFTER)
    if slurmstepd:
        # A hint only: it comes when the thread has ended that made us. The guardian gives it too.
        kernel.prctl(kernel.PR_SET_PDEATHSIG, CHILD)
    while not slurmstepd or posix.getppid() == slurmstepd:
        number, code, _sender = kernel.next_signal()
        if number == ALARM and code == kernel.SI_KERNEL and loads:
            load_rest()
            loads = False
            continue
        if number == CHILD:
            status = collect(inner, stops)
            if status is not None:
                return status
            continue
        if number == GUARDIAN and code == kernel.SI_KERNEL:
            if chain is not None:
                chain.renew()
                # While another guardian is made, orphans go to init: those of the inner one, if it died now.
                chain.leaked |= (
                    posix.waitid(posix.P_PID, inner, posix.WEXITED | posix.WNOHANG | posix.WNOWAIT) is not None
                )
            continue
        if code == kernel.SI_KERNEL:
            # A closed terminal hangs up its session leader: without us that would be the command. So it is with a timer that
            # runs since before us.
            if number != ALARM and not (number == HANGUP and leader):
                continue
        elif number != CONTINUE:
            time.sleep(SETTLE)
        posix.kill(inner, number)
    return None


def run_inner(
    command: Command,
    mark: int,
    grace: float,
    outer: int,
    chain: "Chain | None",
    mask: "set[int]",
    ignored_chld: bool,
    stops: bool,
) -> "Ending":
    """The inner supervisor: starts the command, waits for its end or for the outer one's, then ends all that is left."""
    kernel.become_subreaper()
    if not kernel.mark(mark) and chain is not None:
        chain.tell("unmarked")
    # A hint only (it follows the parent's thread); what counts is getppid.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, CHILD)
    try:
        main = posix.fork()
    except OSError:
        # As above: the command takes this place, and the outer supervisor sees to what it leaves.
        kernel.prctl(kernel.PR_SET_PDEATHSIG, 0)
        kernel.become_subreaper(False)
        command.become(mask, ignored_chld)
    if main == 0:
        command.become(mask, ignored_chld)
    if chain is not None:
        chain.tell("main", posix.getpid(), main, command.name)
    try:
        status = watch_command(main, outer, stops)
    except Exception:
        status = just_wait(main)
    if status is None:
        # Slurm takes the outer one's end for the task's and kills what is left of its process group (proctrack/pgid, 22.05).
        posix.setpgid(0, 0)
    ending = Ending(_signal.SIGKILL if status is None else status)
    try:
        teardown = end_rest(grace, ending)
        if status is None and chain is not None:
            # The outer one would have seen to it, had the guardian died too.
            chain.take_newest()
            chain.renew()
        if teardown is not None and chain is not None:
            chain.tell_ended(teardown)
    except Exception:
        leave_to_guardian(chain, ending)
    return ending


def watch_command(main: int, outer: int, stops: bool) -> "int | None":
    """The command's wait status; None when the outer supervisor died first."""
    seen: dict[int, float] = {}
    loads = kernel.alarm(LOAD_AFTER)
    while posix.getppid() == outer:
        number, code, sender = kernel.next_signal()
        if number == ALARM and code == kernel.SI_KERNEL and loads:
            load_rest()
            loads = False
            continue
        if number == CHILD:
            status = collect(main, stops)
            if status is not None:
                return status
            continue
        if sender != outer:
            # Sent to the whole step or group by Slurm, a shell or the terminal: the command has it already.
            seen[number] = time.monotonic()
            continue
        if code == kernel.SI_KERNEL or time.monotonic() - seen.pop(number, -TOGETHER) < TOGETHER:
            continue
        try:
            posix.kill(main, number)
        except ProcessLookupError:
            pass
    return None


def prepare(text: str, words: "Sequence[str]") -> "tuple[Command, Orders]":
    """What is to be done, before anything is. ValueError: these are another version's orders."""
    if b"LC_CTYPE" in posix.environ:
        from handwash.node import coerced

        coerced.undo()
    orders = Orders.unpack(text)
    orders.slurmstepd = posix.getppid()
    return Command(words, command_environment(orders)), orders


def main(command: Command, orders: Orders) -> None:
    """Runs the command under supervision and ends as it ended. Does not return."""
    try:
        chain = join(orders)
    except OSError:
        chain = None
    ending = supervise(command, orders, chain)
    if chain is not None:
        try:
            chain.leave()
        except Exception:
            # It is the status that counts now.
            pass
    kernel.exit_like(ending.status)
    posix._exit(125)
