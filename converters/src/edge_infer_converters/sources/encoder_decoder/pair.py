"""The two graphs of a model with an encoder and a decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import onnx


class Pair(NamedTuple):
    """What a family's graphs are.

    Attributes:
        encoder: From what the model takes to `cross_key_N` and `cross_value_N` of each layer of the decoder.
        decoder: From `input_ids`, the past and the cross keys and values to `logits` [1, vocabulary] of the last token.
        state: The outputs of the decoder that become inputs of its next step.
        vocab_size: Tokens of the model.
        context: The longest sequence of the decoder; 0 for any.
    """

    encoder: onnx.ModelProto
    decoder: onnx.ModelProto
    state: tuple[tuple[str, str], ...]
    vocab_size: int
    context: int
