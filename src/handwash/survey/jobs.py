"""Which jobs are mine: the scheduler's answer, and what it tells of the site."""

from __future__ import annotations

from handwash import run, schedulers, world
from handwash.model import Job, Site, Unknown
from handwash.survey import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Union


def look() -> dict[str, Any]:
    """The scheduler's answer as it came, and where that need not be all, the job that this shell says it is in."""
    here = schedulers.here()
    own = None if here.lists_all else here.membership(procfs.groups("self"), world.env)[0]
    return {"said": here.ask(), "own": own}


def read(seen: dict[str, Any]) -> Union[tuple[Job, ...], Unknown]:
    """The jobs, or `Unknown` with the reason."""
    try:
        return schedulers.here().jobs(seen["said"])
    except run.CouldNotTell as reason:
        return Unknown(str(reason))


def unlisted(
    seen: dict[str, Any], jobs: tuple[Job, ...], named: Iterable[str | None], seconds: float
) -> Union[tuple[str, ...], Unknown]:
    """Of the jobs that processes here say they are in (`named`), or this shell does, those not in `jobs` and not over."""
    here = schedulers.here()
    if here.lists_all:
        return ()
    missing = {job for job in (seen["own"], *named) if job is not None} - {job.number for job in jobs}
    if not missing:
        return ()
    found: Union[list[str], Unknown] = run.looks({"jobs": lambda: list(here.not_over(sorted(missing)))}, seconds)[
        "jobs"
    ]
    return found if isinstance(found, Unknown) else tuple(found)


def site(seen: Union[dict[str, Any], Unknown]) -> Site:
    """What the answer tells of the site's settings, and what is so with every site of this kind."""
    return schedulers.here().site(None if isinstance(seen, Unknown) else seen["said"])
