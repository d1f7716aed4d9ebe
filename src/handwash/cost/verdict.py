"""The verdict on a command line, and how those on several commands become one. Pure."""

from __future__ import annotations

from fractions import Fraction

from handwash.cost.count import Part
from handwash.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

NO, IF_USED, YES, UNKNOWN = "no", "if-used-here", "yes", "unknown"
# What costs for certain counts before what could not be told, that before what may cost.
_ORDER = (NO, IF_USED, UNKNOWN, YES)


@frozen
class Cost:
    """`verdict`: no, if-used-here, yes, unknown. `why`: reasons; `unknown`: what could not be told, both in sentences.

    `parts`: the jobs that it makes. `back`: what to type to give the GPUs back, or "". `gpus_here`: GPUs of this node that
    it could occupy. `starts`: it is unknown because of a sign that it makes jobs.
    """

    verdict: str
    why: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    back: str = ""
    gpus_here: int = 0
    starts: bool = False

    @property
    def gpus(self) -> Fraction | None:
        """The most GPUs held, those of all parts together; None where that could not be told."""
        if self.verdict == IF_USED:
            return Fraction(self.gpus_here)
        if self.verdict == UNKNOWN:
            return None
        total = Fraction(0)
        for part in self.parts:
            if part.high is None:
                return None
            total += part.high * part.copies
        return total

    @property
    def limit_s(self) -> int | None:
        """The longest time limit in seconds; None where there is none, or it is not known."""
        limits = [part.limit_s for part in self.costing]
        return None if not limits or None in limits else max(one for one in limits if one is not None)

    @property
    def max_gpu_hours(self) -> Fraction | None:
        """The most GPU-hours; None where there is no limit, or it could not be told."""
        if self.verdict == NO:
            return Fraction(0)
        if self.verdict != YES:
            return None
        total = Fraction(0)
        for part in self.parts:
            hours = part.gpu_hours
            if hours is None:
                return None
            total += hours
        return total

    @property
    def costing(self) -> tuple[Part, ...]:
        """The parts that hold a GPU, or may."""
        return tuple(part for part in self.parts if part.high != 0)


def of_parts(parts: tuple[Part, ...], why: Iterable[str], unknown: Iterable[str], back: str) -> Cost:
    """The verdict on a command that makes a job of these parts."""
    if any(part.low > 0 for part in parts):
        verdict = YES
    elif any(part.high is None for part in parts):
        verdict = UNKNOWN
    elif any(part.high for part in parts):
        verdict = YES
    else:
        verdict = NO
    return Cost(verdict, _once(why), _once(unknown), parts, back if verdict != NO else "")


def together(costs: Iterable[Cost]) -> Cost:
    """The verdict on several commands, one after the other or side by side: each may run."""
    found = list(costs)
    verdict = max((one.verdict for one in found), key=_ORDER.index, default=NO)
    parts = [part for one in found for part in one.parts]
    if verdict == YES and any(one.verdict == UNKNOWN for one in found):
        parts.append(Part(Fraction(0), None, None, limit_known=False))
    return Cost(
        verdict,
        _once(reason for one in found for reason in one.why),
        _once(reason for one in found for reason in one.unknown),
        tuple(parts),
        next((one.back for one in found if one.back), ""),
        max((one.gpus_here for one in found), default=0),
        any(one.starts for one in found),
    )


def _once(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sentences))
