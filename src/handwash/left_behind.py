"""What was left running when a terminal closed with nobody to ask: written down for the next banner on this host."""

from __future__ import annotations

import os

from handwash import paths, world
from handwash.messages import ngettext
from handwash.model import Survey, Unknown, Verdict
from handwash.render import harmless
from handwash.teardown import identity

_CAP = 256 * 1024


def _path() -> str:
    return os.path.join(paths.state_dir(), f"left-behind.{world.host()}")


def note(verdict: Verdict) -> None:
    """Records pid, start time and program name of each leftover. A disk that is full or read-only costs the note."""
    lines = [
        f"{identity.boot_id()} {one.process.pid} {one.process.start_ticks} {harmless(one.process.name, 64)}"
        for one in verdict.leftovers
    ]
    try:
        paths.write_whole(_path(), ("\n".join(lines) + "\n").encode("utf-8", "replace"))
    except OSError:
        pass


def collect(seen: Survey) -> list[str]:
    """One sentence on what of the last note is still alive; the note is taken away. Empty where there was none."""
    if isinstance(seen.processes, Unknown):
        return []  # the note stays for a banner that can tell
    try:
        with open(_path(), "rb") as file:
            content = file.read(_CAP)
        os.unlink(_path())
    except OSError:
        return []
    alive = {(process.pid, process.start_ticks) for process in seen.processes if process.state not in ("Z", "X")}
    names = []
    for line in content.decode("utf-8", "replace").splitlines():
        words = line.split(" ", 3)
        if len(words) == 4 and words[0] == identity.boot_id() and words[1].isdigit() and words[2].isdigit():
            if (int(words[1]), int(words[2])) in alive:
                names.append(f"{words[1]} {harmless(words[3], 64)}")
    if not names:
        return []
    sentence = ngettext(
        "Still running since your terminal closed: {names}.",
        "Still running since your terminal closed: {names}.",
        len(names),
    )
    return [sentence.format(names=", ".join(names))]
