"""What a decoder-only transformer looks like: the configuration that stands in its weight file.

One configuration describes the families that `edge-infer convert` reads (Llama, Qwen, Gemma, GPT-2, OPT, Phi): what
differs between them is a field here, and never a name that code compares. The tensors' names are fixed:

    embedding [vocab_size, hidden_size]            head [vocab_size, hidden_size], absent where it is the embedding
    positions [context + position_offset, hidden_size], of learned positions
    rope.K [rotary_size / 2], the angular frequencies of layers of kind K
    final_norm.weight, final_norm.bias             head.bias
    layers.N.attention_norm.{weight,bias}          layers.N.attention_post_norm.weight
    layers.N.qkv.{weight,bias}                     rows: all heads' queries, then the keys, then the values
    layers.N.q_norm.weight, layers.N.k_norm.weight [head_size]
    layers.N.attention_output.{weight,bias}
    layers.N.mlp_norm.{weight,bias}                layers.N.mlp_post_norm.weight
    layers.N.up.{weight,bias}                      rows: the gate's, then the values', where the MLP is gated
    layers.N.down.{weight,bias}

A matrix [rows, columns] is stored as `F32`, `F16`, `I8` (blocks of 32 columns, `NAME.scales` F16 [rows, columns / 32])
or `U8` [rows, columns / 2] (4 bits, the same blocks and scales: byte i of a block holds value i in its low half and
value i + 16 in its high half, each plus 8; the layout of GGUF's Q4_0). Vectors are `F32`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from edge_infer.errors import BundleError

#: Columns that share one scale.
BLOCK = 32

Norm = Literal["rms", "layer"]
Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]
Positions = Literal["rope", "learned"]
_KINDS: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,)}


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """The shape of a decoder and what its family does differently.

    Args:
        architecture: The family's name, for people: `llama`, `qwen3`.
        vocab_size: Rows of the embedding and of the head.
        hidden_size: Width of the stream between layers.
        layers: How many.
        heads: Query heads of a layer.
        kv_heads: Key and value heads; a divisor of `heads`.
        head_size: Width of one head.
        mlp_size: Width inside the MLP.
        context: The longest sequence that the model was made for.
        norm: Root mean square, or mean and variance with a bias.
        norm_epsilon: Added to the mean of squares.
        activation: Of the MLP.
        gated: Whether the activated half multiplies the other half.
        parallel: Whether attention and MLP read the same normed input and are added at once (Phi-2).
        positions: Rotated queries and keys, or a learned row added to the embedding.
        position_offset: Added to a position before its learned row is taken (OPT: 2).
        rotary_size: How many values of a head are rotated, in two halves.
        attention_scale: Factor of the scores.
        attention_softcap: `cap * tanh(score / cap)` where above 0 (Gemma 2).
        final_softcap: The same for the logits.
        embedding_scale: Factor of the embedding's rows (Gemma: the root of the width).
        sliding_window: Positions that a layer of kind 1 sees, its own included; 0 where none is.
        layer_kinds: By layer, 0 sees all earlier positions, 1 a window. Kind K rotates by `rope.K`.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    mlp_size: int
    context: int
    norm: Norm = "rms"
    norm_epsilon: float = 1e-5
    activation: Activation = "silu"
    gated: bool = True
    parallel: bool = False
    positions: Positions = "rope"
    position_offset: int = 0
    rotary_size: int = 0
    attention_scale: float = 1.0
    attention_softcap: float = 0.0
    final_softcap: float = 0.0
    embedding_scale: float = 1.0
    sliding_window: int = 0
    layer_kinds: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Describe this configuration as the weight file does."""
        return {**asdict(self), "layer_kinds": list(self.layer_kinds)}

    @classmethod
    def of(cls, value: object) -> DecoderConfig:
        """Read what `to_json` wrote; unknown fields are ignored.

        Raises:
            BundleError: A field is missing or of another type.
        """
        if not isinstance(value, dict):
            raise BundleError("The decoder's configuration is not an object", hint="convert the model again")
        fields = {name: item for name, item in value.items() if name in cls.__dataclass_fields__}
        if isinstance(fields.get("layer_kinds"), list):
            fields["layer_kinds"] = tuple(fields["layer_kinds"])
        try:
            config = cls(**fields)
        except TypeError as error:
            raise BundleError(f"The decoder's configuration is incomplete: {error}") from error
        for name, field in cls.__dataclass_fields__.items():
            item = getattr(config, name)
            kinds = _KINDS.get(str(field.type), ())
            if kinds and (not isinstance(item, kinds) or (field.type != "bool" and isinstance(item, bool))):
                raise BundleError(f"The decoder's `{name}` is {item!r}, expected {field.type}")
        return config
