"""What a task runs: found, with its words and its environment, as it would be without us."""

import posix

from handwash.node import kernel, wire
from handwash.node.wire import KEPT, Orders, decode, encode, variable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn


def look_up(command: str, path: str) -> str:
    """The path of the command, found as slurmstepd finds it (seen with 22.05): a name that begins with a dot is put behind
    the working directory, any other one is looked up in PATH on this node, executable or not; else it stays as it is."""
    if command.startswith("/"):
        return command
    if command.startswith("."):
        return f"{posix.getcwd().rstrip('/')}/{command}"
    for folder in path.split(":"):
        found = f"{folder}{'' if folder.endswith('/') else '/'}{command}"
        if folder and is_file(found):
            return found
    return command


def is_file(path: str) -> bool:
    """Whether this is a file, or a link to one."""
    try:
        return posix.stat(path).st_mode & 0o170000 == 0o100000
    except (OSError, ValueError):
        return False


class Command:
    """What the task is to become. All of it is made ready before the supervisors part: what a process writes after a fork
    is copied, page by page."""

    def __init__(self, words: "Sequence[str]", environment: "dict[bytes, bytes]") -> None:
        self.environment = environment
        self.path = look_up(words[0], decode(environment.get(b"PATH", b"")))
        self.words = [self.path, *words[1:]]
        self.name = words[0].rpartition("/")[2]

    def become(self, mask: "set[int]", ignored_chld: bool) -> "NoReturn":
        """This process is the command from now on, or ends with what `execute` answers."""
        try:
            kernel.restore_for_exec(mask, ignored_chld)
            if b"SLURM_TASK_PID" in self.environment:
                self.environment[b"SLURM_TASK_PID"] = b"%d" % posix.getpid()
            posix._exit(self.execute())
        finally:
            posix._exit(2)

    def execute(self) -> int:
        """Becomes it. Returns only if that failed: the errno, which is slurmstepd's exit code for it (2, 13, 8)."""
        try:
            if not self.path:
                # Python refuses an empty name by an error of its own; the kernel does not find it.
                raise FileNotFoundError(2, "")
            posix.execve(self.path, self.words, self.environment)
        except OSError as error:
            number = error.errno or 2
            try:
                from handwash.node import refused

                refused.say(self.path, number)
            except ImportError:
                pass
            return number


def command_environment(orders: Orders) -> "dict[bytes, bytes]":
    """The environment as the command would have it without us, and the session's cookie."""
    environment = dict(posix.environ)
    if KEPT in orders.environment:
        for entry in wire.split(variable(encode(KEPT))):
            name, equals, given = entry.partition("=")
            if equals:
                environment.setdefault(encode(name), encode(given))
    for name, value in orders.environment.items():
        # A variable that srun was told not to export is not to appear by way of us.
        key = encode(name)
        if key in environment and value is not None:
            environment[key] = encode(value)
        else:
            environment.pop(key, None)
    environment[b"HANDWASH_SESSION"] = encode(orders.session)
    return environment
