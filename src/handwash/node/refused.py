"""What is said of a command that the kernel did not execute."""

import posix

from handwash.node.wire import decode


def say(path: str, number: int) -> None:
    """slurmstepd's own words (22.05); `number` is the errno."""
    text = f"handwash: error: execve(): {missing(path) if number == 2 else path}: {posix.strerror(number)}"
    safe = "".join(letter if letter.isprintable() else "?" for letter in text)
    try:
        posix.write(2, f"{safe}\n".encode(errors="replace"))
    except OSError:
        pass


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
    return f"bad interpreter({decode(name)})"
