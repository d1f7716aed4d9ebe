"""Who descends from whom, from /proc. Only the kernel's own links, never a name."""

from __future__ import annotations

import posix

from handwash.teardown import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def children(pid: int) -> list[int] | None:
    """The children of every thread of `pid`; None where the kernel has no such file (CONFIG_PROC_CHILDREN)."""
    try:
        threads = posix.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    missing = False
    for thread in threads:
        data = identity.slurp(f"/proc/{pid}/task/{thread}/children")
        if data is None:
            missing = True
        else:
            found.extend(map(int, data.split()))
    if missing and not found and identity.slurp(f"/proc/{pid}/task/{pid}/stat") is not None:
        return None
    return found


def pids() -> list[int]:
    """Every process id that /proc shows."""
    try:
        return [int(name) for name in posix.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def by_parent() -> dict[int, list[int]]:
    """Parent to children, from one pass over /proc: the way where `children` is missing."""
    found: dict[int, list[int]] = {}
    for pid in pids():
        stat = identity.stat_of(pid)
        if stat is not None:
            found.setdefault(stat.ppid, []).append(pid)
    return found


def below(roots: Iterable[int]) -> list[int]:
    """Every descendant of `roots`, parents before their children, the roots themselves left out."""
    scan: dict[int, list[int]] | None = None
    found: list[int] = []
    seen = set(roots)
    front = list(seen)
    while front:
        following: list[int] = []
        for pid in front:
            direct = children(pid) if scan is None else scan.get(pid, [])
            if direct is None:
                scan = by_parent()
                direct = scan.get(pid, [])
            for child in direct:
                if child not in seen:
                    seen.add(child)
                    found.append(child)
                    following.append(child)
        front = following
    return found


def descendants(*roots: int) -> list[tuple[int, int]]:
    """`below` with identities: (pid, start time) pairs, zombies too."""
    pairs = []
    for pid in below(roots):
        start = identity.start_of(pid)
        if start is not None:
            pairs.append((pid, start))
    return pairs


def ancestors(pid: int) -> list[int]:
    """The chain above `pid`, nearest first, without `pid` itself and without 0."""
    chain: list[int] = []
    while True:
        stat = identity.stat_of(pid)
        if stat is None or stat.ppid == 0 or stat.ppid in chain:
            return chain
        pid = stat.ppid
        chain.append(pid)
