"""A scheduler that the site has a module for. It is code of the site's: what it raises, and what it answers against the
rules of `base.Scheduler`, is "could not tell", never nothing and never a fault of handwash.

It is imported and asked in child processes alone (`run.looks`), each with a deadline: one that hangs holds nobody up.
"""

from __future__ import annotations

import marshal

from handwash import run, world
from handwash.frozen import replace
from handwash.messages import _
from handwash.model import Job, Site, Unknown
from handwash.run import CouldNotTell
from handwash.schedulers.base import Leaving, Partition, Place, Scheduler, Unusable
from handwash.survey import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Union

    Check = Callable[[Any], bool]

# For a line that a person is told, and whatever else is asked outside of a look: it comes on top of the looks' own deadline.
_PATIENCE_S = 0.5
# A cancel may wait for its job to leave the queue.
_CANCEL_S = 60.0
# What a record is called by where it travels as plain data.
_RECORD = "handwash record"


class OfTheSite(Scheduler):
    """The site's scheduler, without a line of its code in this process: inside a look it is asked, elsewhere in a look for it.

    Answers travel as plain data, and are read in the look already: `ask` holds the jobs themselves, `ask_gpus` the partitions.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._loaded: Scheduler | None = None
        self._facts: Mapping[str, Any] | None = None
        self._silent = False

    def load(self) -> Scheduler:
        """The module's own; within a look alone."""
        if self._loaded is None:
            self._loaded = load(self._module)
        return self._loaded

    def ask(self) -> dict[str, Any]:
        theirs = self.load()
        said = theirs.ask()
        site = theirs.site(said)
        facts = {name: getattr(theirs, name) for name in _FACTS}
        return {"facts": facts, "jobs": packed(_waited_for(theirs, theirs.jobs(said), site)), "site": packed(site)}

    def jobs(self, said: Any) -> tuple[Job, ...]:
        self._facts = said["facts"]
        found: tuple[Job, ...] = unpacked(said["jobs"])
        return found

    def site(self, said: Any) -> Site:
        found: Site = Site() if said is None else unpacked(said["site"])
        return found

    def evidence(self) -> dict[str, Any]:
        return {"seen": self.load().evidence()}

    def placed(self, seen: dict[str, Any], living: frozenset[str] | None) -> Union[dict[str, Any], Unknown]:
        """The evidence with its reading, in a look of its own within a look: `place` has no more to ask then."""
        place = self.load().place
        question = {"place": lambda: packed(place(seen["seen"], living))}
        read = run.looks(question, run.left() or 0.0)["place"]
        return read if isinstance(read, Unknown) else {**seen, "place": read}

    def place(self, seen: Any, living: frozenset[str] | None) -> Place:
        found: Place = unpacked(seen["place"]) if "place" in seen else self.pass_on("place", seen["seen"], living)
        return found

    def ask_gpus(self) -> Any:
        theirs = self.load()
        said = theirs.ask_gpus()
        return None if said is None else packed(theirs.partitions(said))

    def partitions(self, said: Any) -> tuple[Partition, ...] | None:
        found: tuple[Partition, ...] | None = unpacked(said)
        return found

    def pass_on(self, method: str, *words: Any) -> Any:
        """What a method of theirs answers."""
        if run.left() is not None:
            return getattr(self.load(), method)(*words)
        answer = self._look(lambda: packed(getattr(self.load(), method)(*words)), method)
        return _instead(method, answer.why) if isinstance(answer, Unknown) else unpacked(answer)

    def fact(self, name: str) -> Any:
        """One of their attributes."""
        if run.left() is not None:
            return getattr(self.load(), name)
        if self._facts is None:
            answer = self._look(lambda: {name: getattr(self.load(), name) for name in _FACTS}, name)
            self._facts = {} if isinstance(answer, Unknown) else answer
        known = self._facts.get(name, vars(Scheduler)[name])
        # Sentences need one.
        return self._module if name == "name" and not known else known

    def _look(self, question: Callable[[], Any], what: str) -> Any:
        """Who has once been silent is not waited for again, but to cancel."""
        if what == "cancel":
            return run.looks({what: question}, _CANCEL_S)[what]
        if self._silent:
            return run.silent(_PATIENCE_S)
        answer = run.looks({what: question}, _PATIENCE_S)[what]
        self._silent = isinstance(answer, Unknown) and answer.cause == "timed-out"
        return answer


def load(name: str) -> Scheduler:
    """`SCHEDULER` of a module that is installed where handwash is, in its interpreter's site-packages."""
    from importlib import import_module

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
        return _Guarded(name, found)
    except (Exception, SystemExit) as error:
        sentence = _("The module {name}, named by the setting scheduler, cannot be used: {said}.")
        return Unusable(sentence.format(name=name, said=_said(error)))


class _Guarded(Scheduler):
    """Asks the site's scheduler, and looks at each answer: of every method that handwash has a name for.

    What cannot be used is CouldNotTell, but for a line to type, which is left out then, and for what has a word for that.
    """

    def __init__(self, module: str, found: Scheduler) -> None:
        for name, is_right in _CHECKS.items():
            setattr(self, name, _guarded(module, name, is_right, getattr(found, name)))
        for name, is_right in _FACTS.items():
            fact = getattr(found, name)
            if not is_right(fact):
                raise TypeError(f"{name} = {fact!r}")
            setattr(self, name, fact)


def _guarded(module: str, method: str, is_right: Check, theirs: Callable[..., Any]) -> Callable[..., Any]:
    def ask(*words: Any) -> Any:
        sentence = _(
            "The module {name}, named by the setting scheduler, gave no answer that can be used: {method}, {said}"
        )
        try:
            answer = theirs(*words)
            if is_right(answer):
                return answer
            why = sentence.format(name=module, method=method, said=repr(answer)[:80])
        except CouldNotTell as reason:
            why = str(reason)
        except (Exception, SystemExit) as error:
            why = sentence.format(name=module, method=method, said=_said(error))
        return _instead(method, why)

    return ask


def _instead(method: str, why: str) -> Any:
    """What an answer that is missing for the reason `why` means."""
    if method.endswith("_line"):
        return ""
    if method == "records_name":
        return Scheduler().records_name()
    if method in _INSTEAD:
        return _INSTEAD[method]
    raise CouldNotTell(why)


def _waited_for(theirs: Scheduler, jobs: tuple[Job, ...], site: Site) -> tuple[Job, ...]:
    """The jobs, interactive where it can be seen who waits for them: others would all be such as nobody sits in.

    That which this shell is in stays what it is. Where the module does not say where one was submitted it may be here, so
    whoever waits here is believed to wait for it.
    """
    if site.holders or not any(job.interactive for job in jobs):
        host = world.host()
        return tuple(replace(job, alloc_host=job.alloc_host or host) if job.interactive else job for job in jobs)
    own = theirs.membership(procfs.groups("self"), world.env)[0]
    return tuple(replace(job, interactive=None) if job.interactive and job.number != own else job for job in jobs)


def packed(value: Any) -> Any:
    """A record of handwash's, or a tuple of such, as plain data (`marshal`). What is none stays as it is."""
    fields = getattr(type(value), "_fields", None)
    if fields is not None:
        return {_RECORD: type(value).__name__, **{name: packed(getattr(value, name)) for name in fields}}
    return tuple(map(packed, value)) if type(value) is tuple else value


def unpacked(plain: Any) -> Any:
    """What `packed` was given."""
    if type(plain) is tuple:
        return tuple(map(unpacked, plain))
    if type(plain) is not dict or _RECORD not in plain:
        return plain
    kind: Any = next(one for one in _records() if one.__name__ == plain[_RECORD])
    return kind(**{name: unpacked(value) for name, value in plain.items() if name != _RECORD})


def _records() -> tuple[type, ...]:
    from handwash.usage import Records, Run

    return Job, Site, Unknown, Place, Partition, Leaving, Run, Records


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


# The types are exact: marshal takes no others, and True is no number of GPUs.


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_name(value: Any) -> bool:
    return type(value) is str and value != ""


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 53


def _is_time(value: Any) -> bool:
    """Seconds since the epoch that a calendar has a date for."""
    return type(value) in (int, float) and 0 <= value < 1e11


def _is_seconds(value: Any) -> bool:
    return type(value) in (int, float) and -1e11 < value < 1e11


def _or_none(is_right: Check) -> Check:
    return lambda value: value is None or is_right(value)


def _several(is_right: Check) -> Check:
    return lambda value: type(value) is tuple and all(map(is_right, value))


def _is(kind: type, /, **fields: Check) -> Check:
    """Whether it is a record of this kind. Raises TypeError with the field that is wrong."""

    def is_right(value: Any) -> bool:
        if type(value) is not kind:
            return False
        for name, check in fields.items():
            if not check(getattr(value, name)):
                raise TypeError(f"{kind.__name__}.{name} = {getattr(value, name)!r}"[:80])
        return True

    return is_right


def _is_plain(answer: Any) -> bool:
    """Whether it can be handed on to another process; marshal raises ValueError where not."""
    marshal.dumps(answer)
    return True


_IS_JOB = _is(
    Job,
    # A number that is no text would be that of no process, whose job would seem to be over.
    id=_is_name,
    number=_is_name,
    state=_is_name,
    name=_is_text,
    partition=_is_text,
    nodes=_several(_is_text),
    gpus=_or_none(_is_count),
    elapsed_s=_or_none(_is_count),
    limit_s=_or_none(_is_count),
    interactive=_or_none(_is_flag),
    alloc_host=_is_text,
    alloc_sid=_or_none(_is_count),
)
_IS_SITE = _is(
    Site,
    proctrack=_or_none(_is_text),
    holders=_several(_is_name),
    waits_for_terminal=_is_flag,
    marks_all=_is_flag,
)
_IS_PLACE = _is(
    Place,
    kind=lambda kind: kind in ("compute", "allocation-shell", "login", ""),
    job=_or_none(_is_name),
    why=_several(_is_text),
    host=_is_text,
    gpus=_several(_is_count),
    controller=_or_none(_is_flag),
    uuids=_several(_is_text),
)
_IS_PARTITION = _is(
    Partition,
    name=_is_text,
    default=_is_flag,
    gpus=_is_count,
    idle=_is_count,
    cpus=_is_count,
    limit_s=_or_none(_is_count),
)
_IS_LEAVING = _is(Leaving, what=_is_text, evidence=_is_text, remedy=_is_text)


def _is_records(answer: Any) -> bool:
    from handwash.usage import Records, Run

    is_run = _is(
        Run,
        id=_is_name,
        number=_is_name,
        state=_is_name,
        name=_is_text,
        partition=_is_text,
        nodes=_several(_is_text),
        gpus=_or_none(_is_count),
        started=_is_time,
        ended=_or_none(_is_time),
        elapsed_s=_is_count,
        suspended_s=_is_count,
        by=_is_text,
        lost=_is_flag,
    )
    is_right = _is(Records, runs=_several(is_run), source=_is_text, doubts=_several(_is_text), complete=_is_flag)
    return is_right(answer)


def _is_membership(answer: Any) -> bool:
    return len(answer) == 3 and _several(_or_none(_is_text))(answer)


_CHECKS: dict[str, Check] = {
    "ask": _is_plain,
    "jobs": _several(_IS_JOB),
    "not_over": _several(_is_text),
    "site": _IS_SITE,
    "evidence": _is_plain,
    "place": _IS_PLACE,
    "membership": _is_membership,
    "records": _is_records,
    "records_name": _is_name,
    "shown": _is_records,
    "cancel": _or_none(_is_flag),
    "ask_gpus": _is_plain,
    "partitions": _or_none(_several(_IS_PARTITION)),
    "clock": _or_none(_is_seconds),
    "leaving": _or_none(_IS_LEAVING),
    **{name: _is_text for name in vars(Scheduler) if name.endswith("_line")},
}
_FACTS: dict[str, Check] = {
    "name": _is_name,
    "variables": _several(lambda variable: type(variable) is bytes),
    "waits_for_terminal": _is_flag,
    "reaches_nodes": _is_flag,
    "recorder": _is_text,
    "launcher": _is_text,
    "divided_by": lambda value: value in ("partition", "queue"),
    "lists_all": _is_flag,
}
_IN_SENTENCES = ("cancel_line", "queue_line")
# Each says itself that nothing is known; without `holders` nobody is known to wait for a job.
_INSTEAD = {"site": Site(), "cancel": None, "clock": None, "leaving": None}


def _passed_on(method: str) -> Callable[..., Any]:
    return lambda self, *words: self.pass_on(method, *words)


def _passed_on_or_in_words(method: str) -> Callable[..., Any]:
    """A sentence ends with it."""
    return lambda self, *words: self.pass_on(method, *words) or getattr(Scheduler, method)(self, *words)


def _read_off(name: str) -> property:
    return property(lambda self: self.fact(name))


for _name in _CHECKS:
    if _name not in vars(OfTheSite):
        setattr(OfTheSite, _name, (_passed_on_or_in_words if _name in _IN_SENTENCES else _passed_on)(_name))
for _name in _FACTS:
    setattr(OfTheSite, _name, _read_off(_name))
