"""Ends processes until none of them is left, agents and their new workers included, and sees the GPU memory come back."""

from __future__ import annotations

from handwash import cleaning, groups, judge, survey, world
from handwash.config import Config
from handwash.frozen import frozen, replace
from handwash.model import Judged, Survey, Unknown
from handwash.teardown import end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

# How long the driver may take to give memory back after a process has gone.
MEMORY_BACK_S = 3.0
# Who looks after workers does so at intervals; torchrun at one of 0.1 s (torch/distributed/run.py, --monitor-interval).
AGENT_S = 0.4
# An agent that is being ended can start workers anew: so often they are looked for, and ended with it.
ROUNDS = 5


@frozen
class Done:
    """`ended`, `killed`: pids. `left`: pid and reason. `after`: the GPUs when all was over; `memory`: what came back.

    `driver_silent`: GPUs were held, and the driver had no word on their memory from the beginning.
    `unchecked`: why it could not be told whether something has been started anew. `agents`: by the pid of one that has
    been, who has started it: a process of the person's own that was not to be ended.
    """

    ended: tuple[int, ...]
    killed: tuple[int, ...]
    left: tuple[tuple[Judged, str], ...]
    memory: tuple[cleaning.Returned, ...]
    after: Survey
    driver_silent: bool = False
    unchecked: str | None = None
    agents: tuple[tuple[int, Judged], ...] = ()

    @property
    def returned(self) -> bool | None:
        """Whether all GPU memory came back; None where that could not be told of some, and nothing is known to be missing."""
        words = {row.back for row in self.memory} | ({None} if self.driver_silent else set())
        return False if False in words else None if None in words else True


def end_all(settings: Config, seen: Survey, targets: tuple[Judged, ...], only_leftovers: bool = True) -> Done:
    """Ends `targets`, then whatever of the same groups has appeared since, in a bounded number of rounds.

    What has appeared and belongs to none of the groups is not ended: nobody has agreed to it. It is in `left` as "new", or
    as "restarted" where the parent of one that was ended has started the same program anew.
    """
    agreed = {groups.key(one) for one in targets}
    met: dict[tuple[int, int], Judged] = {}
    killed: list[int] = []
    ended: list[int] = []
    left: dict[int, tuple[Judged, str]] = {}
    turn = targets
    now: Union[tuple[Judged, ...], Unknown] = ()
    fresh: tuple[Judged, ...] = ()
    for number in range(ROUNDS):
        met.update({(one.process.pid, one.process.start_ticks): one for one in turn})
        outcome = end.end(list(dict.fromkeys(map(_pair, turn))), settings.grace, world.uid())
        by_pid = {one.process.pid: one for one in turn}
        ended += [*outcome.ended, *outcome.gone]
        killed += outcome.killed
        left.update({pid: (by_pid[pid], why) for pid, why in outcome.left})
        if number == 0 and cleaning.has_agent(targets, seen):
            world.pause(AGENT_S)
        now = _now(settings, seen)
        if isinstance(now, Unknown):
            break
        fresh = _fresh(now, seen, targets)
        # Of a job or session that was agreed to, or started by what is being ended. Never the name alone: somebody may
        # have started the same program anew, and that is other work.
        turn = tuple(
            one
            for one in fresh
            if _pair(one) not in met
            and (one.leftover or not only_leftovers)
            and (_is_kin(one, met) or (only_leftovers and _is_agreed(one, agreed)))
        )
        if not turn:
            break
    else:
        left.update({one.process.pid: (one, "restarted") for one in turn})
    agents: dict[int, Judged] = {}
    if not isinstance(now, Unknown):
        rest = tuple(one for one in fresh if _pair(one) not in met)
        agents = cleaning.restarted(rest, tuple(met.values()), now, seen.chain)
        left.update({one.process.pid: (one, "restarted") for one in rest if one.process.pid in agents})
        if only_leftovers:
            left.update({one.process.pid: (one, "new") for one in rest if one.leftover and one.process.pid not in left})
    everything = tuple(met.values())
    after, memory = _memory(settings, seen, everything, ended)
    return Done(
        ended=tuple(dict.fromkeys(ended)),
        killed=tuple(killed),
        left=tuple(left.values()),
        memory=memory,
        after=after,
        driver_silent=isinstance(seen.gpus, Unknown) and any(one.process.computes for one in everything),
        unchecked=now.why if isinstance(now, Unknown) else None,
        agents=tuple(agents.items()),
    )


def _is_agreed(one: Judged, agreed: set[tuple[object, ...]]) -> bool:
    attributed = one.process.job is not None or one.process.session is not None
    return attributed and groups.key(one) in agreed


def _is_kin(one: Judged, met: dict[tuple[int, int], Judged]) -> bool:
    """A child of one of them, or in the process group or session that one of them leads."""
    leaders = {pid for pid, _start in met}
    return bool({one.process.ppid, one.process.pgid, one.process.sid} & leaders)


def _pair(one: Judged) -> tuple[int, int]:
    return one.process.pid, one.process.start_ticks


def _now(settings: Config, seen: Survey) -> Union[tuple[Judged, ...], Unknown]:
    """The processes now, judged with the first look's other answers: the controller is asked once."""
    now = survey.take(settings.deadline, only=("processes",))
    if isinstance(now.processes, Unknown):
        return now.processes
    again = replace(seen, processes=now.processes, chain=now.chain, running_sessions=now.running_sessions)
    return judge.judge(again, world.uid(), world.now(), settings.policy).judged


def _fresh(now: tuple[Judged, ...], seen: Survey, targets: tuple[Judged, ...]) -> tuple[Judged, ...]:
    """Those of one's own that the first look did not have."""
    newest = max((one.process.start_ticks for one in targets), default=0)
    before = set() if isinstance(seen.processes, Unknown) else {(one.pid, one.start_ticks) for one in seen.processes}
    return tuple(
        one
        for one in now
        if one.process.uid == world.uid()
        and _pair(one) not in before
        and one.process.start_ticks >= newest
        and one.process.state not in ("Z", "X")
    )


def _memory(
    settings: Config, seen: Survey, targets: tuple[Judged, ...], gone: list[int]
) -> tuple[Survey, tuple[cleaning.Returned, ...]]:
    """Looks at the GPUs again until the memory that was held is back, or it has waited long enough."""
    if not any(one.process.gpus for one in targets):
        return seen, ()
    limit = world.monotonic() + MEMORY_BACK_S
    while True:
        after = survey.take(settings.deadline, only=("gpus",))
        rows = cleaning.returned(seen, after, targets, gone)
        if world.monotonic() > limit or all(row.back is not False for row in rows):
            return after, rows
        world.pause(0.1)


def cancel(job: str, step: str = "") -> bool | None:
    """`scancel JOB`, or `scancel JOB.STEP`, and whether it has left the queue then; None where that could not be told."""
    from handwash.schedulers import slurm_step
    from handwash.srun import confirm

    target = slurm_step.Target((job,), step, own=not step)
    confirm.ask(slurm_step.cancel_argv(target, whole_job=not step))
    word = confirm.confirm(target, urgent=False).answer.word
    return {slurm_step.GONE: True, slurm_step.THERE: False}.get(word)
