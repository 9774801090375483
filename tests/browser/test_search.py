"""Pyodide reads the index that Python wrote here, and finds the same ids with the same scores."""

from __future__ import annotations

import base64
import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import edge_infer
from tests.support.vectors import made

if TYPE_CHECKING:
    from tests.support.browser.pages import PagePython

_PACKAGE = Path(edge_infer.__file__).parent
_SEARCH = """
import base64, io, pathlib, sys, zipfile
import edge_infer
package = pathlib.Path(edge_infer.__file__).parent
zipfile.ZipFile(io.BytesIO(base64.b64decode(rooms))).extractall(package)
zipfile.ZipFile(io.BytesIO(base64.b64decode(files))).extractall("notes.index")
index = edge_infer.Index.open("notes.index")
found = [[[hit.id, hit.score, hit.text] for hit in index.search(query)] for query in queries]
found += [[[hit.id, hit.score, hit.text] for hit in index.search("entry 7", mode="words", where={"n": {"<": 300}})]]
index.add([queries[0]], texts=["new"])
index.delete([3])
index.compact()
again = edge_infer.Index.open("notes.index")
[found, index.arithmetic, len(again), again.search(queries[0], 1)[0].text]
"""


def packed(folder: Path) -> str:
    """Return a folder as a zip, in base64."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder))
    return base64.b64encode(data.getvalue()).decode()


@pytest.mark.browser
def test_an_index_is_searched_and_changed_in_pyodide(python: PagePython, tmp_path: Path) -> None:
    index = edge_infer.Index.create(tmp_path / "notes.index", 48)
    index.add(
        made.vectors(1, 400, 48), texts=[f"entry {i % 50}" for i in range(400)], metadata=[{"n": i} for i in range(400)]
    )
    index.delete(range(0, 400, 9))
    queries = made.vectors(2, 10, 48).tolist()
    # The archive of the page has neither room; a page takes both from the wheel.
    rooms = io.BytesIO()
    with zipfile.ZipFile(rooms, "w") as archive:
        for room in ("tasks", "vectors"):
            for path in (_PACKAGE / room).rglob("*"):
                if path.suffix in (".py", ".json"):
                    archive.write(path, path.relative_to(_PACKAGE))

    found, arithmetic, count, text = python.run(
        _SEARCH,
        rooms=base64.b64encode(rooms.getvalue()).decode(),
        files=packed(index.path),
        queries=queries,
    )

    here = [[[hit.id, hit.score, hit.text] for hit in index.search(query)] for query in queries]
    here += [[[hit.id, hit.score, hit.text] for hit in index.search("entry 7", mode="words", where={"n": {"<": 300}})]]
    assert found == here
    assert arithmetic == "kernel"
    assert (count, text) == (len(index), "new")
