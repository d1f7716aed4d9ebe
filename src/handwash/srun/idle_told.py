"""While a session runs: what its nodes say of GPUs that do nothing, told once per stretch on the terminal of safe-srun."""

from __future__ import annotations

import os
import time

from handwash import world
from handwash.messages import _, ngettext
from handwash.srun import receipt, record
from handwash.teardown import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from handwash.schedulers.slurm_step import Target

# Of more nodes than these the rest is left out.
_MOST_NODES = 4


class Teller:
    """The keeper's. Nothing is told before two looks agree: nodes do not all answer at once. Nor while something else has
    the terminal: an editor, beside a safe-srun in the background."""

    def __init__(self, session: str, where: str, terminal_name: str, owner: int) -> None:
        """`owner`: safe-srun's pid."""
        self.session = session
        self.where = where
        self.terminal = terminal_name
        self.owner = owner
        self.last: frozenset[tuple[str, ...]] = frozenset()
        self.is_told = False

    def turn(self, target: Target, gpus: int | None) -> None:
        """`gpus`: how many the job holds, None where that is not known."""
        found = {word.node: word.idle for word in record.parts_of(self.session, self.where) if len(word.idle) == 6}
        now = frozenset((node, *fields) for node, fields in found.items())
        if not now:
            self.is_told = False
        elif now == self.last and not self.is_told and is_in_foreground(self.owner):
            text = sentence(now, target, gpus)
            self.is_told = bool(text)
            if text:
                say(text, self.terminal)
        self.last = now


def is_in_foreground(pid: int) -> bool:
    """Whether the terminal is its process group's (proc(5), fields pgrp and tpgid of stat)."""
    fields = (identity.slurp(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()
    return len(fields) > 5 and fields[2] == fields[5]


def sentence(rows: Iterable[tuple[str, ...]], target: Target, gpus: int | None) -> str:
    """What the nodes have seen, each row with its name first; empty where a row makes no sense."""
    rows = sorted(rows)
    try:
        count = sum(int(row[1]) for row in rows)
        memory = sum(int(row[3]) for row in rows)
        seconds = min(int(row[4]) for row in rows)
        since = max(float(row[5]) for row in rows)
        at_work = any(row[6] == "1" for row in rows)
        clock = time.strftime("%H:%M" if world.now() - since < 43200 else "%Y-%m-%d %H:%M", time.localtime(since))
    except (ValueError, OverflowError):
        return ""
    places = [f"{row[0]}: {row[2]}" for row in rows[:_MOST_NODES]] + ["…"] * (len(rows) > _MOST_NODES)
    if memory:
        text = ngettext(
            "{count} GPU ({places}) has done nothing for the last {seconds} s, with {memory} held, and was not seen busy "
            "since {time}; each hour costs {count} GPU-hour",
            "{count} GPUs ({places}) have done nothing for the last {seconds} s, with {memory} held, and were not seen busy "
            "since {time}; each hour costs {count} GPU-hours",
            count,
        )
    else:
        text = ngettext(
            "{count} GPU ({places}) has done nothing for the last {seconds} s, and was not seen busy since {time}; "
            "each hour costs {count} GPU-hour",
            "{count} GPUs ({places}) have done nothing for the last {seconds} s, and were not seen busy since {time}; "
            "each hour costs {count} GPU-hours",
            count,
        )
    # `render`'s, whose module the keeper has no other use for.
    held = f"{memory / 2**30:.1f} GiB"
    clauses = [text.format(count=count, places="; ".join(places), seconds=seconds, memory=held, time=clock)]
    if at_work:
        clauses.append(_("programs of yours are at work there without them"))
    elif target.own and count == gpus:
        clauses.append(_("to end the job: scancel {job}").format(job=" ".join(target.jobs)))
    name = target.name
    about = _("job {job}").format(job=name) if target.own else _("step {step}").format(step=name)
    return receipt.line(*clauses, about=about)


def say(text: str, terminal_name: str) -> None:
    """One line on a terminal that a living safe-srun holds open, by a file of this process's own: one that is stopped
    (Ctrl-S) costs the line and holds nobody up."""
    try:
        fd = os.open(terminal_name, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if os.isatty(fd):
            os.write(fd, f"handwash: {text}\n".encode("utf-8", "replace"))
    except OSError:
        pass
    finally:
        os.close(fd)
