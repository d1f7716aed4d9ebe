"""The file of `srun --multi-prog`, rewritten so that every program in it is started by the supervisor.

An entry is `RANKS PROGRAM ARGUMENT…`; a backslash at the end continues it on the next line; single quotes keep everything,
a backslash the next character; `%t` and `%o` are the task's numbers (srun(1), "MULTIPLE PROGRAM CONFIGURATION"). The person's
lines stay as they are, so nothing in them needs to be understood: what comes before the program is put before it, on lines
of its own that are continued.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# Limits of srun and slurmstepd (read; 20.02 to 22.05): of the file, of a line in it, of the arguments of one program.
FILE_LIMIT = 60000
LINE_LIMIT = 1024
ARGUMENTS_LIMIT = 128
# Single quotes and continuation cost a few more characters.
PIECE = 800


def quote(word: str) -> list[str]:
    """One word as lines without their ends; cut outside of quotes, where a continued line goes on in the same word."""
    pieces = []
    for part in range(0, len(word), PIECE // 4):
        piece = word[part : part + PIECE // 4]
        pieces.append("'" + piece.replace("'", "'\\''") + "'")
    return pieces or ["''"]


def rewrite(text: str, before: Sequence[str], more: int) -> str | None:
    """The file with the words `before` put before each program; `more` arguments follow each on srun's command line.

    None where srun or slurmstepd would refuse the result, or refuses the file already.
    """
    head = "".join("\\\n".join(quote(word)) + " \\\n" for word in before)
    lines = []
    continued = False
    arguments = 0
    for line in text.split("\n"):
        words = line.split(None, 1)
        if len(line.encode("utf-8", "surrogateescape")) >= LINE_LIMIT - 2 or (continued and not words):
            return None
        if words and not continued and not words[0].startswith("#"):
            # Where the program is on the next line, srun and slurmstepd do not agree on what it is.
            if len(words) == 1 or words[1].startswith("\\"):
                return None
            line = f"{words[0]} {head}{words[1]}"
            arguments = len(before) + more
        # At least as many as there are: a blank may be quoted.
        arguments += len(words and words[-1].split())
        if arguments >= ARGUMENTS_LIMIT:
            return None
        continued = line.endswith("\\")
        lines.append(line)
    result = "\n".join(lines)
    return result if len(result.encode("utf-8", "surrogateescape")) < FILE_LIMIT else None


def read(path: str) -> str | None:
    """The person's file; None where it is not one that srun can read twice."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) >= FILE_LIMIT:
            return None
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except OSError:
        return None
