"""Processes that are one thing to a person: the same program of the same job and session. Pure."""

from __future__ import annotations

from handwash.frozen import frozen
from handwash.model import Judged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# From here on they become one line; a handful is shown one by one, with its pids.
CROWD = 4


@frozen
class Group:
    """Rows with the same user, program, job, session, owner and fate, in the order in which they were found."""

    rows: tuple[Judged, ...]

    @property
    def first(self) -> Judged:
        """The one that stands for all: the oldest."""
        return self.rows[0]

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(sorted(one.process.pid for one in self.rows))

    @property
    def gpus(self) -> tuple[int, ...]:
        return tuple(sorted({index for one in self.rows for index in one.process.gpus}))

    @property
    def is_crowd(self) -> bool:
        return len(self.rows) >= CROWD


def key(one: Judged) -> tuple[object, ...]:
    """What the rows of one group have in common."""
    process = one.process
    return (process.uid, process.name, process.job, process.session, one.whose, one.fate, one.leftover)


def of(rows: Iterable[Judged]) -> tuple[Group, ...]:
    """The groups, in the order of their oldest."""
    found: dict[tuple[object, ...], list[Judged]] = {}
    for one in rows:
        found.setdefault(key(one), []).append(one)
    return tuple(Group(tuple(members)) for members in found.values())


def lines(rows: Iterable[Judged]) -> tuple[Group, ...]:
    """A group for each line of a table: crowds together, the others one by one."""
    found: list[Group] = []
    for group in of(rows):
        found += [group] if group.is_crowd else [Group((one,)) for one in group.rows]
    return tuple(found)


def ranges(numbers: Iterable[int]) -> str:
    """`3-5, 9`: numbers in order, neighbours together."""
    parts: list[str] = []
    start = last = None
    for number in [*sorted(set(numbers)), None]:
        if start is not None and last is not None and (number is None or number != last + 1):
            parts.append(str(start) if start == last else f"{start}-{last}" if last > start + 1 else f"{start}, {last}")
            start = None
        if start is None:
            start = number
        last = number
    return ", ".join(parts)
