"""What a decoder's engine checks when it opens a weight file."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from edge_infer.errors import BundleError, InputError
from edge_infer.generation.weight_file import program_fields
from edge_infer.kernels import decoder_words as words

if TYPE_CHECKING:
    from array import array

    from edge_infer.generation.config import DecoderConfig

_AGAIN = "convert the model again"


def checked_context(config: DecoderConfig, context: int | None) -> int:
    """Return how many positions a slot keeps.

    Raises:
        InputError: The model was made for fewer.
    """
    if context is not None and context > config.context:
        raise InputError(
            f"context is {context}, and the model was made for {config.context}", hint=f"context={config.context}"
        )
    return context or config.context


def check_fields(program: bytes, config: DecoderConfig, name: str) -> None:
    """Check that a program and the configuration beside it say the same.

    Raises:
        BundleError: They do not.
    """
    try:
        expected = program_fields(config)
    except (struct.error, ValueError, OverflowError, TypeError) as error:
        raise BundleError(f"The configuration in `{name}` is damaged: {error}", hint=_AGAIN) from error
    for index in range(len(words.FIELDS)):
        if program[4 * index : 4 * index + 4] != expected[4 * index : 4 * index + 4]:
            raise damaged(index + 1, name)


def damaged(word: int, name: str) -> BundleError:
    """Return the error for a program that `decoder_check` refused.

    Args:
        word: What it gave: one more than the place of the wrong word.
        name: The file's name.
    """
    place, layer = word - 1 - len(words.FIELDS), None
    names: tuple[str, ...] = words.TENSORS
    said = words.FIELDS[word - 1] if place < 0 else ""
    if place >= 0:
        tensor = place // 3
        if tensor >= len(names):
            layer, rest = divmod(place - 3 * len(names), words.LAYER_WORDS)
            tensor, names = (rest - 1) // 3, words.LAYER_TENSORS
        said = names[tensor] if tensor >= 0 else "kind"
    where = said if layer is None else f"layers.{layer}.{said}"
    return BundleError(
        f"The weight file `{name}` is damaged, or of another version: `{where}` does not fit",
        hint=_AGAIN,
        part=where,
    )


def batch_fault(wrong: int, rows: array[int], count: int, wanted: array[int], limits: tuple[int, int, int]) -> str:
    """Say what `decoder_check_rows` found wrong with a batch; nothing where it found nothing.

    Args:
        wrong: What it gave.
        rows: The batch's tokens, slots and positions.
        count: Its rows.
        wanted: Those whose logits were asked for.
        limits: The vocabulary's size, the slots and the positions of each.
    """
    if not wrong:
        return ""
    if wrong < 0:
        return f"wanted[{-1 - wrong}] is {wanted[-1 - wrong]}, expected a rising index of {count} rows"
    row, kind = wrong // 4, wrong % 4 - 1
    name = ("tokens", "slots", "positions")[kind]
    rising = ", rising within a slot" if kind == 2 else ""
    return f"{name}[{row}] is {rows[kind * count + row]}, expected 0 to {limits[kind] - 1}{rising}"
