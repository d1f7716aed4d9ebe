"""``matrix.py --random N``: KILL to a random one of the chain, at a random moment, N times; and to two of them at once."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.faults.session import SAFE, Ended, Session, lost
from tests.slurm.bystanders import bystanders
from tests.testbed.cluster import Cluster
from tests.testbed.processes import identity, send, wait_until

WHO = (SAFE, "srun", "outer", "inner", "guardian")
MOMENTS = 1.5
# The command ends by itself so long after its start, if it still lives.
COMMAND = 3.0
PATIENCE = 20.0
SIDE_BY_SIDE = 4
# The usual ones, and each kind that needs more than a signal.
ANIMALS = (
    "background", "nohup", "setsid", "double-fork", "double-fork-cleared", "holds-output", "ignores-term", "stopped",
    "restarts-workers", "wicked-name", "tmux",
)  # fmt: skip


class Throw(NamedTuple):
    """Who is killed and when, in seconds since safe-srun's start: not before that, and as soon as they are all there."""

    number: int
    who: tuple[str, ...]
    moment: float


class Outcome(NamedTuple):
    """What was seen of it. `at`: the moment; None where the session was over before they were there."""

    throw: Throw
    at: float | None
    ended: Ended | None
    fault: str

    def red(self) -> str:
        if self.fault or self.ended is None:
            return self.fault
        if self.ended.claim and self.ended.at_word:
            return "said to be clean, and was not"
        if self.ended.left:
            return "left"
        if self.ended.chain:
            return f"handwash itself is left: {', '.join(self.ended.chain)}"
        return "" if self.ended.queue_s is not None else "the job does not leave the queue"


def throws(seed: int, count: int, at_once: int) -> Iterator[Throw]:
    dice = random.Random(f"{seed} {at_once}")
    for number in range(count):
        yield Throw(number, tuple(sorted(dice.sample(WHO, at_once))), dice.uniform(0.0, MOMENTS))


def one(cluster: Cluster, throw: Throw) -> Outcome:
    at = None
    ended = None
    fault = ""
    try:
        with Session(cluster, names=ANIMALS) as session:
            time.sleep(max(0.0, session.started + throw.moment - time.monotonic()))
            found: list[int] = []

            def all_there() -> bool:
                found.clear()
                members = session.members()
                found.extend(pid for name in throw.who for pid in members[name][:1])
                return len(found) == len(throw.who)

            if wait_until(lambda: all_there() or session.child.poll() is not None, COMMAND, 0.002):
                session.begin()
                at = time.monotonic() - session.started
                for who in [who for pid in found if (who := identity(pid))]:
                    send(who, signal.SIGKILL)
            time.sleep(max(0.0, session.started + COMMAND - time.monotonic()))
            session.order("exit 0", after_deed=session.deed is not None)
            ended = session.watch(PATIENCE)
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
    return Outcome(throw, at, ended, fault)


def tell(outcome: Outcome) -> str:
    """One line, and one for each process that is left."""
    throw = outcome.throw
    when = f"{outcome.at:.2f} s" if outcome.at is not None else "too late"
    head = f"#{throw.number} KILL {'+'.join(throw.who)} at {when} (thrown: {throw.moment:.2f} s)"
    end = outcome.ended
    if end is None:
        return f"{head}: {outcome.fault}"
    text = f"{head}: {outcome.red()}; outcome {end.outcome}, queue empty after {end.queue_s}, said {end.said.strip()!r}"
    rows = [f"    {name}, {age:+.2f} s old at the kill" for name, age in end.ages]
    return "\n".join(
        [text, *rows, *(f"    at the word: {name} {count}" for name, count in sorted(end.at_word.items()))]
    )


def play(cluster: Cluster, seed: int, count: int, at_once: int) -> int:
    """Plays and prints; how many were red."""
    print(f"{cluster.proctrack}: {count} × KILL to {at_once} of {', '.join(WHO)}, seed {seed}", flush=True)
    todo = list(throws(seed, count, at_once))
    outcomes: list[Outcome] = []
    victims: list[str] = []
    with contextlib.suppress(KeyboardInterrupt), ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for first in range(0, count, SIDE_BY_SIDE):
            with bystanders(cluster) as people:
                for outcome in pool.map(lambda throw: one(cluster, throw), todo[first : first + SIDE_BY_SIDE]):
                    outcomes.append(outcome)
                    if outcome.red():
                        print(tell(outcome), flush=True)
                victims += lost(people)
            cluster.revive()
    rows: Counter[str] = Counter("+".join(outcome.throw.who) for outcome in outcomes)
    for name in sorted(rows):
        mine = [outcome for outcome in outcomes if "+".join(outcome.throw.who) == name]
        with_left = [outcome for outcome in mine if outcome.ended and outcome.ended.left]
        said = Counter(outcome.ended.outcome for outcome in mine if outcome.ended)
        print(
            f"  {name:20} {len(mine):4} runs, {len(with_left)} with something left "
            f"({sum(sum(outcome.ended.left.values()) for outcome in with_left if outcome.ended)} processes), "
            f"{sum(bool(outcome.red()) for outcome in mine)} red, said: "
            + ", ".join(f"{word} {number}" for word, number in sorted(said.items())),
        )
    print(f"  {len(outcomes)} runs, wrong victims: {len(victims)}", flush=True)
    return sum(bool(outcome.red()) for outcome in outcomes) + len(victims)
