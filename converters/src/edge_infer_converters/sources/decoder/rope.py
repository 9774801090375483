"""The angular frequencies of rotated positions, as a `config.json` describes them.

Source: `modeling_rope_utils.py` of transformers 5.24; the same steps in float32, so that the same numbers come out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge_infer.errors import UnsupportedModel, listed

if TYPE_CHECKING:
    from edge_infer_converters.sources.decoder.fields import Fields

_MOST_POSITIONS = 2**30
# Published models have at most 1e7; beyond this, powers in float32 are infinite.
_MOST_THETA = 1e30


class Rope(NamedTuple):
    """How positions rotate queries and keys.

    Attributes:
        frequencies: Float32 [rotary_size / 2].
        factor: What cosine and sine are multiplied by.
        context: The longest sequence that these frequencies are right for; 0 for any.
    """

    frequencies: np.ndarray
    factor: float = 1.0
    context: int = 0

    @property
    def rotary_size(self) -> int:
        """How many values of a head are rotated."""
        return 2 * len(self.frequencies)


def read_rope(fields: Fields, head_size: int, layer_type: str = "full_attention") -> Rope:
    """Read the frequencies of the layers of one type.

    Args:
        fields: The configuration.
        head_size: Width of a head.
        layer_type: `full_attention` or `sliding_attention`, whose frequencies differ in some families.

    Raises:
        ConversionError: A field is wrong.
        UnsupportedModel: It asks for frequencies that depend on more than the position.
    """
    given = _parameters(fields, layer_type)
    theta = given.number("rope_theta", 1.001, _MOST_THETA)
    share = given.number("partial_rotary_factor", 0.0, 1.0)
    size = int(head_size * share)
    if size < 2 or size % 2:
        raise given.wrong("partial_rotary_factor", share, f"an even part of a head's {head_size} values")
    turns = np.float32(theta) ** (np.arange(0, size, 2).astype(np.float32) / np.float32(size))
    plain = (np.float32(1) / turns).astype(np.float32)
    kind = given.get("rope_type") or given.get("type") or "default"
    if kind in ("default", "dynamic"):  # dynamic ones are the plain ones within the model's own context
        return Rope(plain)
    if kind == "linear":
        return Rope((plain / np.float32(given.number("factor", 1e-6))).astype(np.float32))
    if kind == "llama3":
        return Rope(_llama3(given, plain))
    if kind == "yarn":
        return _yarn(given, fields, turns, theta)
    if kind in ("longrope", "su"):
        return _long(given, fields, turns)
    raise UnsupportedModel(
        f"config.json: positions of the type `{kind}` are not supported; choose from "
        f"{listed(['default', 'linear', 'dynamic', 'llama3', 'yarn', 'longrope'])}",
        hint="take a model of one of these types",
        got=str(kind),
    )


def _parameters(fields: Fields, layer_type: str) -> Fields:
    """Return the fields of the rotation, from where releases of transformers have put them."""
    found = fields.part("rope_parameters")
    nested = found is not None and any(isinstance(found.get(one), dict) for one in (layer_type, "full_attention"))
    if found is not None and nested:
        found = found.part(layer_type)
    is_local = layer_type == "sliding_attention" and fields.get("rope_local_base_freq") is not None
    if found is None or (is_local and not nested):
        found = None if is_local else fields.part("rope_scaling")
    theta = fields.get("rope_local_base_freq" if is_local else "rope_theta")
    defaults = {"rope_theta": theta, "partial_rotary_factor": fields.get("partial_rotary_factor") or 1.0}
    values = {} if found is None else found.values
    return type(fields)(values, defaults, where="config.json: the rotation of positions")


def _original(given: Fields, fields: Fields) -> int:
    """Return the context that the model was first trained with."""
    word = "original_max_position_embeddings"
    if type(fields.get(word)) is int:
        return fields.size(word, _MOST_POSITIONS, 2)
    if given.get(word) is None:
        return fields.size("context", _MOST_POSITIONS, 2)
    return given.size(word, _MOST_POSITIONS, 2)


def _llama3(given: Fields, plain: np.ndarray) -> np.ndarray:
    """Slow the low frequencies down; those between two wavelengths partly."""
    factor, low = given.number("factor", 1e-6), given.number("low_freq_factor", 1e-6)
    high, original = given.number("high_freq_factor", low + 1e-6), given.size("original_max_position_embeddings", 2**30)
    length = 2 * math.pi / plain
    slowed = np.where(length > original / low, plain / np.float32(factor), plain)
    smooth = (original / length - np.float32(low)) / np.float32(high - low)
    between = (1 - smooth) * slowed / np.float32(factor) + smooth * slowed
    is_between = (length >= original / high) & (length <= original / low)
    return np.where(is_between, between, slowed).astype(np.float32)


def _yarn(given: Fields, fields: Fields, turns: np.ndarray, theta: float) -> Rope:
    """Slow the low frequencies down along a ramp, and sharpen the scores (Peng et al. 2023, YaRN)."""
    original, size = _original(given, fields), 2 * len(turns)
    stretch = fields.size("context", _MOST_POSITIONS) / original
    factor = given.number("factor", 1e-6) if given.get("factor") is not None else stretch
    sharpened = given.get("attention_factor")
    if sharpened is not None:
        sharpened = given.number("attention_factor", 0.0)
    elif given.get("mscale") and given.get("mscale_all_dim"):
        sharpened = _mscale(factor, given.number("mscale")) / _mscale(factor, given.number("mscale_all_dim"))
    else:
        sharpened = _mscale(factor, 1.0)

    def place(rotations: float) -> float:
        return size * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    fast = given.number("beta_fast", 1e-6) if given.get("beta_fast") else 32.0
    slow = given.number("beta_slow", 1e-6) if given.get("beta_slow") else 1.0
    low, high = place(fast), place(slow)
    if given.get("truncate") is not False:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    high += 0.001 * (low == high)
    ramp = np.clip((np.arange(size // 2, dtype=np.float32) - np.float32(low)) / np.float32(high - low), 0, 1)
    slowed, plain = 1 / (np.float32(factor) * turns), 1 / turns
    return Rope((slowed * ramp + plain * (1 - ramp)).astype(np.float32), sharpened)


def _mscale(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _long(given: Fields, fields: Fields, turns: np.ndarray) -> Rope:
    """Take the factors of short texts, which are right up to the context of the first training."""
    original = _original(given, fields)
    stretch = fields.size("context", _MOST_POSITIONS) / original
    factor = given.number("factor", 1e-6) if given.get("factor") is not None else stretch
    short = given.get("short_factor")
    is_list = isinstance(short, list) and len(short) == len(turns)
    if not is_list or not all(isinstance(one, (int, float)) and math.isfinite(one) and one > 0 for one in short):
        raise given.wrong("short_factor", short, f"{len(turns)} numbers above 0")
    if given.get("attention_factor") is not None:
        sharpened = given.number("attention_factor", 0.0)
    else:
        sharpened = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return Rope((1 / (np.asarray(short, np.float32) * turns)).astype(np.float32), sharpened, original)
