"""Recurrent networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.backends.reference.operators.elementwise import sigmoid, softplus

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.backends.reference.call import Array, Call, Operator

_ACTIVATIONS: dict[str, Callable[[Array, float, float], Any]] = {
    "affine": lambda x, a, b: a * x + b,
    "elu": lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "leakyrelu": lambda x, a, b: np.where(x >= 0, x, a * x),
    "relu": lambda x, a, b: np.maximum(x, 0),
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "sigmoid": lambda x, a, b: sigmoid(x),
    "softplus": lambda x, a, b: softplus(x),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "tanh": lambda x, a, b: np.tanh(x),
    "thresholdedrelu": lambda x, a, b: np.where(x > a, x, 0),
}
#: Where the node states no alpha or beta.
_ALPHA = {"elu": 1.0, "hardsigmoid": 0.2, "leakyrelu": 0.01, "scaledtanh": 1.0, "thresholdedrelu": 1.0, "affine": 1.0}
_BETA = {"hardsigmoid": 0.5, "scaledtanh": 1.0}


def _activations(call: Call, names: list[str], directions: int) -> list[list[Callable[[Array], Array]]]:
    """Return the functions of each direction; their alphas and betas are taken by those that have them."""
    given = [str(one).lower() for one in call.get("activations", None) or names * directions]
    alphas, betas = list(call.get("activation_alpha", [])), list(call.get("activation_beta", []))
    made: list[Callable[[Array], Array]] = []
    for name in given:
        alpha = alphas.pop(0) if name in _ALPHA and alphas else _ALPHA.get(name, 0.0)
        beta = betas.pop(0) if name in _BETA and betas else _BETA.get(name, 0.0)
        made.append(lambda x, f=_ACTIVATIONS[name], a=alpha, b=beta: np.asarray(f(x, a, b)))  # type: ignore[misc]
    return [made[i * len(names) : (i + 1) * len(names)] for i in range(directions)]


def _clipped(call: Call, x: Array) -> Array:
    limit = call.get("clip", 0.0)
    return np.clip(x, -limit, limit) if limit else x


def _lstm_step(call: Call, x: Array, state: list[Array], w: dict[str, Any], functions: Any) -> list[Array]:
    f, g, h = functions
    hidden, cell = state
    sums = x @ w["w"].T + hidden @ w["r"].T + w["bias"]
    i, o, forget, c = np.split(sums, 4, -1)
    p = w["peepholes"]
    i, forget = i + p[0] * cell, forget + p[2] * cell
    i = f(_clipped(call, i))
    forget = 1 - i if call.get("input_forget", 0) else f(_clipped(call, forget))
    cell = forget * cell + i * g(_clipped(call, c))
    o = f(_clipped(call, o + p[1] * cell))
    return [o * h(cell), cell]


def _gru_step(call: Call, x: Array, state: list[Array], w: dict[str, Any], functions: Any) -> list[Array]:
    f, g = functions
    (hidden,) = state
    size = hidden.shape[-1]
    gates = x @ w["w"][: 2 * size].T + hidden @ w["r"][: 2 * size].T + w["bias"][: 2 * size]
    z, r = np.split(f(_clipped(call, gates)), 2, -1)
    into = x @ w["w"][2 * size :].T + w["input_bias"][2 * size :]
    if call.get("linear_before_reset", 0):
        new = into + r * (hidden @ w["r"][2 * size :].T + w["state_bias"][2 * size :])
    else:
        new = into + (r * hidden) @ w["r"][2 * size :].T + w["state_bias"][2 * size :]
    new = g(_clipped(call, new))
    return [(1 - z) * new + z * hidden]


def _rnn_step(call: Call, x: Array, state: list[Array], w: dict[str, Any], functions: Any) -> list[Array]:
    (f,) = functions
    return [f(_clipped(call, x @ w["w"].T + state[0] @ w["r"].T + w["bias"]))]


def _recurrent(
    call: Call,
    step: Callable[..., list[Array]],
    names: list[str],
    x: Array,
    weights: Array,
    recurrence: Array,
    bias: Array | None,
    lengths: Array | None,
    starts: list[Array | None],
    peepholes: Array | None = None,
) -> tuple[Array, ...]:
    """Run a cell over a sequence in one or both directions; a sample stops at its own length."""
    by_batch = bool(call.get("layout", 0))
    if by_batch:
        x = x.swapaxes(0, 1)
        starts = [None if one is None else one.swapaxes(0, 1) for one in starts]
    steps, batch = x.shape[:2]
    directions, size = recurrence.shape[0], recurrence.shape[2]
    functions = _activations(call, names, directions)
    output = np.zeros((steps, directions, batch, size), x.dtype)
    finals = [np.zeros((directions, batch, size), x.dtype) for _ in starts]
    counts = np.full(batch, steps) if lengths is None else lengths
    rows = recurrence.shape[1]
    for direction in range(directions):
        both = np.zeros(2 * rows, x.dtype) if bias is None else bias[direction]
        own = {
            "w": weights[direction],
            "r": recurrence[direction],
            "input_bias": both[:rows],
            "state_bias": both[rows:],
            "bias": both[:rows] + both[rows:],
            "peepholes": np.zeros((3, size), x.dtype) if peepholes is None else peepholes[direction].reshape(3, size),
        }
        state = [np.zeros((batch, size), x.dtype) if one is None else one[direction] for one in starts]
        is_back = direction == 1 or call.get("direction", "forward") == "reverse"
        for at in range(steps - 1, -1, -1) if is_back else range(steps):
            new = step(call, x[at], state, own, functions[direction])
            lives = (at < counts).reshape(-1, 1)
            state = [np.where(lives, a, b).astype(x.dtype) for a, b in zip(new, state, strict=True)]
            output[at, direction] = np.where(lives, state[0], 0)
        for final, last in zip(finals, state, strict=True):
            final[direction] = last
    if by_batch:
        return output.transpose(2, 0, 1, 3), *(final.swapaxes(0, 1) for final in finals)
    return output, *finals


def lstm(
    call: Call,
    x: Array,
    weights: Array,
    recurrence: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    hidden: Array | None = None,
    cell: Array | None = None,
    peepholes: Array | None = None,
) -> tuple[Array, ...]:
    """Compute LSTM."""
    names = ["sigmoid", "tanh", "tanh"]
    return _recurrent(call, _lstm_step, names, x, weights, recurrence, bias, lengths, [hidden, cell], peepholes)


def gru(
    call: Call,
    x: Array,
    weights: Array,
    recurrence: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    hidden: Array | None = None,
) -> tuple[Array, ...]:
    """Compute GRU."""
    return _recurrent(call, _gru_step, ["sigmoid", "tanh"], x, weights, recurrence, bias, lengths, [hidden])


def rnn(
    call: Call,
    x: Array,
    weights: Array,
    recurrence: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    hidden: Array | None = None,
) -> tuple[Array, ...]:
    """Compute RNN."""
    return _recurrent(call, _rnn_step, ["tanh"], x, weights, recurrence, bias, lengths, [hidden])


OPERATORS: dict[str, Operator] = {"GRU": gru, "LSTM": lstm, "RNN": rnn}
