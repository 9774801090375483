"""Whisper as two graphs: sound features to the keys and values of an encoder, and a decoder that attends to them.

Source: `models/whisper/modeling_whisper.py` of transformers 5.24.
"""

from __future__ import annotations

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

_DEFAULTS = {"activation_function": "gelu", "max_source_positions": 1500, "max_target_positions": 448}
_MOST = {"d_model": 4096, "vocab_size": 2**20, "layers": 256, "heads": 256, "ffn": 2**16, "positions": 2**16}
_IGNORED = ("proj_out.weight", "encoder.embed_positions.weight")


class _Whisper:
    def __init__(self, document: Mapping[str, Any], weights: Weights) -> None:
        fields = Fields(document, _DEFAULTS)
        self.width = fields.size("d_model", _MOST["d_model"])
        self.vocab = fields.size("vocab_size", _MOST["vocab_size"])
        self.mels = fields.size("num_mel_bins", 512)
        self.source, self.target = (
            fields.size(name, _MOST["positions"]) for name in ("max_source_positions", "max_target_positions")
        )
        self.layers = {side: fields.size(f"{side}_layers", _MOST["layers"]) for side in ("encoder", "decoder")}
        self.heads = {side: fields.size(f"{side}_attention_heads", _MOST["heads"]) for side in ("encoder", "decoder")}
        self.inner = {side: fields.size(f"{side}_ffn_dim", _MOST["ffn"]) for side in ("encoder", "decoder")}
        for side, heads in self.heads.items():
            if self.width % heads:
                raise fields.wrong(f"{side}_attention_heads", heads, f"a divisor of the {self.width} values")
        if fields.get("activation_function") != "gelu" or fields.flag("scale_embedding"):
            raise UnsupportedModel(
                "config.json: `activation_function` other than gelu, and `scale_embedding`, are not supported",
                hint="take a published Whisper",
            )
        self.weights = weights
        self.root = "model." if "model.encoder.conv1.weight" in weights else ""

    def encoder(self) -> Graph:
        """Return the graph from features [1, mels, frames] to keys and values for each layer of the decoder."""
        graph, width = Graph("encoder", self.weights), self.width
        x = graph.input("input_features", TensorProto.FLOAT, [1, self.mels, 2 * self.source])
        for number, stride in ((1, 1), (2, 2)):
            name = f"{self.root}encoder.conv{number}"
            kernel = self.weights.read(f"{name}.weight", (width, self.mels if number == 1 else width, 3))
            bias = graph.vector(f"{name}.bias", width)
            x = graph.add(
                "Conv", x, graph.store(f"{name}.weight", kernel), bias, kernel_shape=[3], pads=[1, 1], strides=[stride]
            )
            x = graph.activated(x, "gelu")
        positions = f"{self.root}encoder.embed_positions.weight"
        table = graph.store(positions, self.weights.read(positions, (self.source, width)))
        x = graph.add("Add", graph.add("Transpose", x, perm=[0, 2, 1]), table)
        for layer in range(self.layers["encoder"]):
            at = f"{self.root}encoder.layers.{layer}"
            q, k, v = self._projected(graph, graph.layer_norm(x, f"{at}.self_attn_layer_norm", width), at, "encoder")
            x = graph.add("Add", x, self._mixed(graph, f"{at}.self_attn", q, k, v))
            x = self._perceptron(graph, x, at, "encoder")
        x = graph.layer_norm(x, f"{self.root}encoder.layer_norm", width)
        heads = self.heads["decoder"]
        for layer in range(self.layers["decoder"]):
            at = f"{self.root}decoder.layers.{layer}.encoder_attn"
            for part, name in (("key", "k_proj"), ("value", "v_proj")):
                y = graph.linear(x, f"{at}.{name}", width, width, has_bias=part == "value")
                shape = [1, heads, self.source, width // heads]
                graph.output(f"cross_{part}_{layer}", graph.split_heads(y, heads, width // heads), shape)
        return graph

    def decoder(self) -> tuple[Graph, Cache]:
        """Return the graph from tokens, cached keys and values and the encoder's to the logits of the last token."""
        graph, width, heads = Graph("decoder", self.weights), self.width, self.heads["decoder"]
        size, layers = width // heads, self.layers["decoder"]
        ids = graph.input("input_ids", TensorProto.INT64, [1, "tokens"])
        cache = Cache(graph, layers, heads, size)
        for layer in range(layers):
            for part in ("key", "value"):
                graph.input(f"cross_{part}_{layer}", TensorProto.FLOAT, [1, heads, self.source, size])
        past = graph.size_of("past_key_0", 2)
        total = graph.add("Add", past, graph.size_of(ids, 1))
        rows = graph.numbers(past, total)
        unseen = graph.seen(rows, graph.numbers(graph.constant(0), total))
        names = [f"{self.root}decoder.embed_tokens.weight", f"{self.root}decoder.embed_positions.weight"]
        table = graph.store(names[0], self.weights.read(names[0], (self.vocab, width)))
        places = graph.store(names[1], self.weights.read(names[1], (self.target, width)))
        x = graph.add("Add", graph.add("Gather", table, ids), graph.add("Gather", places, rows))
        for layer in range(layers):
            at = f"{self.root}decoder.layers.{layer}"
            q, k, v = self._projected(graph, graph.layer_norm(x, f"{at}.self_attn_layer_norm", width), at, "decoder")
            k, v = cache.extended(layer, "key", k), cache.extended(layer, "value", v)
            x = graph.add("Add", x, self._mixed(graph, f"{at}.self_attn", q, k, v, unseen))
            y = graph.layer_norm(x, f"{at}.encoder_attn_layer_norm", width)
            q = self._queries(graph, y, f"{at}.encoder_attn", heads)
            mixed = self._mixed(graph, f"{at}.encoder_attn", q, f"cross_key_{layer}", f"cross_value_{layer}")
            x = self._perceptron(graph, graph.add("Add", x, mixed), at, "decoder")
        last = graph.add("Gather", x, graph.constant(-1), axis=1)
        last = graph.layer_norm(last, f"{self.root}decoder.layer_norm", width)
        graph.output("logits", graph.add("Gemm", last, table, transB=1), [1, self.vocab])
        return graph, cache

    def _queries(self, graph: Graph, x: str, name: str, heads: int) -> str:
        size = self.width // heads
        y = graph.linear(x, f"{name}.q_proj", self.width, self.width)
        return graph.split_heads(graph.add("Mul", y, graph.constant(size**-0.5, np.float32)), heads, size)

    def _projected(self, graph: Graph, x: str, at: str, side: str) -> tuple[str, str, str]:
        name, heads, width = f"{at}.self_attn", self.heads[side], self.width
        keys = graph.linear(x, f"{name}.k_proj", width, width, has_bias=False)
        values = graph.linear(x, f"{name}.v_proj", width, width)
        keys, values = (graph.split_heads(one, heads, width // heads) for one in (keys, values))
        return self._queries(graph, x, name, heads), keys, values

    def _mixed(self, graph: Graph, name: str, q: str, k: str, v: str, bias: str = "") -> str:
        mixed = graph.attention(q, k, v, self.width, bias)
        return graph.linear(mixed, f"{name}.out_proj", self.width, self.width)

    def _perceptron(self, graph: Graph, x: str, at: str, side: str) -> str:
        y = graph.layer_norm(x, f"{at}.final_layer_norm", self.width)
        y = graph.activated(graph.linear(y, f"{at}.fc1", self.inner[side], self.width), "gelu")
        return graph.add("Add", x, graph.linear(y, f"{at}.fc2", self.width, self.inner[side]))


def whisper(document: Mapping[str, Any], stored: Mapping[str, StoredTensor]) -> Pair:
    """Return the two graphs of a Whisper.

    Raises:
        ConversionError: A field or a tensor is missing or wrong.
        UnsupportedModel: It computes what is not supported.
    """
    weights = Weights(stored)
    if not any(one.endswith("encoder.conv1.weight") for one in stored):
        raise ConversionError("The weights have no `model.encoder.conv1.weight`", hint="is it another model's file?")
    model = _Whisper(document, weights)
    encoder = model.encoder().model()
    graph, cache = model.decoder()
    made = Pair(encoder, graph.model(), tuple(cache.pairs), model.vocab, model.target)
    weights.refuse_others("whisper", _IGNORED)
    return made
