"""What the wrapper starts: `python -I -S …/handwash/srun/entry.py ARGV…`. If handwash is broken it becomes plain srun."""

import os
import sys

# What a safe-srun says to one that is started by the srun it starts: "HOST PID PATH". Cannot be spoken of with a space in it.
MARK = "HANDWASH_SRUN"


def fall_back(arguments: "list[str]", error: BaseException) -> None:
    """Says so in one line and becomes srun (or, with --local, the command itself)."""
    text = f"handwash: {type(error).__name__}: {error}; running without supervision\n"
    try:
        os.write(2, "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text).encode())
    except OSError:
        # Standard error may be closed; that is no reason not to run.
        pass
    name = "srun"
    try:
        if not local(arguments):
            become_srun(find_srun(), arguments)
        command = arguments[2 if arguments[1] == "--" else 1 :]
        name = command[0]
        give_back_signals()
        os.execvp(name, command)
    except (OSError, IndexError) as failed:
        os.write(2, f"handwash: {name}: {getattr(failed, 'strerror', failed)}\n".encode(errors="replace"))
        os._exit(125)


def srun_names() -> "tuple[str, ...]":
    """What srun may be called here, the likeliest first; without handwash's own list, Slurm's name and Tianhe's."""
    try:
        from handwash import slurm_names

        return slurm_names.candidates("srun")
    except Exception:
        return ("srun", "yhrun")


def find_srun() -> str:
    """The first srun on the path that does not lead back to here; empty where there is none.

    The wrapper itself may stand there under the name, or a site's script that starts it: both would go round for ever. An
    empty or relative entry of the path is passed over: nobody else's file is run.
    """
    tried = started_by()
    for name in srun_names():
        for folder in os.environ.get("PATH", "").split(":"):
            path = os.path.join(folder, name)
            if not os.path.isabs(folder) or not os.access(path, os.X_OK) or os.path.isdir(path):
                continue
            real = os.path.realpath(path)
            if os.path.basename(real) != "safe-srun" and real != tried:
                return path
    return ""


def started_by() -> str:
    """The srun, a script of the site, that a safe-srun above has started and that has started this one; else empty."""
    host, _, rest = os.environ.get(MARK, "").partition(" ")
    above, _, path = rest.partition(" ")
    if host != os.uname().nodename:
        return ""
    pid = below = os.getpid()
    while pid > 1 and str(pid) != above:
        below = pid
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            return ""
    try:
        # The real one runs programs too (SrunProlog): what those start is a session of its own.
        real = os.path.basename(os.readlink(f"/proc/{below}/exe")) in srun_names()
    except OSError:
        real = False
    return "" if pid <= 1 or real else path


def mark(srun: str) -> str:
    """What to leave in the environment for `started_by`."""
    return f"{os.uname().nodename} {os.getpid()} {os.path.realpath(srun)}"


def is_script(path: str) -> bool:
    """Whether the kernel would start an interpreter for it."""
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def become_srun(srun: str, arguments: "list[str]") -> None:
    """Becomes this srun; an empty name is one that is not there. Raises OSError."""
    if is_script(srun):
        os.environ[MARK] = mark(srun)
    else:
        os.environ.pop(MARK, None)
    give_back_signals()
    os.execv(srun, [os.path.basename(srun) or "srun", *arguments])


def give_back_signals() -> None:
    """Python ignores these two, and ignored signals stay ignored over exec."""
    import _signal  # type: ignore[import-not-found]

    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)


def local(arguments: "list[str]") -> bool:
    """Whether there is a command to run without srun."""
    return arguments[:1] == ["--local"] and len(arguments) > 1


def main(arguments: "list[str]") -> int:
    """Runs safe-srun. Returns only with an exit code of its own."""
    if os.environ.get("SHLVL") == "0":
        # The wrapper's bash leaves this where the variable was not set.
        del os.environ["SHLVL"]
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    try:
        from handwash import srun
    except Exception as error:
        fall_back(arguments, error)
        return 125
    return srun.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
