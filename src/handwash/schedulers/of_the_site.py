"""A scheduler that the site has a module for. It is code of the site's: what it raises, and what it answers against the
rules of `base.Scheduler`, is "could not tell", never nothing and never a fault of handwash.
"""

from __future__ import annotations

import marshal
import sys
from contextlib import redirect_stdout

from handwash.messages import _
from handwash.model import Job, Site
from handwash.run import CouldNotTell
from handwash.schedulers.base import Leaving, Partition, Place, Scheduler, Unusable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO

_KINDS = ("compute", "allocation-shell", "login", "")


def load(name: str) -> Scheduler:
    """`SCHEDULER` of a module that is installed where handwash is, in its interpreter's site-packages."""
    from importlib import import_module

    from handwash import world

    world.add_site_packages()
    try:
        with _quiet():
            found = import_module(name).SCHEDULER
        if not isinstance(found, Scheduler):
            sentence = _("The module {name}, named by the setting scheduler, has no SCHEDULER that is a scheduler.")
            return Unusable(sentence.format(name=name))
        # Without either the work of a job that runs would look like what was left behind.
        if type(found).jobs is Scheduler.jobs:
            sentence = _("The module {name}, named by the setting scheduler, does not tell which jobs there are.")
            return Unusable(sentence.format(name=name))
        if not found.variables and type(found).membership is Scheduler.membership:
            sentence = _("The module {name}, named by the setting scheduler, does not tell which job a process is in.")
            return Unusable(sentence.format(name=name))
        return OfTheSite(name, found)
    except (Exception, SystemExit) as error:
        sentence = _("The module {name}, named by the setting scheduler, cannot be used: {said}.")
        return Unusable(sentence.format(name=name, said=_said(error)))


class OfTheSite(Scheduler):
    """Asks the site's scheduler, and looks at each answer: of every method that handwash has a name for.

    What cannot be used is CouldNotTell, but for a line to type, which is left out then, and for what has a word for that.
    """

    def __init__(self, module: str, found: Scheduler) -> None:
        for name, ours in vars(Scheduler).items():
            theirs = getattr(found, name)
            if name.startswith("_"):
                continue
            if callable(ours):
                setattr(self, name, _guarded(module, name, theirs))
            elif isinstance(theirs, type(ours)):
                setattr(self, name, theirs)
            else:
                raise TypeError(f"{name} = {theirs!r}")
        if not all(isinstance(variable, bytes) for variable in self.variables):
            raise TypeError(f"variables = {self.variables!r}")


def _guarded(module: str, method: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    is_right = _CHECKS.get(method, _is_line if method.endswith("_line") else _is_anything)

    def ask(*words: Any) -> Any:
        sentence = _(
            "The module {name}, named by the setting scheduler, gave no answer that can be used: {method}, {said}"
        )
        try:
            with _quiet():
                answer = theirs(*words)
            if is_right(answer):
                return answer
            why = sentence.format(name=module, method=method, said=repr(answer)[:80])
        except CouldNotTell as reason:
            why = str(reason)
        except (Exception, SystemExit) as error:
            why = sentence.format(name=module, method=method, said=_said(error))
        if is_right is _is_line:
            return ""
        if method in _INSTEAD:
            return _INSTEAD[method]
        raise CouldNotTell(why)

    return ask


def _quiet() -> redirect_stdout[TextIO]:
    """What it prints is not part of our answer, which a program may read."""
    return redirect_stdout(sys.stderr)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _is_plain(answer: Any) -> bool:
    """Whether it can be handed on to another process; marshal raises ValueError where not."""
    marshal.dumps(answer)
    return True


def _is_jobs(answer: Any) -> bool:
    """A number that is no text would be that of no process, whose job would seem to be over."""
    return isinstance(answer, tuple) and all(
        isinstance(job, Job) and isinstance(job.number, str) and isinstance(job.id, str) for job in answer
    )


def _is_place(answer: Any) -> bool:
    return (
        isinstance(answer, Place)
        and answer.kind in _KINDS
        and _is_text_or_none(answer.job)
        and all(isinstance(why, str) for why in answer.why)
        and all(isinstance(index, int) for index in answer.gpus)
    )


def _is_membership(answer: Any) -> bool:
    return isinstance(answer, tuple) and len(answer) == 3 and all(map(_is_text_or_none, answer))


def _is_records(answer: Any) -> bool:
    from handwash.usage import Records, Run

    return (
        isinstance(answer, Records)
        and all(isinstance(run, Run) and isinstance(run.started, (int, float)) for run in answer.runs)
        and _is_plain([vars(run) for run in answer.runs])
    )


def _is_partition(answer: Any) -> bool:
    return isinstance(answer, Partition) and isinstance(answer.idle, int) and isinstance(answer.gpus, int)


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_line(value: Any) -> bool:
    return isinstance(value, str)


def _is_anything(value: Any) -> bool:
    return True


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "ask": _is_plain,
    "jobs": _is_jobs,
    "not_over": lambda answer: isinstance(answer, tuple) and all(map(_is_line, answer)),
    "site": lambda answer: isinstance(answer, Site),
    "evidence": _is_plain,
    "place": _is_place,
    "membership": _is_membership,
    "records": _is_records,
    "records_name": _is_line,
    "shown": _is_records,
    "ask_gpus": _is_plain,
    "partitions": lambda answer: answer is None or (isinstance(answer, tuple) and all(map(_is_partition, answer))),
    "clock": lambda answer: answer is None or isinstance(answer, (int, float)),
    "leaving": lambda answer: answer is None or isinstance(answer, Leaving),
    "cancel": lambda answer: answer is None or isinstance(answer, bool),
}
# Each says itself that nothing is known.
_INSTEAD = {"site": Site(), "cancel": None, "clock": None, "leaving": None}
