"""What stands beside the weights: tokenizer, chat template, the tokens that end an answer, the advised sampling."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import BundleError, ConversionError, EdgeInferError, listed
from edge_infer.tasks.text.definition import MAX_FILE_BYTES
from edge_infer.tasks.text.tokenizer import Tokenizer
from edge_infer_converters.sources.decoder.files import optional_object, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from edge_infer.generation.config import DecoderConfig

TOKENIZER_NAME = "tokenizer.json"
TEMPLATE_NAME = "chat_template.jinja"
_MAX_TEMPLATE_BYTES = 2**20
# Special tokens that a text model has no weights for.
_MOST_OUTSIDE = 16
#: What `generation_config.json` may advise, by the sampler's name, with the range that the sampler takes.
_ADVICE: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "top_k": (0, 2**31 - 1),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (1e-6, 100.0),
}
_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


class Tokens(NamedTuple):
    """What stands beside the weights.

    Attributes:
        generate: The manifest's `generate`.
        files: Files of the bundle by their path.
        notes: What the user should know: a text, and what to do.
    """

    generate: dict[str, Any]
    files: dict[str, bytes]
    notes: tuple[tuple[str, str], ...]


class Around(NamedTuple):
    """What stands around a decoder's weights, as its files have it.

    Attributes:
        where: What the tokenizer stands in, for errors.
        tokenizer: The bytes of `tokenizer.json`.
        template: The template of chats; None where there is none.
        said: The fields of `tokenizer_config.json`.
        advice: Those of `generation_config.json`.
        special: Those of `special_tokens_map.json`.
        document: Those of `config.json`.
    """

    where: str
    tokenizer: bytes
    template: bytes | None
    said: Mapping[str, Any]
    advice: Mapping[str, Any]
    special: Mapping[str, Any]
    document: Mapping[str, Any]


def read_tokens(folder: Path, document: Mapping[str, Any], config: DecoderConfig) -> Tokens:
    """Read the files around a decoder's weights.

    Args:
        folder: The folder.
        document: Its `config.json`.
        config: The decoder.

    Raises:
        ConversionError: A file is missing or damaged, the tokenizer has more tokens than the model, or a special token
            is outside of the vocabulary.
        UnsupportedModel: The tokenizer has a part that is not built here.
    """
    path = folder / TOKENIZER_NAME
    if not path.is_file():
        raise ConversionError(
            f"`{folder}` has no {TOKENIZER_NAME}",
            hint="save it with transformers: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
        )
    said = optional_object(folder / "tokenizer_config.json")
    around = Around(
        str(path),
        read_bytes(path, MAX_FILE_BYTES),
        _read_template(folder, said),
        said,
        optional_object(folder / "generation_config.json"),
        optional_object(folder / "special_tokens_map.json"),
        document,
    )
    return tokens_of(around, config)


def tokens_of(around: Around, config: DecoderConfig) -> Tokens:
    """Check what stands around a decoder's weights, and write what the bundle says of it.

    Raises:
        ConversionError: The tokenizer has more tokens than the model, or a special token is outside of the vocabulary.
        UnsupportedModel: The tokenizer has a part that is not built here.
    """
    tokenizer, outside = read_tokenizer(around.tokenizer, around.where, config.vocab_size)
    said, advice, document = around.said, around.advice, around.document
    special = dict(_special_tokens(said, around.special))
    files, notes = {TOKENIZER_NAME: around.tokenizer}, list[tuple[str, str]]()
    if outside:
        notes.append(
            (f"The model has no weights for the special tokens {listed(outside)}: prompts do without them", "")
        )
    generate: dict[str, Any] = {
        "kind": "decoder/1",
        "architecture": config.architecture,
        "context": config.context,
        "vocab_size": config.vocab_size,
        "tokenizer": TOKENIZER_NAME,
    }
    if around.template is not None:
        files[TEMPLATE_NAME] = around.template
        generate["chat_template"] = TEMPLATE_NAME
    else:
        notes.append(("There is no chat template: the bundle takes prompts, not messages", ""))
    bos = _first(_ids("bos_token_id", config, advice, document), tokenizer.token_to_id(special.get("bos_token", "")))
    if bos is not None:
        generate["bos"] = bos
    ends = list(_ids("eos_token_id", config, advice) or _ids("eos_token_id", config, document))
    own = tokenizer.token_to_id(special.get("eos_token", ""))
    generate["eos"] = list(dict.fromkeys([*ends, *([] if own is None else [own])]))
    if not generate["eos"]:
        notes.append(
            ("Nothing says which token ends an answer: it ends by its length", "add eos_token_id to config.json")
        )
    generate["add_bos"] = bos is not None and said.get("add_bos_token") is True and _begins(tokenizer) != bos
    generate["special_tokens"] = special
    defaults, refused = _advised(advice)
    notes += [(one, "") for one in refused]
    if defaults:
        generate["defaults"] = defaults
    return Tokens(generate, files, tuple(notes))


def read_tokenizer(data: bytes, path: str, vocab_size: int) -> tuple[Tokenizer, list[str]]:
    """Return the tokenizer, and its special tokens that the model does not have.

    Those of images stand in the tokenizers of text models too, such as Gemma 3's.

    Args:
        data: The bytes of `tokenizer.json`.
        path: Where it stands, for errors.
        vocab_size: Tokens of the model.

    Raises:
        ConversionError: It is damaged, or has more tokens than the model.
        UnsupportedModel: It has a part that is not built here.
    """
    try:
        tokenizer = Tokenizer.from_bytes(data)
    except BundleError as error:
        raise ConversionError(f"`{path}`: {error.message}", hint=error.hint) from error
    document = json.loads(data)  # the tokenizer has checked it
    vocabulary = document["model"]["vocab"]
    numbers = {one[0]: i for i, one in enumerate(vocabulary)} if isinstance(vocabulary, list) else vocabulary
    added = {one["content"]: one["id"] for one in document.get("added_tokens") or []}
    special = {one["content"] for one in document.get("added_tokens") or [] if one.get("special")}
    outside = {text: one for text, one in {**numbers, **added}.items() if one >= vocab_size}
    if not special.issuperset(outside) or len(outside) > _MOST_OUTSIDE:
        largest = max(outside.values())
        raise ConversionError(
            f"`{path}` has a token {largest}, and the model {vocab_size} tokens",
            hint="the tokenizer is another model's, or the embedding was not resized: "
            "model.resize_token_embeddings(len(tokenizer))",
            expected=vocab_size,
            got=largest,
        )
    return tokenizer, sorted(outside)


def _special_tokens(*sources: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Give the texts that templates name; a token is a text, or an object with it."""
    for name in _SPECIAL:
        for source in sources:
            value = source.get(name)
            text = value.get("content") if isinstance(value, dict) else value
            if isinstance(text, str) and text:
                yield name, text
                break


def _read_template(folder: Path, said: Mapping[str, Any]) -> bytes | None:
    """Return the template of chats: the file's, or the one in the tokenizer's configuration.

    Raises:
        ConversionError: It is too large or not UTF-8.
    """
    path = folder / TEMPLATE_NAME
    if path.is_file():
        data = read_bytes(path, _MAX_TEMPLATE_BYTES)
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise ConversionError(f"`{path}` is not UTF-8: {error}", hint="download it again") from error
        return data
    value = said.get("chat_template")
    if value is None:
        value = optional_object(folder / "chat_template.json").get("chat_template")
    if isinstance(value, list):  # several by name, such as for tools
        named = {one.get("name"): one.get("template") for one in value if isinstance(one, dict)}
        value = named.get("default") or next(iter(named.values()), None)
    if not isinstance(value, str) or not value:
        return None
    return checked_template(value.encode(errors="replace"), str(folder / "tokenizer_config.json"))


def checked_template(data: bytes, where: str) -> bytes:
    """Return a template of chats.

    Raises:
        ConversionError: It is too large.
    """
    if len(data) > _MAX_TEMPLATE_BYTES:
        raise ConversionError(
            f"The chat template of `{where}` has {len(data)} bytes, expected at most {_MAX_TEMPLATE_BYTES}",
            hint="is it a file of the Hub?",
        )
    return data


def _ids(field: str, config: DecoderConfig, *sources: Mapping[str, Any]) -> list[int]:
    """Return the tokens that the first source with this field names: one, or a list.

    Raises:
        ConversionError: A token is not in the vocabulary of the model.
    """
    for source in sources:
        value = source.get(field)
        inside = source.get("text_config")
        if value is None and isinstance(inside, dict):
            value = inside.get(field)
        if value is None:
            continue
        found = value if isinstance(value, list) else [value]
        for one in found:
            if type(one) is not int or not 0 <= one < config.vocab_size:
                raise ConversionError(
                    f"`{field}` is {one!r}, expected a number below the {config.vocab_size} tokens of the model",
                    hint="correct it in config.json or generation_config.json",
                    field=field,
                )
        return list(dict.fromkeys(found))
    return []


def _first(found: list[int], other: int | None) -> int | None:
    return found[0] if found else other


def _begins(tokenizer: Tokenizer) -> int | None:
    """Return the token that the tokenizer itself puts before a text."""
    try:
        with_it = tokenizer.encode("a", truncation=None, padding=None).ids
        without = tokenizer.encode("a", add_special_tokens=False, truncation=None, padding=None).ids
    except EdgeInferError:
        return None
    return with_it[0] if len(with_it) > len(without) else None


def _advised(advice: Mapping[str, Any]) -> tuple[dict[str, float | int], list[str]]:
    """Return the sampling that the model's makers advise, and what of it cannot be meant."""
    found, refused = dict[str, float | int](), list[str]()
    if advice.get("do_sample") is False:
        return found, refused
    for name, (least, most) in _ADVICE.items():
        value = advice.get(name)
        if value is None:
            continue
        is_number = isinstance(value, int) if name == "top_k" else isinstance(value, (int, float))
        if not is_number or isinstance(value, bool) or not least <= value <= most:
            refused.append(f"generation_config.json: `{name}` is {value!r}, which is left out")
            continue
        found[name] = value
    return found, refused
