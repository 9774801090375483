"""The words of a decoder's program: what the kernels of text generation read from a weight file.

A program is a row of 32-bit words: the fields of `FIELDS`, then three words for each tensor of `TENSORS`, then for each
layer its kind and three words for each tensor of `LAYER_TENSORS`. The three words of a tensor are its encoding (its
place in `ENCODINGS`, 0 for an absent one), and the places of its values and of its scales, in units of 16 bytes from
the start of the file. `kernels/build.py` writes the same numbers as a C header.
"""

from __future__ import annotations

#: The first word: `EIGD` in the file's bytes.
MAGIC = int.from_bytes(b"EIGD", "little")
#: Raised where the words change, or the order of the sums: a program and kernels of other numbers do not fit.
VERSION = 1
#: The unit of places in the file.
ALIGNMENT = 16
#: Bytes of the file behind every tensor: the kernels read whole vectors there, and use none of it.
SLACK = 64

FIELDS = (
    *("magic", "version", "words", "vocab_size", "hidden_size", "layers", "heads", "kv_heads", "head_size", "mlp_size"),
    *("context", "norm", "norm_epsilon", "activation", "gated", "parallel", "positions", "position_offset"),
    *("rotary_size", "attention_scale", "attention_softcap", "final_softcap", "embedding_scale", "sliding_window"),
)
#: Fields that hold the bits of a float32.
FLOATS = ("norm_epsilon", "attention_scale", "attention_softcap", "final_softcap", "embedding_scale")
ENCODINGS = ("absent", "f32", "f16", "int8", "int4")
NORMS = ("rms", "layer")
ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu")
POSITIONS = ("rope", "learned")

TENSORS = (
    *("embedding", "head", "head.bias", "positions", "rope.0", "rope.1", "final_norm.weight", "final_norm.bias"),
)
LAYER_TENSORS = (
    *("attention_norm.weight", "attention_norm.bias", "attention_post_norm.weight", "qkv.weight", "qkv.bias"),
    *("q_norm.weight", "k_norm.weight", "attention_output.weight", "attention_output.bias"),
    *("mlp_norm.weight", "mlp_norm.bias", "mlp_post_norm.weight", "up.weight", "up.bias", "down.weight", "down.bias"),
)
#: Words of a layer: its kind and its tensors.
LAYER_WORDS = 1 + 3 * len(LAYER_TENSORS)


def header() -> str:
    """Return the C header with the place of every word."""
    lines = ["/* Made by edge_infer/kernels/build.py from decoder_words.py. */", "#pragma once"]
    lines += [f"#define PROGRAM_MAGIC {MAGIC:#x}", f"#define PROGRAM_VERSION {VERSION}"]
    lines += [f"#define SLACK {SLACK}"]
    enums: dict[str, tuple[str, ...]] = {
        "WORD": (*FIELDS, "tensors"),
        "TENSOR": (*TENSORS, "count"),
        "PART": LAYER_TENSORS,
        "ENCODING": ENCODINGS,
        "NORM": NORMS,
        "ACTIVATION": ACTIVATIONS,
        "POSITIONS": POSITIONS,
    }
    for prefix, names in enums.items():
        lines.append(f"enum {{ {', '.join(f'{prefix}_{_constant(name)}' for name in names)} }};")
    lines.append(f"#define LAYER_WORDS {LAYER_WORDS}")
    return "\n".join(lines) + "\n"


def _constant(name: str) -> str:
    return name.replace(".", "_").upper()
