"""Remove the channels that matter least, so many of each layer: answers change, and a budget has to allow it.

A channel matters by how much what it gives varies over real inputs, times the weights by which the next layer reads it;
its mean goes into that layer's bias. Nothing is trained again, so that a network without spare channels loses more than
most budgets allow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx

from edge_infer_converters.engine import make_session
from edge_infer_converters.passes.graphs import drop_stored_shapes, drop_unread_tensors
from edge_infer_converters.passes.prune_channels import ChannelEditor, folded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer_converters.passes.prune_channels import Link


class Channels(NamedTuple):
    """What the channels between two layers give.

    Attributes:
        mean: The mean of each.
        matters: Its deviation times the weights that read it.
    """

    mean: np.ndarray
    matters: np.ndarray


def measure_channels(model: onnx.ModelProto, calls: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Channels]:
    """Run a model and measure the channels that could be removed, by the output of the layer that makes them.

    Args:
        model: A float32 model.
        calls: Typical inputs.
    """
    whole = folded(model)
    editor = ChannelEditor(whole.graph)
    links = {_given(link): link for link in editor.links()}
    if not links:
        return {}
    known = {value.name for value in whole.graph.output}
    whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in links if name not in known)
    session = make_session(whole.SerializeToString(), "the model with the channels between its layers as outputs")
    sums: dict[str, list[np.ndarray]] = {}
    for call in calls:
        for name, values in zip(links, session.run(list(links), dict(call)), strict=True):
            rows = np.moveaxis(values, 1, 0).reshape(values.shape[1], -1).astype(np.float64)
            found = [np.full(len(rows), rows.shape[1]), rows.sum(axis=1), np.square(rows).sum(axis=1)]
            sums[name] = [a + b for a, b in zip(sums[name], found, strict=True)] if name in sums else found
    measured: dict[str, Channels] = {}
    for name, (count, total, squares) in sums.items():
        mean = total / count
        deviation = np.sqrt(np.maximum(squares / count - np.square(mean), 0))
        measured[name] = Channels(mean, deviation * editor.read_sizes(links[name]))
    return measured


def prune_weak(model: onnx.ModelProto, channels: Mapping[str, Channels], share: float) -> tuple[onnx.ModelProto, int]:
    """Remove of each layer the share of channels that matters least.

    Args:
        model: The model that was measured.
        channels: What `measure_channels` found in it.
        share: How many of each layer, from 0 to less than 1.

    Returns:
        A copy, and how many channels it lacks.
    """
    pruned = folded(model)
    editor = ChannelEditor(pruned.graph)
    removed = 0
    for link in editor.links():
        found = channels.get(_given(link))
        if found is None:
            continue
        count = min(int(len(found.mean) * share), len(found.mean) - 1)
        weakest = np.argsort(found.matters, kind="stable")[:count]
        if count:
            editor.remove(link, {int(i): float(found.mean[i]) for i in weakest})
        removed += count
    if removed:
        drop_stored_shapes(pruned.graph)
    drop_unread_tensors(pruned.graph)
    return pruned, removed


def _given(link: Link) -> str:
    """Return the name of what the second layer of a link reads."""
    return str(link.second.input[0])
