"""Write a model of transformers as the Hub has them: configuration, processor and `onnx/model.onnx`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: A small model of most kinds.
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
#: A small model of sounds.
SMALL_EARS: dict[str, Any] = {
    "conv_dim": (16, 16),
    "conv_stride": (5, 4),
    "conv_kernel": (10, 8),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    **SMALL,
}


def hearer_of_letters(vocabulary: Path) -> tuple[Any, Any]:
    """Return a model of transformers that hears letters, and its tokenizer, whose file is written."""
    import torch
    import transformers as hf

    letters = ("<pad>", "<s>", "</s>", "<unk>", "|", *"abc")
    vocabulary.write_text(json.dumps({one: i for i, one in enumerate(letters)}), "utf-8")
    model = hf.Wav2Vec2ForCTC(hf.Wav2Vec2Config(vocab_size=len(letters), **SMALL_EARS))
    with torch.no_grad():
        model.lm_head.bias[1:4] = -100  # no trained model says <s>, </s> or <unk>, which transformers would print
    return model, hf.Wav2Vec2CTCTokenizer(str(vocabulary))


def ranking(model: Any, tokenizer: Any, query: str, documents: Sequence[str]) -> list[dict[str, Any]]:
    """Return the places of documents and their scores as transformers gives them for each pair, the best first."""
    import transformers as hf

    peer = hf.pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    pairs = [{"text": query, "text_pair": document} for document in documents]
    scores = [one["score"] for one in peer(pairs, function_to_apply="sigmoid")]
    order = sorted(range(len(scores)), key=lambda at: -scores[at])
    return [{"corpus_id": at, "score": scores[at]} for at in order]


def export(
    folder: Path, model: Any, parts: Sequence[Any], example: dict[str, Any], outputs: Sequence[str], axes: int
) -> None:
    """Write the folder of a model.

    Args:
        folder: The folder to make.
        model: The model of transformers.
        parts: Its processor or tokenizer, or both.
        example: Its inputs; those of two axes may have another length too.
        outputs: Its outputs.
        axes: The axes that they have; the second one of three is as long as the inputs.
    """
    import torch

    names = list(example)

    class Positional(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *values: Any) -> tuple[Any, ...]:
            found = self.model(**dict(zip(names, values, strict=True)))
            return tuple(found[name] for name in outputs)

    (folder / "onnx").mkdir(parents=True)
    model.eval().save_pretrained(folder)  # it writes the architecture into config.json
    (folder / "model.safetensors").unlink()
    for part in parts:
        part.save_pretrained(folder)
    dims = {0: "batch", 1: "length"}
    free: dict[str, Any] = {name: dims if example[name].ndim == 2 else {0: "batch"} for name in names}
    free |= {name: dims if axes > 2 else {0: "batch"} for name in outputs}
    torch.onnx.export(
        Positional(),
        tuple(example.values()),
        str(folder / "onnx/model.onnx"),
        input_names=names,
        output_names=list(outputs),
        dynamic_axes=free,
        opset_version=17,
        dynamo=False,
    )
    model.eval()  # the export gave it back as it trains
