"""A bare device reads a tokenizer with what `edge-infer slim` gives it, out of a zip as well."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import edge_infer
from edge_infer.rooms import runs_in
from tests.support.tasks.trained_tokenizers import SENTENCES, trained, written

PACKAGE = Path(edge_infer.__file__).parent


def test_a_zip_without_site_packages_gives_the_same_ids(tmp_path: Path) -> None:
    archive = tmp_path / "app.pyz"
    with zipfile.ZipFile(archive, "w") as target:
        for path in PACKAGE.rglob("*.*"):
            inside = path.relative_to(PACKAGE).as_posix()
            if path.suffix in (".py", ".json") and runs_in(inside, "device"):
                target.write(path, f"edge_infer/{inside}")
    (tmp_path / "tokenizer.json").write_bytes(written(trained("bert")))
    program = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); import edge_infer; "
        f"print(edge_infer.Tokenizer.from_file('tokenizer.json').encode({SENTENCES[1]!r}).ids); "
        "assert 'numpy' not in sys.modules; assert edge_infer.__file__.startswith(sys.path[0])"
    )

    command = [sys.executable, "-I", "-S", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)

    assert done.stdout.strip() == str(trained("bert").encode(SENTENCES[1]).ids)
