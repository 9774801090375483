"""Read what sentence-transformers adds to a folder of the Hub: the modules behind the model, and the usual prompt.

The rules are those of sentence-transformers 6.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.errors import BundleError, UnsupportedError, listed
from edge_infer.tasks.sources.fields import read_any, read_beside

if TYPE_CHECKING:
    from collections.abc import Mapping

    StepJson = dict[str, Any]

SENTENCES = "sentence-transformers"
_POOLING = {"cls_token": "first", "mean_tokens": "mean", "max_tokens": "max", "lasttoken": "last"}
_POOLING_WORDS = {"cls": "first", "mean": "mean", "max": "max", "lasttoken": "last"}


def after_tokens(files: Mapping[str, bytes], tensor: str | None) -> list[StepJson]:
    """Return the steps from the vectors of tokens to the vector of a text, as `modules.json` says.

    Args:
        files: The bytes of the folder's files.
        tensor: The output with the vectors of tokens; None where it is the only one.

    Raises:
        BundleError: A file is damaged.
        UnsupportedError: The files ask for what no step does.
    """
    pooling, normalizes = None, False
    for module in _modules(files):
        kind = module.rpartition(".")[2]
        if kind == "Pooling":
            pooling = _pooling(files)
        elif kind == "Normalize":
            normalizes = True
        elif kind != "Transformer":
            raise UnsupportedError(
                f"the module `{kind}` of modules.json is not supported", hint="--preprocess FILE.json"
            )
    after: list[StepJson] = [{"step": "post.pool", "tensor": tensor, "method": pooling or "none"}]
    return [*after, {"step": "post.normalize"}] if normalizes else after


def _modules(files: Mapping[str, bytes]) -> list[str]:
    entries = read_any(files["modules.json"], "modules.json")
    fits = isinstance(entries, list) and all(
        isinstance(one, dict) and isinstance(one.get("type"), str) for one in entries
    )
    if not fits:
        raise BundleError("`modules.json` is not a list of modules with a `type`", hint="download the file again")
    return [one["type"] for one in entries]


def _pooling(files: Mapping[str, bytes]) -> str:
    config = read_beside(files, "1_Pooling/config.json")
    if config is None:
        raise UnsupportedError("the folder has no 1_Pooling/config.json", hint="download it, beside modules.json")
    word = config.text("pooling_mode")
    chosen = [word] if word else []
    for name, value in config.values.items():
        mode = name.removeprefix("pooling_mode_")
        if mode != name and value:
            chosen.append(mode)
    known = {**_POOLING, **_POOLING_WORDS}
    if len(chosen) != 1 or chosen[0] not in known:
        raise UnsupportedError(
            f"the pooling `{' + '.join(chosen) or 'without a mode'}` of 1_Pooling/config.json is not supported; "
            f"supported is one of {listed(list(_POOLING_WORDS))}",
            hint="--preprocess FILE.json",
        )
    return known[chosen[0]]


def prompt_of(files: Mapping[str, bytes]) -> str | None:
    """Return what sentence-transformers puts before each text unless told otherwise."""
    bert = read_beside(files, "sentence_bert_config.json")
    tokenizer = read_beside(files, "tokenizer_config.json")
    lowers = bert is not None and bert.flag("do_lower_case")
    if lowers and not (tokenizer is not None and tokenizer.flag("do_lower_case")):
        raise UnsupportedError(
            "`do_lower_case` of sentence_bert_config.json is not supported",
            hint="AutoTokenizer.from_pretrained(FOLDER, do_lower_case=True).save_pretrained(FOLDER)",
        )
    config = read_beside(files, "config_sentence_transformers.json")
    if config is None or "default_prompt_name" not in config:
        return None
    prompts = config.part("prompts")
    return (prompts.text(config.text("default_prompt_name")) or None) if prompts is not None else None
