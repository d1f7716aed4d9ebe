"""Which jobs are mine: the scheduler's answer, and what it tells of the site."""

from __future__ import annotations

from handwash import run, schedulers
from handwash.model import Job, Site, Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Union


def look() -> dict[str, Any]:
    """The scheduler's answer as it came."""
    return {"said": schedulers.here().ask()}


def read(seen: dict[str, Any]) -> Union[tuple[Job, ...], Unknown]:
    """The jobs, or `Unknown` with the reason."""
    try:
        return schedulers.here().jobs(seen["said"])
    except run.CouldNotTell as reason:
        return Unknown(str(reason))


def site(seen: Union[dict[str, Any], Unknown]) -> Site:
    """What the answer tells of the site's settings; nothing where there is none."""
    return Site() if isinstance(seen, Unknown) else schedulers.here().site(seen["said"])
