"""One raw input on its way through a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Mapping
    from typing import Any

    from edge_infer.tasks.text.encoding import Encoding


class Geometry(NamedTuple):
    """How a step of the image moved its points: `x' = x * scale_x + left`, `y' = y * scale_y + top`, in pixels."""

    scale_x: float
    scale_y: float
    left: float
    top: float


class Item:
    """The facts about one raw input that later steps need.

    Attributes:
        arguments: What the caller of the pipeline asked for, such as `top_k`.
        width: The decoded image's width in pixels; 0 for other inputs.
        height: Its height.
        input_width: The width of the pixels that reach the model; 0 for other inputs.
        input_height: Their height.
        geometry: What the steps did to the image's points, in their order.
        decode: Returns the text of tokens, by the tokenizer that made them.
        encoding: The tokens of a text; None for other inputs.
        text: The text, or the first of a pair.
        pair: The second text of a pair; None where there is none.
        rate: The samples per second of a sound; 0 for other inputs.
        before: The samples in front of the first frame, where a sound goes on; None for silence.
        frame: The samples between the starts of two frames; 0 where a sound is not cut into frames.
    """

    __slots__ = (
        *("arguments", "before", "decode", "encoding", "frame", "geometry", "height"),
        *("input_height", "input_width", "pair", "rate", "text", "width"),
    )

    def __init__(self, arguments: Mapping[str, Any] | None = None) -> None:
        self.arguments = arguments or {}
        self.width = 0
        self.height = 0
        self.input_width = 0
        self.input_height = 0
        self.geometry: list[Geometry] = []
        self.encoding: Encoding | None = None
        self.decode: Callable[[list[int]], str] = _nothing
        self.text = ""
        self.pair: str | None = None
        self.rate = 0
        self.before: array[float] | None = None
        self.frame = 0

    def copy(self, arguments: Mapping[str, Any]) -> Item:
        """Return what is known of the same raw input, asked for with other arguments."""
        made = Item(arguments)
        for name in self.__slots__:
            if name != "arguments":
                setattr(made, name, getattr(self, name))
        made.geometry = [*self.geometry]
        return made

    def argument(self, name: str, default: Any) -> Any:
        """Return what the caller asked for, else the definition's own value."""
        found = self.arguments.get(name)
        return default if found is None else found


def _nothing(_ids: list[int]) -> str:
    return ""
