"""`edge-infer info` for a chain: its inputs, steps and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.chains.checked import check_chain
from edge_infer.cli import output

if TYPE_CHECKING:
    from edge_infer.bundle.bundle import Bundle


def show(bundle: Bundle, *, as_json: bool) -> None:
    """Print what a chain does.

    Raises:
        ManifestError: It is wrong.
    """
    manifest, checked = bundle.manifest, check_chain(bundle)
    sizes = {
        step.name: sum(one.size for path, one in manifest.files.items() if path.startswith(f"{step.folder}/"))
        for step in checked.definition.steps
        if step.folder
    }
    rows: list[dict[str, Any]] = [
        {
            "name": step.name,
            "do": step.do,
            "reads": {name: str(one) for name, one in step.reads.items()},
            "gives": str(checked.kinds[step.name]),
            "holds": step.folder,
            "bytes": sizes.get(step.name, 0),
            "cache": step.is_cached,
            "server": step.server,
        }
        for step in checked.definition.steps
    ]
    outputs = {name or "answer": str(one) for name, one in checked.definition.answers.items()}
    if as_json:
        output.data_json(
            {
                "name": manifest.name,
                "version": manifest.version,
                "revision": bundle.revision,
                "inputs": checked.definition.inputs,
                "steps": rows,
                "outputs": outputs,
                "files": [entry.to_json() for entry in manifest.files.values()],
            }
        )
        return
    output.data(f"{manifest.name} {manifest.version}  revision {bundle.revision[:12]}")
    for name, kind in checked.definition.inputs.items():
        output.data(f"input   {name}: {kind}")
    for name, reference in outputs.items():
        output.data(f"output  {name}: {reference}")
    output.data("")
    output.table(
        ["step", "does", "reads", "gives", "size", "notes"],
        [
            (
                row["name"],
                row["do"],
                ", ".join(row["reads"].values()),
                row["gives"],
                output.size(row["bytes"]) if row["bytes"] else "-",
                ", ".join([*(["kept"] if row["cache"] else []), *([f"at {row['server']}"] if row["server"] else [])]),
            )
            for row in rows
        ],
        right=["size"],
    )
    total = sum(entry.size for entry in manifest.files.values())
    output.talk(f"{len(manifest.files)} files, {output.size(total)}")
