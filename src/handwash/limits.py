"""What a login node is not for: own processes over the site's limits. Pure."""

from __future__ import annotations

from handwash.frozen import frozen
from handwash.model import Process, Survey, Unknown, Verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_NAMED = 3  # how many of the largest contributors are named


@frozen
class Policy:
    """The limits on a login node, for a process alone and for all of one's own together.

    `login_cores`: cores kept busy, on average over a process's life, once it has used `login_cpu_s` seconds of CPU time.
    `login_memory`: bytes of resident memory. `login_threads`: threads.
    """

    login_cores: float = 0.5
    login_cpu_s: float = 60.0
    login_memory: float = 8.0 * 1024**3
    login_threads: float = 256


@frozen
class Excess:
    """One limit that is passed. `kind`: cores, memory (bytes), threads, gpu (processes on one). `by`: the largest, first."""

    kind: str
    measured: float
    limit: float
    by: tuple[Process, ...]


def cores(process: Process, policy: Policy, now: float) -> float:
    """Cores it has kept busy, on average over its life; none while it has used little CPU time in all."""
    if process.cpu_s < policy.login_cpu_s:
        return 0.0
    return process.cpu_s / max(now - process.started, 0.01)


def on_gpu(process: Process) -> bool:
    """Computes on a GPU by either look. A monitor (nvitop) has device files open too, but no context."""
    return process.computes or (bool(process.gpus) and not process.devices)


def is_load(process: Process, policy: Policy, now: float) -> bool:
    """Whether this process alone is over a limit of the login node."""
    return (
        on_gpu(process)
        or cores(process, policy, now) >= policy.login_cores
        or process.rss >= policy.login_memory
        or process.threads >= policy.login_threads
    )


def over(survey: Survey, verdict: Verdict, policy: Policy, now: float) -> tuple[Excess, ...]:
    """The login node's limits that one's own processes pass together, services left out. Nothing on other nodes."""
    if isinstance(survey.node, Unknown) or survey.node.kind not in ("login", "allocation-shell"):
        return ()
    own = [
        one.process
        for one in verdict.judged
        if one.whose in ("login-work", "session", "ended-job", "no-job") and one.process.state not in ("Z", "X")
    ]
    measures: tuple[tuple[str, Callable[[Process], float], float], ...] = (
        ("cores", lambda process: cores(process, policy, now), policy.login_cores),
        ("memory", lambda process: process.rss, policy.login_memory),
        ("threads", lambda process: process.threads, policy.login_threads),
        ("gpu", on_gpu, 1),
    )
    found = []
    for kind, measure, limit in measures:
        total = sum(measure(process) for process in own)
        if total >= limit:
            largest = sorted((process for process in own if measure(process)), key=measure, reverse=True)
            found.append(Excess(kind, total, limit, tuple(largest[:_NAMED])))
    return tuple(found)
