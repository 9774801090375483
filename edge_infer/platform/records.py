"""Immutable records that import nothing, for the modules on the start-up path.

They have what is used of `typing.NamedTuple` without importing `typing`, which with `re`, `enum` and `collections`
below it takes a Raspberry Pi 50 ms of its start and 2 MB of its memory. Elsewhere `NamedTuple` is the one to take.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Self, dataclass_transform
else:

    def dataclass_transform(**_: object) -> object:
        """Do what `typing`'s does when a program runs: nothing."""
        return lambda base: base


@dataclass_transform(frozen_default=True)
class Record:
    """The base of a record: its fields are the annotations of its class, their defaults the values given there.

    >>> class Point(Record):
    ...     x: int
    ...     y: int = 0
    >>> Point(3), Point(3)._replace(y=4)._asdict()
    (Point(x=3, y=0), {'x': 3, 'y': 4})
    """

    _fields: tuple[str, ...]

    def __init_subclass__(cls) -> None:
        cls._fields = tuple(cls.__annotations__)

    def __init__(self, *values: Any, **named: Any) -> None:
        if not named and len(values) == len(self._fields):
            self.__dict__.update(zip(self._fields, values, strict=True))
            return
        given = dict(zip(self._fields, values, strict=False))
        unknown = [name for name in named if name not in self._fields or name in given]
        if unknown or len(values) > len(self._fields):
            raise TypeError(f"{type(self).__name__} takes {', '.join(self._fields)}, each once")
        given.update(named)
        for name in self._fields:
            if name not in given:
                if not hasattr(type(self), name):
                    raise TypeError(f"{type(self).__name__} lacks `{name}`")
                given[name] = getattr(type(self), name)
        self.__dict__.update(given)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} is not changed: use `_replace({name}=...)`")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a {type(self).__name__} is not changed")

    def __iter__(self) -> Iterator[Any]:
        return (self.__dict__[name] for name in self._fields)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Record) and type(other) is type(self) else False

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

    def _asdict(self) -> dict[str, Any]:
        """Return the fields by name, in their order."""
        return {name: self.__dict__[name] for name in self._fields}

    def _replace(self, **changes: Any) -> Self:
        """Return a record with some fields changed."""
        return type(self)(**{**self._asdict(), **changes})
