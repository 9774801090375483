"""Attention, and the embeddings of positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.backends.reference.elements import SMALL, decode, encode, numpy_dtype
from edge_infer.backends.reference.operators.products import exact_matmul

if TYPE_CHECKING:
    from edge_infer.backends.reference.call import Array, Call, Operator


def _heads(x: Array, count: int) -> Array:
    """Return `[batch, steps, heads * size]` as `[batch, heads, steps, size]`."""
    batch, steps, width = x.shape
    return x.reshape(batch, steps, count, width // count).transpose(0, 2, 1, 3)


def _softmax(x: Array) -> Array:
    """Compute softmax; of a row in which nothing may be attended to, zeros."""
    top = np.max(x, -1, keepdims=True)
    moved = np.exp(x - np.where(np.isneginf(top), 0, top).astype(x.dtype))
    total = np.sum(moved, -1, keepdims=True)
    return np.asarray(moved / np.where(total == 0, 1, total).astype(x.dtype))


def _allowed(call: Call, steps: int, keys: int, offset: Any) -> Array | None:
    """Return where a query may attend: by order in time, and within a window; None for everywhere."""
    left, right = call.get("left_window_size", -1), call.get("right_window_size", -1)
    is_causal = bool(call.get("is_causal", 0))
    if not is_causal and left < 0 and right < 0:
        return None
    behind = np.arange(steps).reshape(-1, 1) + np.asarray(offset).reshape(-1, 1, 1, 1) - np.arange(keys)
    allowed = np.ones(behind.shape, bool)
    if is_causal:
        allowed &= behind >= 0
    if left >= 0:
        allowed &= behind <= left
    if right >= 0:
        allowed &= -behind <= right
    return allowed


def _bias(call: Call, mask: Array | None, lengths: Array | None, query: Array, keys: int, offset: Any) -> Array:
    """Return what is added to the scores: zeros, the mask, and minus infinity where nothing may be attended to."""
    dtype, steps = query.dtype, query.shape[2]
    low = dtype.type(-np.inf)
    bias = np.zeros((1, 1, steps, keys), dtype)
    if mask is not None:
        if mask.shape[-1] < keys:
            widths = [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])]
            mask = np.pad(mask, widths, constant_values=False if mask.dtype == bool else -np.inf)
        bias = bias + (np.where(mask, dtype.type(0), low) if mask.dtype == bool else mask.astype(dtype))
    allowed = _allowed(call, steps, keys, offset)
    if allowed is not None:
        bias = bias + np.where(allowed, dtype.type(0), low)
    if lengths is not None:
        inside = np.arange(keys) < lengths.reshape(-1, 1, 1, 1)
        bias = bias + np.where(inside, dtype.type(0), low)
    return bias


def attention(
    call: Call,
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    lengths: Array | None = None,
) -> tuple[Array, ...]:
    """Compute Attention."""
    is_flat = query.ndim == 3
    if is_flat:
        query = _heads(query, call.get("q_num_heads", 1))
        key, value = (_heads(one, call.get("kv_num_heads", 1)) for one in (key, value))
    scale = call.get("scale", None)
    root = query.dtype.type(np.sqrt(1 / np.sqrt(query.shape[3]) if scale is None else scale))
    offset: Any = 0
    if past_key is not None and past_value is not None:
        offset = past_key.shape[2]
        key, value = np.concatenate([past_key, key], 2), np.concatenate([past_value, value], 2)
    elif lengths is not None:
        offset = lengths.reshape(-1) - query.shape[2]
    present = key, value
    bias = _bias(call, mask, lengths, query, key.shape[2], offset)
    if query.shape[1] != key.shape[1]:
        key, value = (np.repeat(one, query.shape[1] // one.shape[1], 1) for one in (key, value))
    scores = exact_matmul(query * root, key.swapaxes(2, 3) * root)
    mode, cap = call.get("qk_matmul_output_mode", 0), call.get("softcap", 0.0)
    shown = scores
    if cap > 0:
        shown = scores = (np.tanh(scores / scores.dtype.type(cap)) * scores.dtype.type(cap)).astype(query.dtype)
    biased = scores + bias
    if mode == 2:
        shown = biased
    kind = call.get("softmax_precision", 0)
    if kind in SMALL:
        chances = _softmax(decode(encode(biased, SMALL[kind])))
    else:
        chances = _softmax(biased.astype(numpy_dtype(kind)) if kind else biased)
    chances = np.where(np.isneginf(np.max(bias, -1, keepdims=True)), 0, chances).astype(query.dtype)
    if mode == 3:
        shown = chances
    result = exact_matmul(chances, value)
    if is_flat:
        result = result.transpose(0, 2, 1, 3).reshape(result.shape[0], result.shape[2], -1)
    return result, *present, shown


def rotary_embedding(call: Call, x: Array, cosines: Array, sines: Array, positions: Array | None = None) -> Array:
    """Compute RotaryEmbedding."""
    rows = x.transpose(0, 2, 1, 3) if x.ndim == 4 else x.reshape(*x.shape[:2], call.get("num_heads", 1), -1)
    size = call.get("rotary_embedding_dim", 0) or rows.shape[3]
    turned, rest = rows[..., :size], rows[..., size:]
    if positions is not None:
        cosines, sines = cosines[positions], sines[positions]
    cosines, sines = cosines[:, :, None, :], sines[:, :, None, :]
    if call.get("interleaved", 0):
        first, second = turned[..., 0::2], turned[..., 1::2]
    else:
        first, second = turned[..., : size // 2], turned[..., size // 2 :]
    real, imaginary = cosines * first - sines * second, sines * first + cosines * second
    if call.get("interleaved", 0):
        turned = np.stack([real, imaginary], -1).reshape(turned.shape)
    else:
        turned = np.concatenate([real, imaginary], -1)
    result = np.concatenate([turned, rest], -1)
    return (result.transpose(0, 2, 1, 3) if x.ndim == 4 else result.reshape(x.shape)).astype(x.dtype)


def linear_attention(
    call: Call,
    query: Array,
    key: Array,
    value: Array,
    past: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
) -> tuple[Array, Array]:
    """Compute LinearAttention: a matrix for each head that steps in time write to and read from."""
    many, few = call.get("q_num_heads", 1), call.get("kv_num_heads", 1)
    batch, steps = query.shape[:2]
    q = _heads(query, many).astype(np.float32)
    k, v = (_heads(one, few).astype(np.float32) for one in (key, value))
    state = np.zeros((batch, few, k.shape[3], v.shape[3]), np.float32) if past is None else past.astype(np.float32)
    scale = call.get("scale", 0.0) or 1 / np.sqrt(k.shape[3])
    fading = None if decay is None else np.exp(_heads(decay, few).astype(np.float32))
    rate = None if beta is None else beta.transpose(0, 2, 1)[..., None].astype(np.float32)
    result = np.empty((batch, many, steps, v.shape[3]), np.float32)
    for step in range(steps):
        new = v[:, :, step]
        if fading is not None:
            state = state * fading[:, :, step, :, None]
        if rate is not None:
            new = rate[:, :, step] * (new - np.einsum("bhdm,bhd->bhm", state, k[:, :, step]))
        state = state + k[:, :, step, :, None] * new[:, :, None, :]
        read = np.repeat(state, many // few, 1)
        result[:, :, step] = scale * np.einsum("bhd,bhdm->bhm", q[:, :, step], read)
    flat = result.transpose(0, 2, 1, 3).reshape(batch, steps, -1)
    return flat.astype(query.dtype), state.astype(query.dtype if past is None else past.dtype)


def flex_attention(call: Call, query: Array, key: Array, value: Array) -> Array:
    """Compute FlexAttention: scores and probabilities pass through graphs of the node."""
    scale = call.get("scale", None)
    root = np.sqrt(np.float32(1 / np.sqrt(query.shape[3]) if scale is None else scale)).astype(query.dtype)
    if query.shape[1] != key.shape[1]:
        key, value = (np.repeat(one, query.shape[1] // one.shape[1], 1) for one in (key, value))
    scores = exact_matmul(query * root, key.swapaxes(2, 3) * root)
    kind = call.get("softmax_precision", 0)
    wide = numpy_dtype(kind) if kind else np.result_type(query.dtype, np.float32)
    scores = scores.astype(wide)
    if call.has("score_mod"):
        scores = np.asarray(call.run("score_mod", [scores])[0], wide)
    chances = _softmax(scores)
    if call.has("prob_mod"):
        chances = np.asarray(call.run("prob_mod", [chances])[0], wide)
    return exact_matmul(chances, value.astype(wide)).astype(value.dtype)


OPERATORS: dict[str, Operator] = {
    "Attention": attention,
    "LinearAttention": linear_attention,
    "RotaryEmbedding": rotary_embedding,
}
PREVIEW: dict[str, Operator] = {"FlexAttention": flex_attention}
