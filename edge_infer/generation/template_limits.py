"""Jinja2's sandbox with limits on loops, sizes and time: a template from a stranger ends, and stays small.

Chat templates come with models. Jinja2's sandbox keeps them from Python's internals, not from looping for ever or from
filling the memory. Here every iteration, call and filter counts as a step, and every text or list that is made is
paid from a budget before it is made. The limits need no signals and no processes, so they hold in any thread.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from edge_infer.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2.parser import Parser
    from jinja2.runtime import Context

MAX_STEPS = 300_000
MAX_CHARACTERS = 16_000_000
MAX_SECONDS = 5.0
_MAX_BITS = 4096
_MAX_INDENT = 256
#: An entry of a list takes as much memory as so many characters.
_ENTRY = 8
_FILTERS = {
    "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "groupby", "int",
    "items", "last", "length", "list", "lower", "map", "max", "min", "random", "reject", "rejectattr", "reverse",
    "round", "safe", "select", "selectattr", "sort", "string", "sum", "title", "trim", "unique", "upper",
}  # fmt: skip
_METHODS: dict[type, set[str]] = {
    str: {
        "capitalize", "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii", "isdigit", "islower",
        "isspace", "isupper", "join", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace",
        "rfind", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "title", "upper",
    },
    dict: {"get", "items", "keys", "values"},
    list: {"count", "index"},
    tuple: {"count", "index"},
}  # fmt: skip


class Budget:
    """What one rendering may still use."""

    def __init__(self) -> None:
        self._steps = MAX_STEPS
        self._characters = MAX_CHARACTERS
        self._end = time.monotonic() + MAX_SECONDS

    def step(self, count: int = 1) -> None:
        """Pay for iterations, calls and filters."""
        self._steps -= count
        if self._steps < 0:
            _over(f"more than {MAX_STEPS:,} steps")
        if time.monotonic() > self._end:
            _over(f"more than {MAX_SECONDS:g} seconds")

    def pay(self, *values: Any) -> None:
        """Pay for texts and lists, or for a number of characters."""
        for value in values:
            if isinstance(value, int):
                self._characters -= value
            elif isinstance(value, str):
                self._characters -= len(value)
            elif hasattr(value, "__len__"):
                self._characters -= _ENTRY * len(value)
        if self._characters < 0:
            _over(f"more than {MAX_CHARACTERS:,} characters")


def _over(what: str) -> None:
    raise BundleError(f"the chat template takes {what}", hint="use a shorter conversation, or another template")


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox; `budget` is that of the rendering under way."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        # Without the optimizer nothing is computed before a budget is there.
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[Generation, "jinja2.ext.loopcontrols"]
        )
        self.budget = Budget()
        for name in ("lipsum", "cycler", "joiner"):
            del self.globals[name]
        own: dict[str, Callable[..., Any]] = {
            " each": self._each,
            " concat": self.concat,
            " slice": self._slice,
            "indent": self._indent,
            "join": self._join,
            "replace": self._replace,
        }
        known = {name: self._limited(self.filters[name]) for name in _FILTERS if name in self.filters}
        self.filters = {**known, **own}

    def compiled(self, source: str) -> Any:
        """Compile a template so that its loops, joins and slices are counted."""
        return self.from_string(_Counted().visit(self.parse(source)))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Allow the methods of texts and lists that make nothing large."""
        for kind, names in _METHODS.items():
            if isinstance(obj, kind):
                return attr in names
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """Leave `format` to `is_safe_attribute`, which refuses it: a width in it can be any number."""
        del value

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function, a macro or a method."""
        owner = getattr(obj, "__self__", None)
        self.budget.step()
        self.budget.pay(owner if isinstance(owner, str) else 0, *args, *kwargs.values())
        if isinstance(owner, str) and getattr(obj, "__name__", "") == "replace":
            return self._replace(owner, *args, **kwargs)
        if isinstance(owner, str) and getattr(obj, "__name__", "") == "join":
            return self._join(args[0] if args else (), owner)
        found = super().call(context, obj, *args, **kwargs)
        self.budget.pay(found if isinstance(found, (str, list, tuple)) else 0)
        return found

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute what can make a large value."""
        sequences = (str, list, tuple)
        if operator == "+" and isinstance(left, sequences):
            self.budget.pay(left, right)
        elif operator == "*":
            for one, times in ((left, right), (right, left)):
                if isinstance(one, sequences) and isinstance(times, int):
                    self.budget.pay(len(one) * max(times, 0) * (1 if isinstance(one, str) else _ENTRY))
            if _bits(left) + _bits(right) > _MAX_BITS:
                _over(f"numbers of more than {_MAX_BITS} bits")
        elif operator == "**" and _bits(left) * (abs(right) if isinstance(right, int) else 1) > _MAX_BITS:
            _over(f"numbers of more than {_MAX_BITS} bits")
        elif operator == "%" and isinstance(left, str):
            raise SecurityError("texts are not formatted by `%` here")
        self.budget.step()
        return super().call_binop(context, operator, left, right)

    def _limited(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Let a filter pay for its input and its answer."""
        from functools import wraps

        @wraps(function)  # this keeps jinja2's mark that says what the first argument is
        def limited(*args: Any, **kwargs: Any) -> Any:
            self.budget.step()
            self.budget.pay(*(one for one in args if isinstance(one, (str, list, tuple, range))))
            found = function(*args, **kwargs)
            self.budget.pay(found if isinstance(found, (str, list, tuple)) else 0)
            return found

        return limited

    def _each(self, items: Any) -> list[Any]:
        found = []
        for item in items:
            self.budget.step()
            found.append(item)
        self.budget.pay(found)
        return found

    def concat(self, parts: Any) -> str:
        """Join the parts of a block, a macro or the whole text."""
        self.budget.step()
        texts = [one if isinstance(one, str) else str(one) for one in parts]
        self.budget.pay(texts, sum(map(len, texts)))
        return "".join(texts)

    def _slice(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        self.budget.step()
        found = value[slice(start, stop, step)]
        self.budget.pay(found)
        return found

    def _join(self, items: Any, separator: Any = "", attribute: Any = None) -> str:
        values = self._each(items)
        if attribute is not None:
            values = [self.getitem(one, attribute) for one in values]
        texts = [str(one) for one in values]
        between = str(separator)
        self.budget.pay(sum(map(len, texts)) + len(between) * len(texts))
        return between.join(texts)

    def _replace(self, text: Any, old: Any, new: Any, count: Any = None) -> str:
        text, old, new = str(text), str(old), str(new)
        count = -1 if count is None else int(count)
        times = text.count(old) if count < 0 else min(text.count(old), count)
        self.budget.step()
        self.budget.pay(len(text) + times * len(new))
        made: str = text.replace(old, new, count)
        return made

    def _indent(self, text: Any, width: Any = 4, first: bool = False, blank: bool = False) -> str:
        margin = width if isinstance(width, str) else " " * min(int(width), _MAX_INDENT + 1)
        if len(margin) > _MAX_INDENT:
            _over(f"margins of more than {_MAX_INDENT} characters")
        lines = str(text).split("\n")
        self.budget.step()
        self.budget.pay(lines, len(lines) * len(margin) + len(str(text)))
        marked = [margin + line if line or blank else line for line in lines[1:]]
        return "\n".join([margin + lines[0] if first else lines[0], *marked])


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0


class _Counted(NodeTransformer):
    """Puts filters around what jinja2 computes without asking its environment."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - jinja2's interface
        self.generic_visit(node)
        node.iter = _filter(node.iter, " each")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filter(nodes.Tuple(node.nodes, "load", lineno=node.lineno), " concat")

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        bounds = [
            one or nodes.Const(None, lineno=node.lineno) for one in (node.arg.start, node.arg.stop, node.arg.step)
        ]
        return _filter(node.node, " slice", *bounds)


def _filter(node: nodes.Node, name: str, *args: nodes.Expr) -> nodes.Filter:
    assert isinstance(node, nodes.Expr)
    made = nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)
    made.set_environment(node.environment)  # type: ignore[arg-type]  # set by the parser
    return made


class Generation(Extension):
    """The block `{% generation %}`, by which training code finds the answers; here it is its contents."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's interface

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Read the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
