"""Python's own mark on the environment, taken out again: in the C locale it sets LC_CTYPE (PEP 538), -I or not."""

import posix

NAME = b"LC_CTYPE"
TARGETS = (b"C.UTF-8", b"C.utf8", b"UTF-8")


def undo() -> None:
    """Takes LC_CTYPE out where this interpreter has set it. What a process was started with stays in /proc/self/environ."""
    if posix.environ.get(NAME) not in TARGETS:
        return
    try:
        with open("/proc/self/environ", "rb") as file:
            given = file.read()
    except OSError:
        return
    if not any(entry.startswith(NAME + b"=") for entry in given.split(b"\0")):
        # `os.environ` is a view of this one.
        del posix.environ[NAME]
        posix.unsetenv(NAME)
