"""``make fault-matrix``: the whole zoo, in every way to end, with every kind of process tracking, under srun and safe-srun.

One session holds the whole zoo, so a run covers a row of cells. A cell is red where something of the session is left, where
anybody else is lost, or where safe-srun says that all is gone and it is not. Exit code 1 with a red cell that is not named as
beyond anybody's reach; with such a one only where the word was false.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.faults import random_kills
from tests.faults.session import PLAIN, SAFE, Ended, Session, heir, lost, strangers
from tests.faults.ways import WAYS, Way
from tests.slurm.bystanders import bystanders
from tests.testbed import outside
from tests.testbed.cluster import Cluster
from tests.testbed.configuration import PROCTRACKS
from tests.testbed.programs.zoo import ESCAPEES

ROOT = Path(__file__).resolve().parents[2]
# The step is killed this long after it was asked to end by its time limit; 30 s is Slurm's default.
SETTINGS = ["KillWait=2"]
PATIENCE = {PLAIN: 5.0, SAFE: 60.0}


class Cell(NamedTuple):
    """One run and what was seen."""

    way: str
    tool: str
    proctrack: str
    ended: Ended | None
    victims: list[str]
    fault: str
    beyond: str

    def red(self) -> str:
        """Why the promise is broken; empty where it holds. Nobody promised anything for plain srun, except to others."""
        if self.fault:
            return self.fault
        if self.victims:
            return f"wrong victims: {'; '.join(self.victims)}"
        if self.tool == PLAIN or self.ended is None:
            return ""
        if self.ended.claim and self.ended.at_word:
            return f"said to be clean with {words(self.ended)}"
        if self.beyond:
            return ""
        if self.ended.left:
            return f"left: {words(self.ended)}"
        if self.ended.chain:
            return f"handwash itself is left: {', '.join(self.ended.chain)}"
        return "" if self.ended.queue_s is not None else "the job does not leave the queue"


def words(ended: Ended) -> str:
    counter = ended.left or ended.at_word
    return ", ".join(f"{name} {count}" if count > 1 else name for name, count in sorted(counter.items()))


def run(cluster: Cluster, name: str, way: Way, tool: str, patience: float, names: Sequence[str]) -> Cell:
    """One session with its bystanders."""
    beyond = way.beyond if cluster.proctrack in way.beyond_with else ""
    ended: Ended | None = None
    victims: list[str] = []
    fault = ""
    names = way.animals or names
    try:
        with bystanders(cluster) as people, contextlib.ExitStack() as stack:
            session = Session(
                cluster, tool, names=names, options=way.options, terminal=way.terminal, full_disk=way.full_disk
            )
            # Around the session: what is moved to a cgroup has ended before the cgroup goes.
            cgroups = {
                animal: stack.enter_context(outside.Cgroup(f"handwash-{session.token}-{animal}"))
                for animal in outside.MOVED
                if animal in names
            }
            stack.enter_context(session)
            session.await_up()
            for who, animal in session.found():
                if animal in cgroups:
                    cgroups[animal].move(who.pid)
            if "frozen" in cgroups:
                cgroups["frozen"].freeze()
                stack.callback(cgroups["frozen"].thaw)
            session.settle()
            others = [*people, *stack.enter_context(strangers(session))]
            if outside.can_choose_pids():
                others += stack.enter_context(heir(session))
            way.act(session)
            ended = session.watch(patience)
            victims += lost(others)
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        fault = f"{type(error).__name__} in {Path(at.filename).name}:{at.lineno}: {error or at.line}"
    cluster.revive()
    return Cell(name, tool, cluster.proctrack, ended, victims, fault, beyond)


def possible(way: Way) -> bool:
    """Whether this machine has what it takes."""
    return outside.can_move() or not set(way.animals) & set(outside.MOVED)


def seconds(value: float | None, limit: float) -> str:
    return f">{limit:.0f}" if value is None else f"{value:.1f}"


def line(cell: Cell, patience: float) -> str:
    """One row of the table."""
    head = f"{cell.proctrack:10}{cell.way:22}{cell.tool:10}"
    if cell.ended is None:
        return f"{head}{'-':>5}{'-':>8}{'-':>9}  {cell.red()}"
    end = cell.ended
    note = cell.red() or (f"beyond reach: {cell.beyond}" if cell.beyond else "")
    if cell.tool == PLAIN:
        note = note or words(end)
    return (
        f"{head}{sum(end.left.values()) if cell.tool == SAFE else sum(end.at_word.values()):5}"
        f"{len(cell.victims):8}{seconds(end.queue_s, patience):>9}{seconds(end.word_s, patience):>7}"
        f"  {end.outcome if cell.tool == SAFE else '':12}{note}"
    )


HEAD = f"{'proctrack':10}{'way to end':22}{'tool':10}{'left':>5}{'victims':>8}{'queue s':>9}{'word s':>7}  outcome"


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--proctrack", action="append", choices=PROCTRACKS, help="only this one (may be repeated)")
    parser.add_argument("--way", action="append", choices=list(WAYS), help="only this one (may be repeated)")
    parser.add_argument("--tool", action="append", choices=(PLAIN, SAFE), help="only this one")
    parser.add_argument("--escapee", action="append", choices=list(ESCAPEES), help="only this one (may be repeated)")
    parser.add_argument("--without", action="append", choices=list(ESCAPEES), help="not this one (may be repeated)")
    parser.add_argument("--random", type=int, default=0, help="instead: so many runs with KILL at a random moment")
    parser.add_argument("--pairs", type=int, default=0, help="with --random: so many with two killed at once")
    parser.add_argument("--seed", type=int, default=None, help="with --random: repeat these throws")
    parser.add_argument("--verbose", action="store_true", help="show what the tool said in every cell")
    return parser


def main() -> int:
    chosen = options().parse_args()
    names = [name for name in chosen.escapee or ESCAPEES if name not in (chosen.without or ())]
    begun = time.monotonic()
    if chosen.random or chosen.pairs:
        seed = chosen.seed if chosen.seed is not None else random.randrange(1 << 32)
        bad = 0
        tracks = chosen.proctrack or ["linuxproc"]
        for proctrack in tracks:
            with Cluster(proctrack, settings=SETTINGS) as cluster:
                cluster.install_handwash(ROOT)
                for count, at_once in ((chosen.random, 1), (chosen.pairs, 2)):
                    bad += random_kills.play(cluster, seed, count, at_once) if count else 0
        print(f"in {time.monotonic() - begun:.0f} s")
        return 1 if bad else 0
    cells: list[Cell] = []
    print(HEAD, flush=True)
    for proctrack in chosen.proctrack or PROCTRACKS:
        with Cluster(proctrack, settings=SETTINGS) as cluster:
            cluster.install_handwash(ROOT)
            for name in chosen.way or WAYS:
                for tool in chosen.tool or (PLAIN, SAFE):
                    way = WAYS[name]
                    if tool not in way.tools or not possible(way):
                        continue
                    patience = way.patience or PATIENCE[tool]
                    cell = run(cluster, name, way, tool, patience, names)
                    cells.append(cell)
                    print(line(cell, patience), flush=True)
                    if cell.ended and (chosen.verbose or (cell.tool == SAFE and cell.red())):
                        print("    " + cell.ended.said.strip().replace("\n", "\n    "), flush=True)
    red = [cell for cell in cells if cell.red()]
    print(f"{len(cells)} runs, {len(red)} red, in {time.monotonic() - begun:.0f} s")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
