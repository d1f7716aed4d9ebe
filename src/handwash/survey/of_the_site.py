"""Jobs and place where the site has a scheduler module of its own: both looks in one child, which imports it once for both."""

from __future__ import annotations

from handwash import run, schedulers
from handwash.model import Unknown
from handwash.schedulers.of_the_site import OfTheSite, packed, unpacked
from handwash.survey import jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

# For the reading of the evidence, which waits for the queue's answer or for that not to come.
_PLACE_S = 0.2


def look(wanted: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """The answers of `wanted`, out of `jobs` and `node`, side by side; that of the node with the place already read."""
    here = schedulers.here()
    assert isinstance(here, OfTheSite)
    here.load()
    left = run.left() or 0.0
    seen = run.looks(wanted, left - min(_PLACE_S, left / 5))
    queue = jobs.read(seen["jobs"]) if isinstance(seen.get("jobs"), dict) else None
    living = frozenset(job.number for job in queue) if isinstance(queue, tuple) else None
    node = seen.get("node")
    # What is missing in the list is asked for later, by what the processes say.
    if isinstance(node, dict) and (living is None or here.lists_all):
        placed = here.placed(node["scheduler"], living)
        seen["node"] = placed if isinstance(placed, Unknown) else {**node, "scheduler": placed}
    return {name: packed(answer) for name, answer in seen.items()}


def read(seen: Any, wanted: Mapping[str, Any], deadline: float) -> dict[str, Any]:
    """The answer of `look` as those of two looks. `deadline`: that of all looks, seconds."""
    answers = {name: seen if isinstance(seen, Unknown) else unpacked(seen[name]) for name in wanted}
    for name, answer in answers.items():
        # Theirs was a little less.
        if isinstance(answer, Unknown) and answer.cause == "timed-out":
            answers[name] = run.silent(deadline)
    return answers
