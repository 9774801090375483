"""One side of `generate_llama.py`: it measures when a line arrives, and answers milliseconds as JSON.

It also writes a Hugging Face folder as GGUF files (`write FOLDER PLACE`). It runs in ours and in the environment of the
peers, which has no edge-infer.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

PROMPT = [(place * 31) % 16000 + 300 for place in range(512)]
_STEPS, _STREAMS, _BEFORE = 16, 8, 96


def write(folder: str, place: str) -> None:
    """Write `f32.gguf`, `q8_0.gguf` and `q4_0.gguf`."""
    import gguf  # type: ignore[import-not-found, unused-ignore]
    import numpy as np

    config = json.loads((Path(folder) / "config.json").read_text())
    tokenizer = json.loads((Path(folder) / "tokenizer.json").read_text())["model"]
    content = (Path(folder) / "model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    kinds = gguf.GGMLQuantizationType
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, kind in (("f32", None), ("q8_0", kinds.Q8_0), ("q4_0", kinds.Q4_0)):
        out = gguf.GGUFWriter(Path(place) / f"{name}.gguf", "llama")
        out.add_context_length(config["max_position_embeddings"])
        out.add_embedding_length(config["hidden_size"])
        out.add_block_count(config["num_hidden_layers"])
        out.add_feed_forward_length(config["intermediate_size"])
        out.add_head_count(config["num_attention_heads"])
        out.add_head_count_kv(config["num_key_value_heads"])
        out.add_layer_norm_rms_eps(config["rms_norm_eps"])
        out.add_rope_freq_base(config["rope_theta"])
        out.add_rope_dimension_count(config["head_dim"])
        out.add_vocab_size(config["vocab_size"])
        out.add_tokenizer_model("gpt2")
        out.add_tokenizer_pre("gpt-2")
        out.add_token_list([text for text, _ in sorted(tokenizer["vocab"].items(), key=lambda pair: pair[1])])
        out.add_token_types([3 if i < 3 else 1 for i in range(config["vocab_size"])])
        out.add_token_merges(tokenizer["merges"])
        out.add_bos_token_id(1)
        out.add_eos_token_id(2)
        for source, entry in header.items():
            start, end = entry["data_offsets"]
            values = np.frombuffer(content[8 + length + start : 8 + length + end], np.float32).reshape(entry["shape"])
            for part, heads in (("q_proj", config["num_attention_heads"]), ("k_proj", config["num_key_value_heads"])):
                if part in source:  # llama.cpp rotates neighbours
                    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, values.shape[1])
                    values = halves.swapaxes(1, 2).reshape(values.shape)
            target = str(names.get_name(source, try_suffixes=(".weight",)))
            if kind is None or values.ndim == 1:
                out.add_tensor(target, np.ascontiguousarray(values))
                continue
            # The embedding and the head have 8 bits in our int4 too.
            own = kinds.Q8_0 if "embed" in source or "lm_head" in source else kind
            out.add_tensor(target, gguf.quantize(np.ascontiguousarray(values), own), raw_dtype=own)
        out.write_header_to_file()
        out.write_kv_data_to_file()
        out.write_tensors_to_file()
        out.close()


class Ours:
    """The native decoder."""

    def __init__(self, bundle: str, precision: str) -> None:
        from edge_infer.generation.decoder import Decoder

        file = next((Path(bundle) / "decoder").glob(f"*{precision}*"))
        self._decoder = Decoder.open(file, context=1024, slots=_STREAMS)

    def run(self, tokens: list[int], start: int) -> None:
        """Compute tokens of one sequence."""
        count = len(tokens)
        self._decoder.run(tokens, [0] * count, range(start, start + count), [count - 1])
        self._decoder.top(0, 1)

    def streams(self, position: int) -> None:
        """Compute a token of each of several sequences."""
        self._decoder.run([5] * _STREAMS, range(_STREAMS), [position] * _STREAMS, range(_STREAMS))
        for row in range(_STREAMS):
            self._decoder.top(row, 1)


class Llama:
    """llama.cpp by its C interface."""

    def __init__(self, path: str) -> None:
        import llama_cpp  # type: ignore[import-not-found, unused-ignore]

        self._c: Any = llama_cpp
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        asked = llama_cpp.llama_context_default_params()
        asked.n_ctx, asked.n_batch, asked.n_ubatch, asked.n_seq_max = 1024 * _STREAMS, 512, 512, _STREAMS
        asked.n_threads = asked.n_threads_batch = 1
        self._context = llama_cpp.llama_init_from_model(model, asked)
        self._batch = llama_cpp.llama_batch_init(512, 0, 1)
        self._size = 16384

    def _decode(self, rows: list[tuple[int, int, int, bool]]) -> None:
        batch = self._batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, is_wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, is_wanted
        if self._c.llama_decode(self._context, batch):
            raise SystemExit("llama_decode failed")
        self._c.llama_get_logits(self._context)

    def run(self, tokens: list[int], start: int) -> None:
        """Compute tokens of one sequence."""
        memory = self._c.llama_get_memory(self._context)
        self._c.llama_memory_seq_rm(memory, 0, start, -1)
        last = len(tokens) - 1
        self._decode([(token, start + i, 0, i == last) for i, token in enumerate(tokens)])

    def streams(self, position: int) -> None:
        """Compute a token of each of several sequences."""
        memory = self._c.llama_get_memory(self._context)
        for sequence in range(_STREAMS):
            self._c.llama_memory_seq_rm(memory, sequence, position, -1)
        self._decode([(5, position, sequence, True) for sequence in range(_STREAMS)])


class Genai:
    """onnxruntime-genai; it has no several sequences of their own lengths."""

    def __init__(self, folder: str) -> None:
        import onnxruntime_genai  # type: ignore[import-not-found, unused-ignore]

        self._genai: Any = onnxruntime_genai
        path = Path(folder) / "genai_config.json"
        config = json.loads(path.read_text())
        config["model"]["decoder"].setdefault("session_options", {}).update(
            intra_op_num_threads=1, inter_op_num_threads=1
        )
        path.write_text(json.dumps(config))
        self._model = onnxruntime_genai.Model(folder)
        self._generator: Any = None

    def run(self, tokens: list[int], start: int) -> None:
        """Compute tokens of one sequence."""
        if start == 0:
            asked = self._genai.GeneratorParams(self._model)
            asked.set_search_options(max_length=1024, do_sample=False)
            self._generator = self._genai.Generator(self._model, asked)
        self._generator.append_tokens(tokens)


def measured(side: Any) -> dict[str, float]:
    """Return milliseconds of the processor, by metric."""

    def timed(call: Any, *values: Any) -> float:
        before = time.process_time()
        call(*values)
        return 1000 * (time.process_time() - before)

    side.run(PROMPT[:16], 0)
    found = {"short": statistics.median(timed(side.run, [5], 16 + step) for step in range(_STEPS))}
    found["prefill"] = timed(side.run, PROMPT, 0)
    found["long"] = statistics.median(timed(side.run, [5], 512 + step) for step in range(_STEPS))
    if hasattr(side, "streams"):
        for position in range(_BEFORE):
            side.streams(position)
        found["streams"] = statistics.median(timed(side.streams, _BEFORE + step) for step in range(_STEPS))
    return found


def main() -> None:
    """Write files, or measure for each line."""
    kind, *words = sys.argv[1:]
    if kind == "write":
        write(*words)
        return
    side = {"ours": Ours, "llama": Llama, "genai": Genai}[kind](*words)
    for _ in sys.stdin:
        print(json.dumps(measured(side)), flush=True)


if __name__ == "__main__":
    main()
