"""`edge-infer feedback`: take what people said of answers out of a server's folder."""

from __future__ import annotations

import io
import json
from pathlib import Path

import click

from edge_infer.cli import options, output
from edge_infer.cli.npz import write_npz
from edge_infer.errors import InputError
from edge_infer.platform.atomic_write import write_file


@click.group()
def feedback() -> None:
    """What people said of the answers of `edge-infer serve --feedback DIR`."""


@feedback.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--model", required=True, metavar="NAME", help="The model whose feedback it is.")
@click.option(
    "-o",
    "--output",
    "target",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file: .npz for `convert --eval`, or .jsonl for all of it.",
)
@click.option(
    "--labels",
    "names",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A JSON list of the names of the classes: labels that are texts become their numbers.",
)
@options.as_json
def export(folder: Path, model: str, target: Path, names: Path | None, as_json: bool) -> None:
    """Write the feedback in DIR as a file.

    An .npz file has the inputs that came by consent, by name, and `labels`: what `edge-infer convert --eval` reads. A
    .jsonl file has a line for each answer: its id, the time, the version that was served
    then, and the label. Only you may read the file.
    """
    from edge_infer.server.feedback.export import LABELS, as_arrays, feedback_of

    if target.suffix not in (".npz", ".jsonl"):
        raise click.UsageError(f"-o {target} is neither .npz nor .jsonl")
    records = feedback_of(folder, model)
    if target.suffix == ".jsonl":
        written, left_out = len(records), 0
        shown = ("id", "time", "model", "version", "label")
        lines = io.StringIO()
        for record in records:
            lines.write(json.dumps({name: record.get(name) for name in shown}, ensure_ascii=False) + "\n")
        data = lines.getvalue().encode()
    else:
        arrays, left_out = as_arrays(records, None if names is None else _names(names))
        written, data = len(arrays[LABELS]), write_npz(arrays)
    write_file(target, data, 0o600)  # as the files that it comes from: it is of people
    if as_json:
        output.data_json({"written": written, "left_out": left_out, "bytes": len(data)})
        return
    also = f"; {left_out} without inputs, or with those of another shape, are left out" if left_out else ""
    output.talk(f"Wrote {written} labels of {model} to {target}, {output.size(len(data))}{also}")


def _names(path: Path) -> list[str]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"`{path}` is not JSON: {error}", hint='a list of texts: ["cat", "dog"]') from error
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise InputError(f"`{path}` is not a list of texts", hint='["cat", "dog"]')
    return found
