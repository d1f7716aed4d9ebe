"""Under every task: an outer and an inner supervisor in one interpreter, the command below them.

    slurmstepd (or a shell) -> outer -> inner -> command -> whatever it starts

Both are subreapers, so what the command leaves behind falls to the inner one, and to the outer one if the inner is killed;
a guardian beside them takes over when both are dead. They share the command's process group and keep out of its way:
signals that the kernel sends to the group are for the command, others are passed on once, stdio is not touched.
"""

from __future__ import annotations

import os
import time

from handwash.node import kernel, lines, sweep
from handwash.node.orders import KEPT
from handwash.teardown import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Mapping, Sequence

    from handwash.node.chain import Chain
    from handwash.node.orders import Orders
else:
    import _signal

HANGUP = _signal.SIGHUP
CHILD = _signal.SIGCHLD
CONTINUE = _signal.SIGCONT
# From the kernel: something has come, or the end has, on the connection to the guardian.
GUARDIAN = _signal.SIGIO

# How long a signal to the outer supervisor waits for the same one to arrive at the inner one, and how far apart the two
# may be: proctrack/linuxproc signals every process of the step, pgid the group, cgroup only slurmstepd's own child.
SETTLE = 0.02
TOGETHER = 0.5


class Ending:
    """How a task ended: the command's wait status, and what the teardown found, killed and had to leave.

    `complete`: the kernel has said that nothing is left (which needs a subreaper).
    """

    def __init__(
        self, status: int, ended: int = 0, killed: int = 0, left: Sequence[tuple[int, str]] = (), complete: bool = True
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
    def unpack(cls, data: bytes) -> Ending:
        first, *rest = data.decode().split("\n")
        status, ended, killed, complete = map(int, first.split())
        left = [(int(pid), why) for pid, _, why in (line.partition(" ") for line in rest)]
        return cls(status, ended, killed, left, bool(complete))


def look_up(command: str, environment: Mapping[str, str]) -> str:
    """The path of the command, found as slurmstepd finds it (seen with 22.05): a name that begins with a dot is put behind
    the working directory, any other one is looked up in PATH on this node, executable or not; else it stays as it is."""
    if command.startswith("/"):
        return command
    if command.startswith("."):
        return os.path.join(os.getcwd(), command)
    for folder in environment.get("PATH", "").split(":"):
        path = os.path.join(folder, command)
        if folder and os.path.isfile(path):
            return path
    return command


def execute(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Becomes the command. Returns only if that failed: the errno, which is slurmstepd's exit code for it (2, 13, 8)."""
    path = command[0]
    try:
        path = look_up(path, environment)
        if not path:
            # Python refuses an empty name by an error of its own; the kernel does not find it.
            raise FileNotFoundError(2, os.strerror(2))
        os.execve(path, [path, *command[1:]], environment)
    except OSError as error:
        number = error.errno or 2
        # slurmstepd's own words (22.05).
        text = f"handwash: error: execve(): {missing(path) if number == 2 else path}: {os.strerror(number)}"
        safe = "".join(letter if letter.isprintable() else "?" for letter in text)
        try:
            os.write(2, f"{safe}\n".encode(errors="replace"))
        except OSError:
            pass
        return number


def missing(script: str) -> str:
    """What was not found when this file was to be executed: the interpreter that it names, else itself."""
    try:
        with open(script, "rb") as file:
            first = file.readline(256)
    except OSError:
        return script
    if first[:2] != b"#!":
        return script
    name = first[2:].partition(b"\n")[0].lstrip()
    return f"bad interpreter({os.fsdecode(name)})"


def terminal_settings() -> tuple[int, list[object]] | None:
    """The terminal and its settings, if standard input, output or error is one."""
    for fd in (0, 1, 2):
        try:
            if os.isatty(fd):
                import termios

                return fd, termios.tcgetattr(fd)
        except Exception:
            return None
    return None


def restore_terminal(saved: tuple[int, list[object]] | None) -> None:
    """Puts the settings back, only where the command changed them. SIGTTOU is blocked here, so the background may."""
    if saved is None:
        return
    import termios

    try:
        if termios.tcgetattr(saved[0]) != saved[1]:
            termios.tcsetattr(saved[0], termios.TCSADRAIN, saved[1])  # type: ignore[arg-type]
    except (termios.error, OSError):
        pass


def may_stop() -> bool:
    """Whether a stop of the command is to be shown upwards: to a shell that can continue us, never as session leader."""
    if os.getsid(0) == os.getpid():
        return False
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY))
    except OSError:
        return False
    return True


def supervise(command: Sequence[str], orders: Orders, chain: Chain | None) -> Ending:
    """Runs the command below an inner supervisor to its end and beyond; answers when nothing of it is left.

    If the task's slurmstepd dies before the command, all of it is ended at once.
    """
    ignored_chld = _signal.getsignal(CHILD) == _signal.SIG_IGN
    mask = kernel.block_all()
    settings = terminal_settings()
    complete = kernel.become_subreaper()
    if chain is not None and not complete:
        chain.tell("incomplete")
    kernel.prctl(kernel.PR_SET_NAME, b"handwash")
    read_end, write_end = os.pipe()
    outer = os.getpid()
    stops = may_stop()
    if chain is not None:
        chain.open()
    try:
        inner = os.fork()
    except OSError:
        # No more processes: the command itself needs none.
        kernel.mark(orders.mark())
        kernel.restore_for_exec(mask, ignored_chld)
        os._exit(execute(command, command_environment(orders)))
    if inner == 0:
        try:
            os.close(read_end)
            if chain is not None:
                chain.be_second()
            ending = run_inner(command, orders, outer, chain, mask, ignored_chld, stops)
            os.write(write_end, ending.pack())
            kernel.exit_like(ending.status)
        finally:
            os._exit(125)
    os.close(write_end)
    if chain is not None:
        chain.be_first()
    status = watch_inner(inner, stops, chain, orders.slurmstepd)
    if status is None:
        os.kill(inner, _signal.SIGKILL)
        status = _signal.SIGKILL
    try:
        data = os.read(read_end, 65536)
    finally:
        os.close(read_end)
    ending = Ending.unpack(data) if data else Ending(status)
    # Nothing is left here unless the inner one was killed: then its children are ours now.
    if not sweep.reap():
        rest = sweep.Sweep()
        rest.run(orders.grace)
        if chain is not None:
            # Now that nothing is left that could go to init.
            chain.renew()
            chain.tell_ended(rest)
        ending.ended += len(rest.ended)
        ending.killed += len(rest.killed)
        ending.left += [(pid, why) for (pid, _start), why in rest.left.items()]
        ending.complete = rest.complete
    ending.complete = ending.complete and complete and not ending.left
    restore_terminal(settings)
    return ending


def watch_inner(inner: int, stops: bool, chain: Chain | None, slurmstepd: int) -> int | None:
    """The outer supervisor: passes on what is meant for the command, until the inner one has ended; its wait status.

    None when its slurmstepd died first.
    """
    leader = os.getsid(0) == os.getpid()
    if slurmstepd:
        # A hint only: it comes when the thread has ended that made us. The guardian gives it too.
        kernel.prctl(kernel.PR_SET_PDEATHSIG, CHILD)
    while not slurmstepd or os.getppid() == slurmstepd:
        number, code, _sender = kernel.next_signal() or (0, 0, 0)
        if number == CHILD:
            while True:
                try:
                    pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
                except ChildProcessError:
                    return 0
                if pid == 0:
                    break
                if pid == inner and os.WIFSTOPPED(status):
                    if stops:
                        os.kill(os.getpid(), _signal.SIGSTOP)
                elif pid == inner:
                    return status
            continue
        if number == GUARDIAN and code == kernel.SI_KERNEL:
            if chain is not None:
                chain.renew()
                # While another guardian is made, orphans go to init: those of the inner one, if it died now.
                chain.leaked |= os.waitid(os.P_PID, inner, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            continue
        if code == kernel.SI_KERNEL:
            # A closed terminal hangs up its session leader: without us that would be the command.
            if not (number == HANGUP and leader):
                continue
        elif number != CONTINUE:
            time.sleep(SETTLE)
        os.kill(inner, number)
    return None


def command_environment(orders: Orders) -> dict[str, str]:
    """The environment as the command would have it without us, and the session's cookie."""
    environment = dict(os.environ)
    if KEPT in orders.environment and KEPT in environment:
        for entry in lines.split(environment[KEPT]):
            name, _equals, kept = entry.partition("=")
            environment.setdefault(name, kept)
    for name, value in orders.environment.items():
        # A variable that srun was told not to export is not to appear by way of us.
        if name in environment and value is not None:
            environment[name] = value
        else:
            environment.pop(name, None)
    environment["HANDWASH_SESSION"] = orders.session
    return environment


def run_inner(
    command: Sequence[str],
    orders: Orders,
    outer: int,
    chain: Chain | None,
    mask: set[int],
    ignored_chld: bool,
    stops: bool,
) -> Ending:
    """The inner supervisor: starts the command, waits for its end or for the outer one's, then ends all that is left."""
    kernel.become_subreaper()
    if not kernel.mark(orders.mark()) and chain is not None:
        chain.tell("unmarked")
    # A hint only (it follows the parent's thread); what counts is getppid.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, CHILD)
    environment = command_environment(orders)
    try:
        main = os.fork()
    except OSError:
        # As above: the command takes this place, and the outer supervisor sees to what it leaves.
        kernel.restore_for_exec(mask, ignored_chld)
        os._exit(execute(command, environment))
    if main == 0:
        try:
            kernel.restore_for_exec(mask, ignored_chld)
            if "SLURM_TASK_PID" in environment:
                environment["SLURM_TASK_PID"] = str(os.getpid())
            os._exit(execute(command, environment))
        finally:
            os._exit(2)
    if chain is not None:
        chain.tell("main", main, identity.start_of(main) or 0, os.path.basename(command[0]))
    status = watch_command(main, outer, stops)
    if status is None:
        # Slurm takes the outer one's end for the task's and kills what is left of its process group (proctrack/pgid, 22.05).
        os.setpgid(0, 0)
    teardown = sweep.Sweep()
    teardown.run(orders.grace)
    if status is None:
        status = _signal.SIGKILL
        if chain is not None:
            # The outer one would have seen to it, had the guardian died too.
            chain.take_newest()
            chain.renew()
    if chain is not None:
        chain.tell_ended(teardown)
    left = [(pid, why) for (pid, _start), why in teardown.left.items()]
    return Ending(status, len(teardown.ended), len(teardown.killed), left, teardown.complete)


def watch_command(main: int, outer: int, stops: bool) -> int | None:
    """The command's wait status; None when the outer supervisor died first."""
    seen: dict[int, float] = {}
    while os.getppid() == outer:
        number, code, sender = kernel.next_signal() or (0, 0, 0)
        if number == CHILD:
            while True:
                try:
                    pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
                except ChildProcessError:
                    return 0
                if pid == 0:
                    break
                if pid == main and os.WIFSTOPPED(status):
                    if stops:
                        os.kill(os.getpid(), _signal.SIGSTOP)
                elif pid == main:
                    return status
            continue
        if sender != outer:
            # Sent to the whole step or group by Slurm, a shell or the terminal: the command has it already.
            seen[number] = time.monotonic()
            continue
        if code == kernel.SI_KERNEL or time.monotonic() - seen.pop(number, -TOGETHER) < TOGETHER:
            continue
        try:
            os.kill(main, number)
        except ProcessLookupError:
            pass
    return None
