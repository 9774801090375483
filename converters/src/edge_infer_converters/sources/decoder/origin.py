"""What a decoder is converted from: a folder of the Hugging Face Hub, or a GGUF file, in one shape."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from edge_infer_converters.sources.decoder.describe import Described, describe
from edge_infer_converters.sources.decoder.files import read_object
from edge_infer_converters.sources.decoder.gguf_file import GgufFile
from edge_infer_converters.sources.decoder.gguf_model import described_gguf
from edge_infer_converters.sources.decoder.gguf_tokens import begins_with_bos, token_text, tokenizer_of
from edge_infer_converters.sources.decoder.shards import Shards
from edge_infer_converters.sources.decoder.tensors import SourceTensor, source_tensors
from edge_infer_converters.sources.decoder.tokens import Around, Tokens, checked_template, read_tokens, tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from edge_infer.generation.config import DecoderConfig

SUFFIX = ".gguf"


class Contents(NamedTuple):
    """What an origin holds.

    Attributes:
        described: The decoder.
        tokens: What stands around its weights.
        tensors: Its tensors, still in the file.
        nbytes: The size of all tensors.
        forget_pages: Gives the memory of what was read back to the system.
    """

    described: Described
    tokens: Tokens
    tensors: list[SourceTensor]
    nbytes: int
    forget_pages: Callable[[], None]


class Origin:
    """An open folder or file; use it in a `with` statement.

    Args:
        path: The folder, or a file with the suffix `.gguf`.

    Raises:
        ConversionError: It is damaged, or its parts do not fit together.
        UnsupportedModel: The model, or its tokenizer, has a feature that is not supported.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.resolve().stem if path.suffix == SUFFIX else path.resolve().name
        self._stack = ExitStack()
        try:
            self.contents = self._gguf(path) if path.suffix == SUFFIX else self._folder(path)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _folder(self, folder: Path) -> Contents:
        document = read_object(folder / "config.json")
        described = describe(document)
        tokens = read_tokens(folder, document, described.config)
        shards = self._stack.enter_context(Shards(folder))
        tensors = source_tensors(described, shards.tensors)
        return Contents(described, tokens, tensors, shards.nbytes, shards.forget_pages)

    def _gguf(self, path: Path) -> Contents:
        file = self._stack.enter_context(GgufFile(path))
        described, stored = described_gguf(file)
        tokens = _tokens(file, described.config)
        tensors = source_tensors(described, stored)
        return Contents(described, tokens, tensors, sum(one.nbytes for one in file.tensors.values()), lambda: None)


def _tokens(file: GgufFile, config: DecoderConfig) -> Tokens:
    """Return what stands around the weights of a GGUF file."""
    metadata: Mapping[str, Any] = file.metadata
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    said = {name: token_text(file, word) for name, word in names.items()}
    ends = [metadata.get(f"tokenizer.ggml.{one}_token_id") for one in ("eos", "eot", "eom")]
    document = {
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": list(dict.fromkeys(one for one in ends if one is not None)) or None,
    }
    template = metadata.get("tokenizer.chat_template")
    return tokens_of(
        Around(
            str(file.path),
            tokenizer_of(file),
            checked_template(template.encode(), str(file.path)) if isinstance(template, str) and template else None,
            {**said, "add_bos_token": begins_with_bos(file)},
            {},
            {},
            document,
        ),
        config,
    )
