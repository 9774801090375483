"""`edge-infer index`: build an index from documents or images, change it and search it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge_infer.bundle.bundle import Bundle
from edge_infer.cli import options, output
from edge_infer.errors import BundleError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_infer.vectors.documents import Piece
    from edge_infer.vectors.embedder import Embedder
    from edge_infer.vectors.index import Index

_index = click.argument("location", metavar="INDEX")
_documents = click.argument("documents", metavar="DOCS...", nargs=-1, required=True)
_model = click.option(
    "--model", metavar="BUNDLE", help="The bundle that embeds texts. Default: the one that the index names, beside it."
)
_where = click.option(
    "--where",
    multiple=True,
    metavar="NAME=VALUE",
    help="Only entries with this in their metadata; also != < <= > >=. May be repeated. VALUE is JSON, or a text.",
)
_OPERATIONS = {"=": "==", "==": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_SHOWN = 100


def _chunks(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how documents are cut."""
    size = click.option(
        "--chunk-chars", default=800, show_default=True, type=click.IntRange(50, 100_000), help="The longest piece."
    )
    field = click.option(
        "--text-field",
        metavar="NAME",
        help="The text's field in JSON lines and CSV; text, content or body unless given.",
    )
    return size(field(command))


@click.group()
def index() -> None:
    """An index of texts: build it from documents, change it, search it.

    \b
    edge-infer index build docs/ --model minilm.bundle -o notes.index
    edge-infer index search notes.index "how do I reset it?"
    """  # noqa: D301  click reads the \b


@index.command()
@_documents
@click.option("--model", required=True, metavar="BUNDLE", help="The bundle that embeds the texts.")
@click.option("--output", "-o", "target", required=True, metavar="INDEX", help="The folder to make: notes.index.")
@click.option("--metric", default="cosine", show_default=True, type=click.Choice(["cosine", "dot"]))
@click.option(
    "--rows",
    default="int8",
    show_default=True,
    type=click.Choice(["int8", "f16", "f32"]),
    help="What is kept of each vector: 8 bits a number, or the vector besides, by which the best are scored again.",
)
@click.option("--no-words", is_flag=True, help="Do not count words: the index is smaller, without search by words.")
@click.option("--query-prefix", default="", metavar="TEXT", help="What the model wants before a query.")
@click.option("--document-prefix", default="", metavar="TEXT", help="What it wants before a document.")
@options.variant
@_chunks
def build(
    documents: Sequence[str],
    model: str,
    target: str,
    metric: str,
    rows: str,
    no_words: bool,
    query_prefix: str,
    document_prefix: str,
    variant: str | None,
    chunk_chars: int,
    text_field: str | None,
) -> None:
    """Build an index from documents: .txt, .md, .html, .jsonl and .csv, or folders of them.

    With a bundle for image-feature-extraction it is one of images: .jpg, .png, .webp, .gif and .bmp.

    Where the index is there already, by the same model, it goes on: pieces that are in it are not embedded again. So an
    interrupted build is repeated. The vectors are made by the variant with float weights, unless --variant is given.
    """
    from edge_infer.vectors.embedder import Embedder, float_variant
    from edge_infer.vectors.index import Index

    bundle = Bundle.open(model)
    images = bundle.manifest.task == "image-feature-extraction"
    pieces, sources = _read(documents, chunk_chars, text_field, images=images)
    chosen = variant or float_variant(bundle)
    with Embedder(bundle, query_prefix, document_prefix, **({"variant": chosen} if chosen else {})) as embedder:
        embedding = embedder.embedding()
        if Path(target, "index.json").is_file():
            made = Index.open(target, model=model)
            if made.embedding != embedding:
                raise BundleError(
                    f"`{target}` is there already, and its vectors are by another model, variant or prefix",
                    hint="remove it, or give another name by -o",
                )
        else:
            dimension = _dimension(embedder, pieces)
            made = Index.create(
                target, dimension, metric, rows=rows, words=not no_words, embedding=embedding, model=model
            )
        made.embedder = embedder
        _fill(made, pieces, sources)
    if made.info()["segments"] > 1 + len(made) // 100_000:
        made.compact()
    info = made.info()
    output.talk(f"Made {target}: {info['entries']:,} pieces, {output.size(info['bytes'])}")


@index.command()
@_index
@_documents
@_model
@_chunks
def add(location: str, documents: Sequence[str], model: str | None, chunk_chars: int, text_field: str | None) -> None:
    """Add documents, or what has changed in them: pieces that are there already are not embedded again."""
    from edge_infer.vectors.index import Index

    opened = Index.open(location, model=model)
    pieces, sources = _read(documents, chunk_chars, text_field, images=opened.embedder.is_of_images)
    _fill(opened, pieces, sources)


@index.command()
@_index
@click.option("--id", "ids", multiple=True, type=click.IntRange(0), metavar="ID", help="An entry; may be repeated.")
@_where
def delete(location: str, ids: Sequence[int], where: Sequence[str]) -> None:
    """Delete entries by their ids, or by their metadata: --where source=docs/old.md.

    The files keep their size until `edge-infer index compact`.
    """
    from edge_infer.vectors.index import Index

    if not ids and not where:
        raise click.UsageError("Say which: --id 3, or --where source=docs/old.md")
    opened = Index.open(location)
    found = {*ids, *(opened.ids(_conditions(where)) if where else ())}
    count = opened.delete([*found])
    output.talk(f"Deleted {count:,} of {len(found):,} entries; {len(opened):,} are left")


@index.command()
@_index
def compact(location: str) -> None:
    """Write an index again without its deleted entries, in as few files as it needs."""
    from edge_infer.vectors.index import Index

    opened = Index.open(location)
    saved = opened.compact()
    said = f"{output.size(abs(saved))} {'smaller' if saved >= 0 else 'larger'}"
    output.talk(f"Compacted {location}: {len(opened):,} entries, {said}")


@index.command()
@_index
@click.argument("query")
@click.option("-k", "count", default=5, show_default=True, type=click.IntRange(1, 10_000), help="The most entries.")
@click.option(
    "--mode",
    default="vectors",
    show_default=True,
    type=click.Choice(["vectors", "words", "hybrid"]),
    help="By meaning, by words (BM25), or by both.",
)
@click.option("--full-scan", is_flag=True, help="Compare each entry, however many there are.")
@_where
@_model
@options.as_json
def search(
    location: str,
    query: str,
    count: int,
    mode: str,
    full_scan: bool,
    where: Sequence[str],
    model: str | None,
    as_json: bool,
) -> None:
    """Find the entries nearest to a QUERY: a text, or of an index of images the path of one."""
    from edge_infer.vectors.index import Index

    opened = Index.open(location, model=model)
    asked = Path(query) if mode == "vectors" and opened.embedder.is_of_images else query
    hits = opened.search(asked, count, where=_conditions(where), full_scan=full_scan, mode=mode)
    if as_json:
        output.data_json([hit._asdict() for hit in hits])
        return
    rows = []
    for hit in hits:
        text = " ".join((hit.text or "").split())
        place = "#".join(str(hit.metadata[name]) for name in ("source", "part") if name in hit.metadata)
        rows.append((f"{hit.score:.4f}", hit.id, place, text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."))
    output.table(("score", "id", "source", "text"), rows, right=("score", "id"))


@index.command()
@_index
@click.option("--recall", "with_recall", is_flag=True, help="Measure how many of the nearest entries a search finds.")
@options.as_json
def info(location: str, with_recall: bool, as_json: bool) -> None:
    """Show what an index holds; with --recall how many of the truly nearest entries it finds."""
    from edge_infer.vectors.index import Index
    from edge_infer.vectors.recall import measure_recall

    opened = Index.open(location)
    facts = opened.info()
    if with_recall:
        facts["recall"] = measure_recall(opened)._asdict()
    if as_json:
        output.data_json(facts)
        return
    embedding = facts.pop("embedding") or {}
    recall = facts.pop("recall", None)
    for name, value in facts.items():
        shown = output.size(value) if name == "bytes" else ", ".join(value) if isinstance(value, list) else value
        output.data(f"{name.ljust(12)}{shown}")
    if embedding:
        output.data(f"{'model'.ljust(12)}{embedding['name']}@{embedding['revision'][:6]} {embedding['variant']}")
    if recall:
        output.data(
            f"{'recall@10'.ljust(12)}{recall['quick']:.3f}, with --full-scan {recall['full']:.3f}, of "
            f"{recall['queries']} entries, against the {recall['truth']}"
        )


def _dimension(embedder: Embedder, pieces: Sequence[Piece]) -> int:
    """Return the length of the vectors of a model.

    Raises:
        InputError: None of the images can be read.
    """
    if not embedder.is_of_images:
        return len(embedder.vector(pieces[0]))
    for piece in pieces:
        try:
            return len(embedder.vector(piece))
        except InputError as error:
            said = error.message
    raise InputError(f"none of the images can be read: {said}", hint="give others")


def _read(documents: Sequence[str], most: int, field: str | None, *, images: bool) -> tuple[list[Piece], list[str]]:
    from edge_infer.vectors.documents import find_documents, pieces_of

    paths = find_documents(documents, images=images)
    pieces = [*pieces_of(paths, most, field)]
    if not pieces:
        raise InputError("the documents hold no text", hint="give others")
    return pieces, [path.as_posix() for path in paths]


def _fill(opened: Index, pieces: Sequence[Piece], sources: Sequence[str]) -> None:
    from edge_infer.vectors.filling import fill

    with output.progress("Embedding", len(pieces)) as advance:
        done = fill(opened, pieces, sources, advance)
    for source, reason in done.unread.items():
        output.warn(f"`{source}` is left out: {reason}")
    output.talk(f"Added {done.added:,} pieces, kept {done.kept:,}, removed {done.removed:,}")


def _conditions(where: Sequence[str]) -> dict[str, Any]:
    """Read `NAME=VALUE` and its like."""
    found: dict[str, Any] = {}
    for text in where:
        parts = re.fullmatch(r"([^=!<>]+)(==|!=|<=|>=|=|<|>)(.*)", text, re.DOTALL)
        if not parts:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--where")
        name, sign, value = parts.groups()
        try:
            read = json.loads(value)
        except ValueError:
            read = value
        condition = found.setdefault(name.strip(), {})
        condition[_OPERATIONS[sign]] = read if isinstance(read, (str, int, float)) else value
    return found
