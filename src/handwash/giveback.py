"""Ends processes until none of them is left, agents and their new workers included, and sees the GPU memory come back."""

from __future__ import annotations

from handwash import cleaning, groups, judge, survey, world
from handwash.config import Config
from handwash.frozen import frozen, replace
from handwash.model import Judged, Process, Survey, Unknown
from handwash.teardown import end, identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Union

# How long the driver may take to give memory back after a process has gone.
MEMORY_BACK_S = 3.0
# Who looks after workers does so at intervals; torchrun at one of 0.1 s (torch/distributed/run.py, --monitor-interval).
AGENT_S = 0.4
# An agent that is being ended can start workers anew: so often they are looked for, and ended with it.
ROUNDS = 5

# How far a start time, told in hundredths of a second since the boot (proc(5)), and the clock may be apart.
_CLOCK_S = 0.02


@frozen
class Done:
    """`ended`, `killed`: pids. `left`: pid and reason. `after`: the GPUs when all was over; `memory`: what came back.

    `driver_silent`: GPUs were held, and the driver had no word on their memory from the beginning.
    `unchecked`: why it could not be told whether something has been started anew. `agents`: by the pid of one that has
    been, who has started it: a process of the person's own that was not to be ended. `parents`: those that had started
    what was ended, are still there, and have started nothing in its place so far; services left out.
    """

    ended: tuple[int, ...]
    killed: tuple[int, ...]
    left: tuple[tuple[Judged, str], ...]
    memory: tuple[cleaning.Returned, ...]
    after: Survey
    driver_silent: bool = False
    unchecked: str | None = None
    agents: tuple[tuple[int, Judged], ...] = ()
    parents: tuple[Judged, ...] = ()

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
    agreed = {_origin(one) for one in targets}
    met: dict[tuple[int, int], Judged] = {}
    killed: list[int] = []
    ended: list[int] = []
    left: dict[int, tuple[Judged, str]] = {}
    parents = {(one.pid, one.start_ticks) for one in cleaning.staying_parents(targets, seen)}
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
        if number == 0 and parents:
            world.pause(AGENT_S)
        now = _now(settings, seen)
        if isinstance(now, Unknown):
            break
        fresh = _fresh(now, seen, targets)
        # Left by the same job, step or session that is over, or started by what is being ended. Never the name alone:
        # somebody may have started the same program anew, and that is other work.
        leaders = _leaders(met)
        turn = tuple(
            one
            for one in fresh
            if _pair(one) not in met
            and (one.leftover or not only_leftovers)
            and (_is_kin(one, leaders) or (only_leftovers and _is_agreed(one, agreed, seen)))
        )
        if not turn:
            break
    else:
        left.update({one.process.pid: (one, "restarted") for one in turn})
    agents: dict[int, Judged] = {}
    staying: tuple[Judged, ...] = ()
    if not isinstance(now, Unknown):
        rest = tuple(one for one in fresh if _pair(one) not in met)
        agents = cleaning.restarted(rest, tuple(met.values()), now, seen.chain)
        left.update({one.process.pid: (one, "restarted") for one in rest if one.process.pid in agents})
        if only_leftovers:
            left.update({one.process.pid: (one, "new") for one in rest if one.leftover and one.process.pid not in left})
        busy = {_pair(agent) for agent in agents.values()}
        staying = tuple(one for one in now if _pair(one) in parents - busy and _may_start(one))
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
        parents=staying,
    )


def _may_start(one: Judged) -> bool:
    """Whether it looks after what it has started, as far as can be told: a service (tmux) gives its children to a person."""
    return one.process.uid == world.uid() and one.whose != "service" and one.process.state not in ("Z", "X")


def interrupted(targets: tuple[Judged, ...], seen: Survey) -> Done:
    """What has become of `targets` where the person has broken off: those that live are in `left` as "interrupted"."""
    alive = {_pair(one) for one in targets if _lives(one)}
    return Done(
        ended=tuple(one.process.pid for one in targets if _pair(one) not in alive),
        killed=(),
        left=tuple((one, "interrupted") for one in targets if _pair(one) in alive),
        memory=(),
        after=seen,
    )


def _lives(one: Judged) -> bool:
    found = identity.same(*_pair(one))
    return found is not None and found.alive


def _origin(one: Judged) -> tuple[object, ...]:
    """Where it comes from: the group that a person has seen, and the step."""
    return (*groups.key(one), one.process.step)


def _is_agreed(one: Judged, agreed: set[tuple[object, ...]], seen: Survey) -> bool:
    """More of the same, out of a job, a step or a session that is over: there nobody starts anything by hand any more."""
    process = one.process
    attributed = process.job is not None or process.session is not None
    is_over = one.whose in ("ended-job", "no-job") or (process.job, process.step) in _ended_steps(seen)
    return attributed and is_over and _origin(one) in agreed


def _leaders(met: dict[tuple[int, int], Judged]) -> set[int]:
    """The pids of what was ended, without those that somebody else has by now: of that one nobody has spoken."""
    return {pid for pid, start in met if identity.start_of(pid) in (None, start)}


def _is_kin(one: Judged, leaders: set[int]) -> bool:
    """A child of one of them, or in the process group or session that one of them leads, not in one of its own."""
    process = one.process
    return bool(({process.ppid, process.pgid, process.sid} - {process.pid}) & leaders)


def _pair(one: Judged) -> tuple[int, int]:
    return one.process.pid, one.process.start_ticks


def _now(settings: Config, seen: Survey) -> Union[tuple[Judged, ...], Unknown]:
    """The processes now, judged with the first look's other answers: the controller is asked again of new jobs alone."""
    now = survey.take(settings.deadline, only=("processes",))
    if isinstance(now.processes, Unknown):
        return now.processes
    again = replace(
        seen,
        processes=now.processes,
        chain=now.chain,
        running_sessions=now.running_sessions,
        living_steps=_living_steps(seen, now.processes),
    )
    judged = judge.judge(again, world.uid(), world.now(), settings.policy)
    before = set() if isinstance(seen.processes, Unknown) else {one.job for one in seen.processes}
    if any(one.whose == "ended-job" and one.process.job not in before for one in judged.leftovers):
        again = with_new_jobs(settings, again)
        if isinstance(again.jobs, Unknown):
            return again.jobs
        judged = judge.judge(again, world.uid(), world.now(), settings.policy)
    return judged.judged


def with_new_jobs(settings: Config, seen: Survey) -> Survey:
    """With the queue asked again: a job that has started since it was asked is not over because it was not in it then."""
    if isinstance(seen.jobs, Unknown):
        return seen
    jobs = survey.take(settings.deadline, only=("jobs",)).jobs
    if isinstance(jobs, Unknown):
        return replace(seen, jobs=jobs)
    known = {job.number for job in seen.jobs}
    return replace(seen, jobs=(*seen.jobs, *(job for job in jobs if job.number not in known)))


def may_have_started(targets: Iterable[Judged], seen: Survey) -> bool:
    """Whether one of them is left over because its job is not in the queue, though it can be too new for that answer.

    The queue is asked beside the look at the processes. What ran before it was asked had its job in it, or outlives it.
    """
    return any(one.whose == "ended-job" and one.process.started >= seen.taken - _CLOCK_S for one in targets)


def _ended_steps(seen: Survey) -> set[tuple[str | None, str | None]]:
    """Job and step of what the first look found of this shell's job and the list of steps, made after it, has not."""
    if isinstance(seen.processes, Unknown) or isinstance(seen.node, Unknown):
        return set()
    job, living = seen.node.job, seen.living_steps
    return {(one.job, one.step) for one in seen.processes if one.job == job and judge.has_ended(one, living)}


def _living_steps(seen: Survey, now: tuple[Process, ...]) -> tuple[str, ...] | None:
    """All but those that had ended before: Slurm gives a step's number once. A step that the list is too old for lives."""
    if seen.living_steps is None:
        return None
    ended = {step for _job, step in _ended_steps(seen)}
    return tuple({one.step for one in now if one.step is not None} - ended)


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
