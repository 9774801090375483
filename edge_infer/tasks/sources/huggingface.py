"""Read a folder of the Hugging Face Hub: the configurations of the model, its processor and its tokenizer.

The rules are those of transformers 5.23 (`pipelines/*.py`) and of sentence-transformers 6.2. The length of a text never
comes from `tokenizer.json`: published files carry the truncation and padding of their last training there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from edge_infer.errors import BundleError, InputError, UnsupportedError, listed
from edge_infer.tasks.sources import timm
from edge_infer.tasks.sources.feature_extractors import sound_steps
from edge_infer.tasks.sources.fields import read_beside, read_json
from edge_infer.tasks.sources.found import made
from edge_infer.tasks.sources.image_processors import processor_type, steps_of
from edge_infer.tasks.sources.images import ImageInput, is_image
from edge_infer.tasks.sources.sentence_transformers import SENTENCES, after_tokens, prompt_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer.tasks.sources.facts import Facts
    from edge_infer.tasks.sources.fields import Fields
    from edge_infer.tasks.sources.found import Found

    StepJson = dict[str, Any]

SOURCE = "huggingface"
#: The files of a folder that are read.
FILES = (
    "1_Pooling/config.json",
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "preprocessor_config.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
)
_CTC = "automatic-speech-recognition"
#: The task of a class of transformers, by how its name ends.
_ENDINGS = {
    "ForImageClassification": "image-classification",
    "ForImageClassificationWithTeacher": "image-classification",
    "ForObjectDetection": "object-detection",
    "ForSemanticSegmentation": "image-segmentation",
    "ForDepthEstimation": "depth-estimation",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMaskedLM": "fill-mask",
    "ForAudioClassification": "audio-classification",
    "ForCTC": _CTC,
}
#: What a model for one task can be used for too, where that is asked for.
_ALSO = {
    "text-classification": ("zero-shot-classification", "text-ranking"),
    "text-ranking": ("text-classification",),
}
#: Detectors whose classes are on their own, with no class for nothing; others have the last one for that.
_SIGMOID_DETECTORS = ("conditional_detr", "deformable_detr", "dab-detr", "rt_detr", "rt_detr_v2", "d_fine")
#: Models whose positions begin behind the id of padding, so that two of them hold no token.
_SHIFTED = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer", "bertweet", "xlm-roberta-xl", "data2vec-text")
#: Outputs that are a vector of each token, and those that are the vector of the text: `text_embeds` is that of CLIP.
_TOKEN_VECTORS = ("last_hidden_state", "token_embeddings")
_TEXT_VECTORS = ("sentence_embedding", "text_embeds")
_IDS, _MASK, _TYPES = "input_ids", "attention_mask", "token_type_ids"
#: A `model_max_length` above this stands for none (transformers writes 1e30).
_NO_LENGTH = 10**6


def find(files: Mapping[str, bytes], facts: Facts, task: str | None = None) -> Found | None:
    """Return the definition of a model from the files beside it; None where there is no `config.json`.

    Args:
        files: The bytes of those of `FILES` that the folder has.
        facts: What the model takes and gives.
        task: The task that is wanted; None for what the files say.

    Raises:
        BundleError: A file is damaged.
        InputError: The model is for another task.
        UnsupportedError: The files ask for what no step does; the message names it.
    """
    if "config.json" not in files:
        return None
    config = read_json(files["config.json"], "config.json")
    found = timm.find(config, facts)
    if found is not None:
        return found
    if "architectures" not in config and "model_type" not in config:
        return None  # another tool's file of this name
    folder = _Folder(files, config, facts)
    own = folder.task()
    if own is None:
        return None
    if task not in (None, own, *_ALSO.get(own, ())):
        raise InputError(f"the model is for {own}, and not for {task}", hint=f"--task {own}", expected=own, got=task)
    return folder.found(task or own)


class _Folder:
    """The files of a folder, and the model between."""

    def __init__(self, files: Mapping[str, bytes], config: Fields, facts: Facts) -> None:
        self._files = files
        self._config = config
        self._facts = facts
        self._inputs = {spec.name: spec for spec in facts.inputs}
        self._labels = config.labels("id2label")

    def task(self) -> str | None:
        """Return the task that the name of the model's class says."""
        classes = self._config.texts("architectures")
        name = classes[0] if classes else ""
        for ending, task in _ENDINGS.items():
            if name.endswith(ending):
                if task == "text-classification" and _IDS not in self._inputs and self._read_processor("audio"):
                    return "audio-classification"
                is_ranker = task == "text-classification" and "sentence_transformers" in self._config
                return "text-ranking" if is_ranker else task
        if name and not name.endswith(("Model", "Encoder")) and "For" in name:
            raise UnsupportedError(
                f"`{name}` of config.json is not supported; supported are classes that end in "
                + listed(sorted(_ENDINGS)),
                hint="say what the steps are: --task NAME --preprocess FILE.json",
            )
        if _IDS in self._inputs:
            if any(map(is_image, self._facts.inputs)):
                raise UnsupportedError(
                    f"`{name or 'the model'}` takes images and texts at once, which no task does",
                    hint="export its two parts on their own, such as CLIPVisionModelWithProjection and "
                    "CLIPTextModelWithProjection: their vectors are compared by `edge_infer.cosine_similarity`",
                )
            gives_vectors = any(spec.name in (*_TEXT_VECTORS, *_TOKEN_VECTORS) for spec in self._facts.outputs)
            return "feature-extraction" if gives_vectors or len(self._facts.outputs[0].shape) == 3 else None
        return "image-feature-extraction" if any(map(is_image, self._facts.inputs)) else None

    def found(self, task: str) -> Found:
        """Return the definition for a task."""
        if task in ("audio-classification", _CTC):
            return self._sounds(task)
        if _IDS not in self._inputs:
            return self._images(task)
        return self._texts(task)

    # -- images --

    def _images(self, task: str) -> Found:
        image = next((spec for spec in self._facts.inputs if is_image(spec)), self._facts.inputs[0])
        config = self._read_processor("image")
        if config is None:
            raise UnsupportedError("the folder has no preprocessor_config.json", hint="download it, beside config.json")
        inputs = {image.name: steps_of(config, ImageInput(image))}
        for name, spec in self._inputs.items():
            if name == "pixel_mask":  # which pixels of a batch are not padding: all, of one image
                count = 1
                for dim in spec.shape:
                    count *= dim if isinstance(dim, int) else 1
                inputs[name] = [{"step": "tensor.constant", "values": [1] * count}]
            elif name != image.name:
                raise UnsupportedError(f"no step makes the input `{spec}`", hint="--preprocess FILE.json")
        return made(task, SOURCE, inputs, self._after_image(task), self._labels)

    def _after_image(self, task: str) -> list[StepJson]:
        if task == "image-classification":
            return [*self._classes(5)]
        if task == "object-detection":
            is_sigmoid = self._config.text("model_type") in _SIGMOID_DETECTORS
            decode = {
                "step": "post.boxes",
                "format": "decoded",
                "tensors": {"boxes": self._output("pred_boxes"), "scores": self._output("logits")},
                "order": "cxcywh",
                "unit": "ratio",
                "activation": "sigmoid" if is_sigmoid else "softmax",
                "background": None if is_sigmoid else "last",
            }
            return [decode, {"step": "post.detections"}]
        if task == "depth-estimation":
            return [{"step": "post.depth", "tensor": self._tensor("predicted_depth")}]
        if task == "image-segmentation":
            spec = self._facts.output("logits")
            if spec is None or len(spec.shape) != 4:
                raise UnsupportedError(
                    "the segmentation model gives no `logits` [batch, classes, height, width]",
                    hint="say what the steps are: --preprocess FILE.json",
                )
            is_last = len(self._labels) == spec.shape[3] and spec.shape[1] != spec.shape[3]
            return [{"step": "post.mask", "tensor": self._tensor("logits"), "layout": "HWC" if is_last else "CHW"}]
        return [{"step": "post.tensor", "tensor": self._tensor("image_embeds", "last_hidden_state", "pooler_output")}]

    # -- sounds --

    def _sounds(self, task: str) -> Found:
        config = self._read_processor("audio")
        if config is None:
            raise UnsupportedError("the folder has no preprocessor_config.json", hint="download it, beside config.json")
        spec = self._facts.inputs[0]
        steps = sound_steps(config, spec)
        others = [one for one in self._inputs if one != spec.name]
        if others:
            raise UnsupportedError(
                f"no step makes the input `{others[0]}` of a sound", hint="export the model with its first input alone"
            )
        if task == _CTC:
            after, files = self._transcript()
            return made(task, SOURCE, {spec.name: steps}, after, [], files)
        return made(task, SOURCE, {spec.name: steps}, self._classes(5), self._labels)

    def _transcript(self) -> tuple[list[StepJson], dict[str, bytes]]:
        """Return the steps to the text of a CTC model, and the vocabulary that they read."""
        if "vocab.json" not in self._files:
            raise UnsupportedError("the folder has no vocab.json", hint="download it, beside config.json")
        config = read_beside(self._files, "tokenizer_config.json")
        step: StepJson = {"step": "post.ctc", "tensor": self._tensor("logits")}
        if config is not None:
            step["blank"] = _token(config, "pad_token", "<pad>")
            step["delimiter"] = config.text("word_delimiter_token", "|")
            step["lowers"] = config.flag("do_lower_case")
            marks = (("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>"))
            step["special"] = [step["blank"], *(_token(config, name, usual) for name, usual in marks)]
        return [step], {"vocab.json": self._files["vocab.json"]}

    # -- texts --

    def _texts(self, task: str) -> Found:
        if "tokenizer.json" not in self._files:
            raise UnsupportedError(
                "the folder has no tokenizer.json",
                hint="AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) writes it",
            )
        after, source, prefix = self._after_text(task), SOURCE, None
        if task == "feature-extraction" and "modules.json" in self._files:
            source, prefix = SENTENCES, prompt_of(self._files)
        length = self._fixed_length() or self._max_length()
        # transformers' own: at most 128 tokens, and half of a window.
        stride = min(length // 2, 128) if task == "question-answering" and length is not None else None
        tokenize = {
            "step": "text.tokenize",
            "max_length": self._max_length(),
            "doc_stride": stride,
            "pad_id": self._config.whole("pad_token_id"),
            "pad_to": self._fixed_length(),
            "truncate": {"question-answering": "only_second", "zero-shot-classification": "only_first"}.get(task),
            "offsets": True if task in ("token-classification", "question-answering") else None,
            "prefix": prefix,
            "tensors": {"ids": _IDS, "mask": _MASK, "types": _TYPES},
        }
        labels = [] if task in ("feature-extraction", "fill-mask", "question-answering") else self._labels
        others = [name for name in self._inputs if name not in (_IDS, _MASK, _TYPES)]
        if others:
            raise UnsupportedError(f"no step makes the input `{others[0]}` of a text", hint="export the model without")
        return made(task, source, {"*": [tokenize]}, after, labels, {"tokenizer.json": self._files["tokenizer.json"]})

    def _after_text(self, task: str) -> list[StepJson]:
        if task == "text-classification":
            return self._classes(1)
        if task == "question-answering":
            ends = {"start": self._output("start_logits"), "end": self._output("end_logits")}
            return [{"step": "post.answer_span", **ends}]
        if task == "feature-extraction":
            return self._vectors()
        logits = self._tensor("logits")
        if task == "zero-shot-classification":
            if not any(label.lower().startswith("entail") for label in self._labels):
                raise InputError("the model has no label `entailment`", hint="take a model that was trained on NLI")
            return [{"step": "post.tensor", "tensor": logits}]
        if task == "text-ranking":
            step = "post.sigmoid" if len(self._labels) < 2 else "post.tensor"
            return [{"step": step, "tensor": logits}]
        if task == "token-classification":
            return [{"step": "post.softmax", "tensor": logits}, {"step": "post.entities"}]
        return [{"step": "post.softmax", "tensor": logits}, {"step": "post.fill_mask", "mask": self._mask_token()}]

    def _vectors(self) -> list[StepJson]:
        """Return the steps to the vector of a text: what `modules.json` says, else the vectors of all tokens."""
        names = [spec.name for spec in self._facts.outputs]
        if not {*names}.isdisjoint(_TEXT_VECTORS):
            return [{"step": "post.tensor", "tensor": self._tensor(*_TEXT_VECTORS)}]
        tensor = self._tensor(*_TOKEN_VECTORS)
        if "modules.json" not in self._files:
            return [{"step": "post.pool", "tensor": tensor, "method": "none"}]
        return after_tokens(self._files, tensor)

    def _mask_token(self) -> str:
        for name in ("special_tokens_map.json", "tokenizer_config.json"):
            config = read_beside(self._files, name)
            if config is not None and "mask_token" in config:
                value = config.values["mask_token"]
                part = config.part("mask_token") if isinstance(value, dict) else None
                return part.text("content") if part is not None else config.text("mask_token")
        return "[MASK]"

    def _max_length(self) -> int | None:
        """Return the most tokens of a text: what the model was made for, and not what it was last trained with."""
        bert = read_beside(self._files, "sentence_bert_config.json")
        own = bert.whole("max_seq_length") if bert is not None else None
        positions = self._config.whole("max_position_embeddings")
        if positions is not None and self._config.text("model_type") in _SHIFTED:
            positions -= (self._config.whole("pad_token_id", 1) or 0) + 1
        tokenizer = read_beside(self._files, "tokenizer_config.json")
        said = tokenizer.real("model_max_length", 0.0) if tokenizer is not None and self._has_length(tokenizer) else 0.0
        found = [int(one) for one in (own, positions, said, self._fixed_length()) if one and 0 < one < _NO_LENGTH]
        return min(found) if found else None

    @staticmethod
    def _has_length(tokenizer: Fields) -> bool:
        value = tokenizer.values.get("model_max_length")  # 1e30 as a whole number stands for none
        return isinstance(value, (int, float)) and value < _NO_LENGTH

    def _fixed_length(self) -> int | None:
        shape = self._inputs[_IDS].shape
        return shape[-1] if shape and isinstance(shape[-1], int) else None

    # -- all of them --

    def _classes(self, count: int) -> list[StepJson]:
        """Return the steps of a classifier, as transformers' pipelines choose them."""
        kind = self._config.text("problem_type")
        output = self._facts.output("logits")
        classes = output.shape[-1] if output is not None and output.shape else None
        if self._labels and isinstance(classes, int) and classes != len(self._labels):
            raise BundleError(
                f"`config.json` names {len(self._labels)} labels, and output `{output}` has {classes}",
                hint="--labels FILE, a name for each class",
            )
        number = classes if isinstance(classes, int) else len(self._labels) or 2
        top = {"step": "post.top_k", "top_k": count}
        if kind == "regression":
            return [{**top, "tensor": self._tensor("logits")}]
        step = "post.sigmoid" if kind == "multi_label_classification" or number == 1 else "post.softmax"
        return [{"step": step, "tensor": self._tensor("logits")}, top]

    def _tensor(self, *names: str) -> str | None:
        """Return the name of an output as a step gives it: None where it is the only one."""
        return None if len(self._facts.outputs) == 1 else self._output(*names)

    def _output(self, *names: str) -> str:
        spec = self._facts.output(*names)
        if spec is None:
            raise UnsupportedError(
                f"the model has no output `{names[0]}`; it has {listed([one.name for one in self._facts.outputs])}",
                hint="export it for its task: optimum-cli export onnx --model NAME FOLDER",
            )
        return spec.name

    def _read_processor(self, kind: str) -> Fields | None:
        """Return `preprocessor_config.json` where it is for images, or for sounds."""
        config = read_beside(self._files, "preprocessor_config.json")
        if config is None:
            return None
        is_sound = "sampling_rate" in config or bool(
            re.search("Wav2Vec2|AST|Audio|Whisper|Clap", processor_type(config))
        )
        return config if is_sound == (kind == "audio") else None


def _token(config: Fields, name: str, usual: str) -> str:
    """Return a special token: a text, or an object with one."""
    part = config.part(name) if isinstance(config.values.get(name), dict) else None
    return part.text("content", usual) if part is not None else config.text(name, usual)
