"""Frozen records without the import of `dataclasses`, which costs two bare interpreter starts on the way to the prompt."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from typing_extensions import dataclass_transform

    T = TypeVar("T")
else:

    def dataclass_transform(**_options):
        return lambda decorator: decorator


@dataclass_transform(frozen_default=True)
def frozen(cls: type[T]) -> type[T]:
    """Makes `cls` a frozen record: its annotations are the fields, in order; class attributes are their defaults.

    Gives `__init__`, `__repr__`, `__eq__`, `__hash__`. Defaults must be immutable. No inheritance of fields.
    """
    names: tuple[str, ...] = tuple(cls.__dict__["__annotations__"])
    defaults: dict[str, Any] = {name: cls.__dict__[name] for name in names if name in cls.__dict__}

    fields = frozenset(names)

    def init(self: Any, *values: Any, **named: Any) -> None:
        if len(values) > len(names):
            raise TypeError(f"{cls.__name__} takes {len(names)} values, {len(values)} were given")
        # The two usual ways, quickly: a look at all processes makes thousands of these.
        if len(values) == len(names) and not named:
            self.__dict__.update(zip(names, values))
            return
        if named.keys() == fields and not values:
            self.__dict__.update(named)
            return
        filled = dict(zip(names, values))
        for name, value in named.items():
            if name not in names or name in filled:
                raise TypeError(f"{cls.__name__} got an unexpected or repeated value {name!r}")
            filled[name] = value
        for name in names:
            if name not in filled and name not in defaults:
                raise TypeError(f"{cls.__name__} is missing {name!r}")
            object.__setattr__(self, name, filled.get(name, defaults.get(name)))

    def refuse(self: Any, name: str, _value: Any = None) -> None:
        raise AttributeError(f"{cls.__name__} is frozen: {name} cannot change")

    def values_of(self: Any) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in names)

    setattr(cls, "__init__", init)  # noqa: B010 - mypy does not allow plain assignment to a method
    setattr(cls, "__setattr__", refuse)  # noqa: B010
    setattr(cls, "__delattr__", refuse)  # noqa: B010
    setattr(cls, "__repr__", lambda self: f"{cls.__name__}({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})")  # noqa: B010
    setattr(cls, "__eq__", lambda self, other: type(other) is cls and values_of(self) == values_of(other))  # noqa: B010
    setattr(cls, "__hash__", lambda self: hash(values_of(self)))  # noqa: B010
    setattr(cls, "_fields", names)  # noqa: B010
    return cls


def replace(record: T, **changes: Any) -> T:
    """A copy of `record` with `changes`."""
    values = {name: getattr(record, name) for name in getattr(record, "_fields")}  # noqa: B009
    values.update(changes)
    return type(record)(**values)
