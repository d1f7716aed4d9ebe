"""`handwash idle-look SECONDS AGE`, which a session's guardian starts on the node: one word on the GPUs of its job.

`idle`, with how many, which, bytes held, seconds that the driver's samples cover, since when no look has found them busy, and
whether programs are at work on the CPU; `quiet`: they do nothing now, which is too little to say so; `busy`; or `blind`.
"""

from __future__ import annotations

import os

from handwash import idle_looks, survey, world
from handwash.config import Config
from handwash.exits import Exit
from handwash.frozen import replace
from handwash.model import Job, Survey, Unknown
from handwash.node import wire

# Nobody waits for it, but the guardian takes what is silent for long for hung.
_LONGEST_S = 20.0


def look(settings: Config, words: list[str]) -> int:
    """`words`: how long GPUs may do nothing and how old the step is, in seconds. The queue is not asked: a job of a thousand
    nodes would ask it a thousand times at once."""
    try:
        after_s, age_s = float(words[0]), float(words[1])
    except ValueError:
        return Exit.USAGE
    if settings.disable:
        return Exit.CLEAN
    seen = survey.take(min(settings.deadline, _LONGEST_S), only=("gpus", "processes", "node"))
    try:
        os.write(1, (wire.join(word(seen, after_s, age_s)) + "\n").encode())
    except OSError:
        # The guardian has died meanwhile.
        pass
    return Exit.CLEAN


def word(seen: Survey, after_s: float, age_s: float) -> list[object]:
    """The answer's fields."""
    if isinstance(seen.node, Unknown) or seen.node.job is None:
        return ["blind"]
    number = seen.node.job
    row = Job(number, number, "RUNNING", "", "", (seen.node.host,), None, int(age_s), None, None)
    doing, at_work = idle_looks.take(replace(seen, jobs=(row,)), after_s / 60)
    if all(one.is_idle is None for one in doing):
        return ["blind"]
    # An instant is too little for somebody who sits elsewhere.
    idle = [one for one in doing if one.is_idle and one.over_s is not None]
    if not idle:
        return ["busy"]
    now = world.now()
    # That is said of all of them.
    since = max(one.since or now for one in idle)
    if now - since < after_s:
        return ["quiet"]
    return [
        "idle",
        len(idle),
        ", ".join(str(one.gpu.index) for one in idle),
        sum(one.gpu.memory_used or 0 for one in idle if one.word == "held"),
        int(min(one.over_s or 0.0 for one in idle)),
        f"{since:.0f}",
        int(at_work),
    ]
