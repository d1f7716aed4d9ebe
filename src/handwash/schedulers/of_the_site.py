"""A scheduler that the site has a module for. It is code of the site's: what it raises, and what it answers against the
rules of `base.Scheduler`, is "could not tell", never nothing and never a fault of handwash.
"""

from __future__ import annotations

import marshal

from handwash.messages import _
from handwash.model import Job, Site
from handwash.run import CouldNotTell
from handwash.schedulers.base import Place, Scheduler, Unusable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from handwash.schedulers.slurm_launchers import Step

_KINDS = ("compute", "allocation-shell", "login", "")


def load(name: str) -> Scheduler:
    """`SCHEDULER` of a module that is installed where handwash is, in its interpreter's site-packages."""
    from importlib import import_module

    from handwash import world

    world.add_site_packages()
    try:
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
    """Asks the site's scheduler, and looks at each answer. Every method raises CouldNotTell, but those that give a line."""

    def __init__(self, module: str, found: Scheduler) -> None:
        self.module = module
        self.found = found
        self.name = str(found.name)
        self.variables = tuple(bytes(variable) for variable in found.variables)
        self.waits_for_terminal = bool(found.waits_for_terminal)
        self.reaches_nodes = bool(found.reaches_nodes)
        self.lists_all = bool(found.lists_all)

    def ask(self) -> Any:
        return self._answer("ask", _is_plain)

    def jobs(self, said: Any) -> tuple[Job, ...]:
        return tuple(self._answer("jobs", lambda answer: all(isinstance(job, Job) for job in answer), said))

    def not_over(self, jobs: Sequence[str]) -> tuple[str, ...]:
        return tuple(self._answer("not_over", lambda answer: set(answer) <= set(jobs), jobs))

    def site(self, said: Any) -> Site:
        try:
            return self._answer("site", lambda answer: isinstance(answer, Site), said)  # type: ignore[no-any-return]
        except CouldNotTell:
            return Site()  # in which everything is unknown

    def evidence(self) -> Any:
        return self._answer("evidence", _is_plain)

    def place(self, seen: Any, living: frozenset[str] | None) -> Place:
        return self._answer("place", _is_place, seen, living)  # type: ignore[no-any-return]

    def membership(
        self, groups: bytes | None, variables: Mapping[str, str]
    ) -> tuple[str | None, str | None, str | None]:
        job, step, by = self._answer("membership", _is_membership, groups, variables)
        return job, step, by

    def steps(self, job: str, timeout: float) -> tuple[Step, ...]:
        return tuple(self._answer("steps", lambda answer: True, job, timeout))

    def cancel(self, job: str) -> bool | None:
        try:
            gone: bool | None = self._answer("cancel", lambda answer: answer is None or isinstance(answer, bool), job)
        except CouldNotTell:
            return None
        return gone

    def cancel_line(self, job: str) -> str:
        return self._line("cancel_line", job)

    def queue_line(self, job: str) -> str:
        return self._line("queue_line", job)

    def shell_line(self) -> str:
        return self._line("shell_line")

    def _line(self, method: str, *words: str) -> str:
        try:
            return str(self._answer(method, lambda answer: isinstance(answer, str), *words))
        except CouldNotTell:
            return ""

    def _answer(self, method: str, is_right: Callable[[Any], bool], *words: Any) -> Any:
        try:
            answer = getattr(self.found, method)(*words)
            if is_right(answer):
                return answer
            said = repr(answer)[:80]
        except CouldNotTell:
            raise
        except (Exception, SystemExit) as error:
            said = _said(error)
        sentence = _(
            "The module {name}, named by the setting scheduler, gave no answer that can be used: {method}, {said}"
        )
        raise CouldNotTell(sentence.format(name=self.module, method=method, said=said))


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _is_plain(answer: Any) -> bool:
    """Whether it can be handed on to another process; marshal raises ValueError where not."""
    marshal.dumps(answer)
    return True


def _is_place(answer: Any) -> bool:
    return (
        isinstance(answer, Place)
        and answer.kind in _KINDS
        and _is_text_or_none(answer.job)
        and all(isinstance(why, str) for why in answer.why)
        and all(isinstance(index, int) for index in answer.gpus)
    )


def _is_membership(answer: Any) -> bool:
    return len(answer) == 3 and all(map(_is_text_or_none, answer))


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)
