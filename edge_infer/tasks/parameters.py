"""The parameters of steps: declared once, checked alike in Python and in JavaScript.

`web/src/tasks/parameters.js` holds the same declarations; `web/generate_parameters.py` writes it.
"""

from __future__ import annotations

import json

from edge_infer.errors import ManifestError, did_you_mean, listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Literal

    Kind = Literal["whole", "real", "choice", "flag", "text", "numbers", "names", "texts", "lists", "expressions"]

#: The default of a parameter that a step must be given.
REQUIRED: Any = object()
#: The longest list of numbers or names: the anchors of a large detector are some 20,000 numbers.
MAX_LIST = 2**20
_WORDS = {
    "whole": "a whole number",
    "real": "a number",
    "flag": "true or false",
    "text": "text",
    "numbers": "a list of numbers",
    "names": "an object of texts",
    "texts": "a list of texts",
    "lists": "an object of lists of texts or numbers",
    "expressions": "a list of expressions",
}
# Values as they are typed; words in capitals stand for what only the author knows.
_EXAMPLES = {
    "whole": "NUMBER",
    "real": "NUMBER",
    "flag": "true",
    "text": '"TEXT"',
    "numbers": "[NUMBER, NUMBER]",
    "names": '{"NAME": "TEXT"}',
    "texts": '["TEXT", "TEXT"]',
    "lists": '{"NAME": ["TEXT", "TEXT"]}',
    "expressions": '[["col", "NAME"]]',
}


class Parameter:
    """One parameter of a step.

    Args:
        kind: `whole`, `real`, `choice` (one of `choices`), `flag`, `text`, `numbers` (a list of them), `names` (an
            object whose values are texts, such as the tensors that a step reads), `texts` (a list of them), `lists`
            (an object whose values are lists of texts or numbers, such as the categories of columns) or `expressions`
            (a list whose values the step itself checks).
        default: What it is where it is not given; `REQUIRED` for what must be given; None for "none".
        low: The lowest number that is allowed.
        high: The highest.
        choices: The words that a `choice` may be.
        length: How many numbers there must be; None for any.
        is_argument: Whether the person who calls the pipeline may give it too, such as `top_k`.
    """

    __slots__ = ("choices", "default", "high", "is_argument", "kind", "length", "low")

    def __init__(
        self,
        kind: Kind,
        default: Any = REQUIRED,
        *,
        low: float | None = None,
        high: float | None = None,
        choices: Sequence[str] = (),
        length: int | None = None,
        is_argument: bool = False,
    ) -> None:
        self.kind = kind
        self.default = default
        self.low = low
        self.high = high
        self.choices = tuple(choices)
        self.length = length
        self.is_argument = is_argument

    def check(self, name: str, value: Any, where: str = "") -> Any:
        """Return a value that fits.

        Args:
            name: The parameter's name, for the error.
            value: What it was given.
            where: What stands before the name in the error.

        Raises:
            ManifestError: It is of another kind, or out of range.
        """
        if value is None and self.default is None:
            return None
        if not self._fits(value):
            message = f"{where}`{name}` is {shown(value)}, expected {self.expected}"
            near = did_you_mean(value, list(self.choices)) if isinstance(value, str) else ""
            raise ManifestError(message, hint=near or f'write "{name}": {self.example(value)}', field=name, got=value)
        return float(value) if self.kind == "real" else value

    def example(self, value: Any = None) -> str:
        """Return what may stand in the place of a value, as JSON: the limit that it is beyond, else the default."""
        if self.kind in ("whole", "real") and isinstance(value, (int, float)) and not isinstance(value, bool):
            if self.low is not None and value < self.low:
                return shown(self.low)
            if self.high is not None and value > self.high:
                return shown(self.high)
        if self.default is not REQUIRED and self.default is not None:
            return shown(self.default, 1000)
        if self.kind == "choice":
            return shown(self.choices[0])
        return _EXAMPLES[self.kind] if self.length is None else f"[{', '.join(['NUMBER'] * self.length)}]"

    @property
    def expected(self) -> str:
        """The values that are allowed, in words."""
        if self.kind == "choice":
            return listed(list(self.choices))
        words = _WORDS[self.kind] if self.length is None else f"a list of {self.length} numbers"
        if self.low is not None and self.high is not None:
            return f"{words} from {shown(self.low)} to {shown(self.high)}"
        return f"{words} of at least {shown(self.low)}" if self.low is not None else words

    def _fits(self, value: Any) -> bool:
        if self.kind == "choice":
            return value in self.choices
        if self.kind == "flag":
            return isinstance(value, bool)
        if self.kind == "text":
            return isinstance(value, str) and bool(value)
        if self.kind == "names":
            return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())
        if self.kind == "texts":
            return _is_list(value, str) and self.length in (None, len(value))
        if self.kind == "lists":
            return isinstance(value, dict) and all(_is_list(one, (str, int, float)) for one in value.values())
        if self.kind == "expressions":
            return isinstance(value, list) and len(value) <= MAX_LIST
        if self.kind == "numbers":
            is_long = not isinstance(value, list) or len(value) > MAX_LIST
            return not is_long and self.length in (None, len(value)) and all(map(self._is_in_range, value))
        return (self.kind == "real" or isinstance(value, int)) and self._is_in_range(value)

    def _is_in_range(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value - value != 0:
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def to_json(self) -> dict[str, Any]:
        """Describe this declaration for the readers in other languages."""
        facts: dict[str, Any] = {"kind": self.kind}
        if self.default is not REQUIRED:
            facts["default"] = self.default
        for name in ("low", "high", "length"):
            if getattr(self, name) is not None:
                facts[name] = getattr(self, name)
        if self.choices:
            facts["choices"] = list(self.choices)
        if self.is_argument:
            facts["argument"] = True
        return facts


def checked(given: Mapping[str, Any], declared: Mapping[str, Parameter], where: str) -> dict[str, Any]:
    """Return the parameters of a step: those that were given, checked, and the defaults of the others.

    Raises:
        ManifestError: One is unknown, lacks, or does not fit; the message names it.
    """
    for name in given:
        if name not in declared:
            raise ManifestError(
                f"{where} has no parameter `{name}`",
                hint=did_you_mean(name, list(declared))
                or (f"its parameters are {listed(list(declared))}" if declared else "leave it out: it has none"),
                field=name,
            )
    found: dict[str, Any] = {}
    for name, parameter in declared.items():
        if name in given:
            found[name] = parameter.check(name, given[name], f"{where}: ")
        elif parameter.default is REQUIRED:
            hint = f'write "{name}": {parameter.example()}'
            raise ManifestError(f"{where} lacks `{name}`, expected {parameter.expected}", hint=hint, field=name)
        else:
            found[name] = parameter.default
    return found


def _is_list(value: Any, of: type | tuple[type, ...]) -> bool:
    if not isinstance(value, list) or len(value) > MAX_LIST:
        return False
    return all(isinstance(one, of) and not isinstance(one, bool) for one in value)


def shown(value: Any, most: int = 60) -> str:
    """Write a value for an error, as JSON in JavaScript's spelling and cut to a number of characters."""
    if isinstance(value, float):
        text = _number(value)
    elif isinstance(value, list):
        text = f"[{','.join(_number(one) if isinstance(one, float) else _json(one) for one in value[:most])}]"
    else:
        text = _json(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _number(value: float) -> str:
    """Write a number as JavaScript does: 1, 0.5, 0.000001, 1e-9, Infinity."""
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    text = json.dumps(value)
    if "e-" not in text:
        return text
    digits, exponent = text.split("e-")
    if int(exponent) > 6:
        return f"{digits}e-{int(exponent)}"
    from decimal import Decimal

    return format(Decimal(text), "f")
