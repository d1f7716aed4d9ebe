"""What safe-srun says of processes that could not be ended: in the receipt, in `handwash sessions`, to the administrator.

Loaded where there are such processes only.
"""

from __future__ import annotations

from handwash import groups, tell_clean, world
from handwash.messages import _, ngettext
from handwash.render import harmless

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def reasons(left: Iterable[tuple[int, str]]) -> str:
    """The pids, those with the same reason (a word of the teardown) together: `4711-4713 (it …), 4720 (it …)`."""
    by_reason: dict[str, list[int]] = {}
    for pid, why in left:
        by_reason.setdefault(why, []).append(pid)
    return ", ".join(f"{groups.ranges(pids)} ({tell_clean.why_left(why)})" for why, pids in by_reason.items())


def for_administrator(left: Iterable[tuple[str, int, str, str]], job: str) -> list[str]:
    """The lines to send, from (node, pid, name, reason); none where nothing hangs in the kernel. `job` may be empty."""
    rows: dict[tuple[str, str, str], list[int]] = {}
    for node, pid, name, why in left:
        if why.startswith("uninterruptible"):
            rows.setdefault((node, name, why), []).append(pid)
    lines = [_("Send this to the administrator; only a reset of the device or a reboot helps:")] if rows else []
    for (node, name, why), pids in rows.items():
        sentence = ngettext(
            "node {host}: process {pids} ({name}) of {user} is in state D, {why}, and does not go after KILL; job {job}",
            "node {host}: processes {pids} ({name}) of {user} are in state D, {why}, and do not go after KILL; job {job}",
            len(pids),
        )
        text = sentence.format(
            host=node, pids=groups.ranges(pids), name=name or "-", user=world.user_name(world.uid()), why=why,
            job=job or "-",
        )  # fmt: skip
        lines.append("  " + harmless(text, 600))
    return lines
