"""T5 and Flan-T5 as two graphs: tokens to the keys and values of an encoder, and a decoder that attends to them.

Source: `models/t5/modeling_t5.py` of transformers 5.24.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from edge_infer.errors import ConversionError, UnsupportedModel
from edge_infer_converters.sources.decoder.fields import Fields
from edge_infer_converters.sources.encoder_decoder.graph import Cache, Graph, Weights
from edge_infer_converters.sources.encoder_decoder.pair import Pair

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer_converters.sources.decoder.shards import StoredTensor

_DEFAULTS = {
    "feed_forward_proj": "relu",
    "layer_norm_epsilon": 1e-6,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "tie_word_embeddings": True,
}
_ACTIVATIONS = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "gated-gelu": ("gelu_new", True),
    "gated-relu": ("relu", True),
}
# Copies of the shared table in old checkpoints, and a table of distances that nothing reads.
_IGNORED = ("embed_tokens.weight", "lm_head.weight", "EncDecAttention.relative_attention_bias.weight")


def buckets(distances: np.ndarray, count: int, most: int, *, is_both_ways: bool) -> np.ndarray:
    """Return the bucket of each distance (a key's position less the query's), in float32 as torch computes it."""
    found = np.zeros_like(distances)
    if is_both_ways:
        count //= 2
        found = (distances > 0) * count
        distances = np.abs(distances)
    else:
        distances = np.maximum(-distances, 0)
    exact = count // 2
    ratio = np.log(np.maximum(distances, 1).astype(np.float32) / np.float32(exact)) / np.float32(math.log(most / exact))
    far = exact + (ratio * np.float32(count - exact)).astype(np.int64)
    return np.asarray(found + np.where(distances < exact, distances, np.minimum(far, count - 1)))


class _T5:
    def __init__(self, document: Mapping[str, Any], weights: Weights) -> None:
        fields = Fields(document, {**_DEFAULTS, "num_decoder_layers": document.get("num_layers")})
        self.width, self.inner = fields.size("d_model", 2**14), fields.size("d_ff", 2**17)
        self.heads, self.size = fields.size("num_heads", 512), fields.size("d_kv", 1024)
        self.vocab = fields.size("vocab_size", 2**20)
        self.layers = {
            "encoder": fields.size("num_layers", 256),
            "decoder": fields.size("num_decoder_layers", 256),
        }
        self.buckets = fields.size("relative_attention_num_buckets", 4096, 4)
        self.most = fields.size("relative_attention_max_distance", 2**16, self.buckets)
        self.epsilon = fields.number("layer_norm_epsilon", 0.0, 1.0)
        kind = fields.get("feed_forward_proj")
        if not isinstance(kind, str) or kind not in _ACTIVATIONS:
            raise fields.wrong("feed_forward_proj", kind, f"one of {', '.join(_ACTIVATIONS)}")
        self.activation, self.is_gated = _ACTIVATIONS[kind]
        self.is_tied = fields.flag("tie_word_embeddings")
        scales = fields.get("scale_decoder_outputs")
        self.scales_outputs = self.is_tied if scales is None else fields.flag("scale_decoder_outputs")
        self.weights = weights

    def encoder(self) -> Graph:
        """Return the graph from tokens [1, length] to keys and values for each layer of the decoder."""
        graph = Graph("encoder", self.weights)
        ids = graph.input("input_ids", TensorProto.INT64, [1, "length"])
        x = graph.add("Gather", self._table(graph), ids)
        rows = graph.numbers(graph.constant(0), graph.size_of(ids, 1))
        bias = self._distances(graph, "encoder", rows, rows)
        for layer in range(self.layers["encoder"]):
            at = f"encoder.block.{layer}.layer"
            y = self._norm(graph, x, f"{at}.0.layer_norm")
            q, k, v = (self._projected(graph, y, f"{at}.0.SelfAttention.{one}") for one in "qkv")
            x = graph.add("Add", x, self._mixed(graph, f"{at}.0.SelfAttention", q, k, v, bias))
            x = self._perceptron(graph, x, f"{at}.1")
        x = self._norm(graph, x, "encoder.final_layer_norm")
        for layer in range(self.layers["decoder"]):
            for part, name in (("key", "k"), ("value", "v")):
                y = self._projected(graph, x, f"decoder.block.{layer}.layer.1.EncDecAttention.{name}")
                graph.output(f"cross_{part}_{layer}", y, [1, self.heads, "length", self.size])
        return graph

    def decoder(self) -> tuple[Graph, Cache]:
        """Return the graph from tokens, cached keys and values and the encoder's to the logits of the last token."""
        graph, layers = Graph("decoder", self.weights), self.layers["decoder"]
        ids = graph.input("input_ids", TensorProto.INT64, [1, "tokens"])
        cache = Cache(graph, layers, self.heads, self.size)
        for layer in range(layers):
            for part in ("key", "value"):
                graph.input(f"cross_{part}_{layer}", TensorProto.FLOAT, [1, self.heads, "length", self.size])
        past = graph.size_of("past_key_0", 2)
        total = graph.add("Add", past, graph.size_of(ids, 1))
        rows, positions = graph.numbers(past, total), graph.numbers(graph.constant(0), total)
        bias = self._distances(graph, "decoder", rows, positions)
        bias = graph.add("Add", bias, graph.seen(rows, positions))
        table = self._table(graph)
        x = graph.add("Gather", table, ids)
        for layer in range(layers):
            at = f"decoder.block.{layer}.layer"
            y = self._norm(graph, x, f"{at}.0.layer_norm")
            q, k, v = (self._projected(graph, y, f"{at}.0.SelfAttention.{one}") for one in "qkv")
            k, v = cache.extended(layer, "key", k), cache.extended(layer, "value", v)
            x = graph.add("Add", x, self._mixed(graph, f"{at}.0.SelfAttention", q, k, v, bias))
            q = self._projected(graph, self._norm(graph, x, f"{at}.1.layer_norm"), f"{at}.1.EncDecAttention.q")
            mixed = self._mixed(graph, f"{at}.1.EncDecAttention", q, f"cross_key_{layer}", f"cross_value_{layer}")
            x = self._perceptron(graph, graph.add("Add", x, mixed), f"{at}.2")
        last = self._norm(graph, graph.add("Gather", x, graph.constant(-1), axis=1), "decoder.final_layer_norm")
        if self.scales_outputs:
            last = graph.add("Mul", last, graph.constant(self.width**-0.5, np.float32))
        if not self.is_tied:
            head = self.weights.read("lm_head.weight", (self.vocab, self.width))
            table = graph.store("lm_head.weight", head)
        graph.output("logits", graph.add("Gemm", last, table, transB=1), [1, self.vocab])
        return graph, cache

    def _table(self, graph: Graph) -> str:
        return graph.store("shared.weight", self.weights.read("shared.weight", (self.vocab, self.width)))

    def _norm(self, graph: Graph, x: str, name: str) -> str:
        return graph.rms_norm(x, name, self.width, self.epsilon)

    def _projected(self, graph: Graph, x: str, name: str) -> str:
        y = graph.linear(x, name, self.heads * self.size, self.width, has_bias=False)
        return graph.split_heads(y, self.heads, self.size)

    def _mixed(self, graph: Graph, name: str, q: str, k: str, v: str, bias: str = "") -> str:
        inner = self.heads * self.size
        return graph.linear(graph.attention(q, k, v, inner, bias), f"{name}.o", self.width, inner, has_bias=False)

    def _perceptron(self, graph: Graph, x: str, at: str) -> str:
        y, name = self._norm(graph, x, f"{at}.layer_norm"), f"{at}.DenseReluDense"
        first = graph.linear(
            y, f"{name}.wi_0" if self.is_gated else f"{name}.wi", self.inner, self.width, has_bias=False
        )
        inner = graph.activated(first, self.activation)
        if self.is_gated:
            inner = graph.add("Mul", inner, graph.linear(y, f"{name}.wi_1", self.inner, self.width, has_bias=False))
        return graph.add("Add", x, graph.linear(inner, f"{name}.wo", self.width, self.inner, has_bias=False))

    def _distances(self, graph: Graph, side: str, rows: str, positions: str) -> str:
        """Return what is added to scores by distance, [heads, rows, positions]: far ones are all alike."""
        name = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        weights = self.weights.read(name, (self.buckets, self.heads))
        every = np.arange(-self.most, self.most + 1)
        table = weights[buckets(every, self.buckets, self.most, is_both_ways=side == "encoder")]
        stored = graph.store(f"{name}.by_distance", table)
        distance = graph.add("Sub", positions, graph.add("Unsqueeze", rows, graph.constant([1])))
        near = graph.add("Clip", distance, graph.constant(-self.most), graph.constant(self.most))
        found = graph.add("Gather", stored, graph.add("Add", near, graph.constant(self.most)))
        return graph.add("Transpose", found, perm=[2, 0, 1])


def t5(document: Mapping[str, Any], stored: Mapping[str, StoredTensor]) -> Pair:
    """Return the two graphs of a T5.

    Raises:
        ConversionError: A field or a tensor is missing or wrong.
        UnsupportedModel: It computes what is not supported.
    """
    weights = Weights(stored)
    if "shared.weight" not in weights:
        raise ConversionError("The weights have no `shared.weight`", hint="is it another model's file?")
    if "decoder.block.0.layer.0.SelfAttention.q.weight" not in weights:
        raise UnsupportedModel("The model has an encoder alone", hint="take the whole model")
    model = _T5(document, weights)
    encoder = model.encoder().model()
    graph, cache = model.decoder()
    made = Pair(encoder, graph.model(), tuple(cache.pairs), model.vocab, 0)
    weights.refuse_others("t5", _IGNORED)
    return made
