"""What the wrapper starts: `python -I -S …/handwash/srun/entry.py ARGV…`. If handwash is broken it becomes plain srun."""

import os
import sys


def fall_back(arguments: "list[str]", error: BaseException) -> None:
    """Says so in one line and becomes srun (or, with --local, the command itself)."""
    text = f"handwash: {type(error).__name__}: {error}; running without supervision\n"
    os.write(2, "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text).encode())
    command = (
        [word for word in arguments[1:2] if word != "--"] + arguments[2:] if local(arguments) else ["srun", *arguments]
    )
    try:
        os.execvp(command[0] if local(arguments) else find_srun(), command)
    except OSError as failed:
        os.write(2, f"handwash: {command[0]}: {failed.strerror}\n".encode(errors="replace"))
        os._exit(125)


def find_srun() -> str:
    """The first srun on the path that is not the wrapper itself, put there under its name; empty where there is none."""
    for folder in os.environ.get("PATH", "").split(":"):
        path = os.path.join(folder, "srun")
        if os.access(path, os.X_OK) and os.path.basename(os.path.realpath(path)) != "safe-srun":
            return path
    return ""


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
