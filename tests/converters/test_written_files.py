"""The folder of a compiled model: what an earlier run wrote goes, what others wrote or changed stays."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from edge_infer.errors import InputError
from edge_infer_converters import written_files
from edge_infer_converters.compile_command import compile_
from tests.support.microcontroller import networks

if TYPE_CHECKING:
    from pathlib import Path

FIRST = {"net.c": b"1", "src/deep/net.h": b"2"}
SECOND = {"net.c": b"3", "other.c": b"4"}


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder but the list of them."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found.pop(written_files.LIST, None)
    return found


def test_files_of_an_earlier_run_go_with_their_folders_and_others_stay(tmp_path: Path) -> None:
    assert written_files.write(tmp_path, FIRST) == []
    (tmp_path / "mine.txt").write_bytes(b"mine")

    assert written_files.write(tmp_path, SECOND) == ["src/deep/net.h"]

    assert contents(tmp_path) == SECOND | {"mine.txt": b"mine"}
    assert not (tmp_path / "src").exists()


def test_what_was_changed_since_is_neither_removed_nor_replaced_unless_asked_for(tmp_path: Path) -> None:
    written_files.write(tmp_path, FIRST)
    (tmp_path / "net.c").write_bytes(b"changed")
    (tmp_path / "src/deep/net.h").write_bytes(b"changed too")

    with pytest.raises(InputError, match=r"has `net\.c` already") as refused:
        written_files.write(tmp_path, SECOND)
    assert refused.value.hint.startswith("--force")
    assert contents(tmp_path) == {"net.c": b"changed", "src/deep/net.h": b"changed too"}
    assert written_files.write(tmp_path, SECOND, force=True) == []
    assert contents(tmp_path) == SECOND | {"src/deep/net.h": b"changed too"}


def test_a_file_of_others_is_not_replaced_and_the_same_one_is_no_reason_to_stop(tmp_path: Path) -> None:
    (tmp_path / "net.c").write_bytes(b"of others")
    with pytest.raises(InputError, match=r"net\.c"):
        written_files.write(tmp_path, FIRST)
    assert contents(tmp_path) == {"net.c": b"of others"}

    (tmp_path / "net.c").write_bytes(FIRST["net.c"])
    written_files.write(tmp_path, FIRST)
    assert contents(tmp_path) == FIRST


def test_a_forged_list_removes_nothing_outside_the_folder_nor_behind_a_link(tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "kept").write_bytes(b"kept")
    (folder / "link").symlink_to(outside)
    digest = hashlib.sha256(b"kept").hexdigest()
    paths = ("../outside/kept", f"{outside}/kept", "link/kept")
    (folder / written_files.LIST).write_text("".join(f"{digest}  {path}\n" for path in paths))

    assert written_files.write(folder, SECOND) == []

    assert (outside / "kept").read_bytes() == b"kept"


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(FIRST["net.c"])
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "net.c").symlink_to(tmp_path / "target")

    with pytest.raises(InputError, match=r"net\.c"):
        written_files.write(folder, SECOND)


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="no sha256sum")
def test_the_list_is_checked_by_the_usual_tool(tmp_path: Path) -> None:
    written_files.write(tmp_path, FIRST)

    check = ["sha256sum", "--check", "--strict", "--quiet", written_files.LIST]
    assert subprocess.run(check, cwd=tmp_path, check=False).returncode == 0
    (tmp_path / "net.c").write_bytes(b"changed")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode != 0


def test_another_model_leaves_no_file_of_the_first_in_a_library_for_arduino(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(networks.residual())
    folder = tmp_path / "library"
    for prefix in ("first", "second"):
        words = [str(tmp_path / "net.tflite"), "-o", str(folder), "--to", "arduino", "--prefix", prefix]
        done = CliRunner().invoke(compile_, words, catch_exceptions=False)
        assert done.exit_code == 0, done.output

    assert not [path for path in contents(folder) if "first" in path]
    assert {"src/second.c", "examples/second/second.ino"} <= contents(folder).keys()
    assert "Removed what an earlier run wrote: " in done.stderr
    assert "examples/first/first.ino" in done.stderr


@pytest.mark.parametrize("to", ["wasm", "c"])
def test_places_that_cannot_be_written_are_refused_before_any_work(to: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    source = tmp_path / "no.tflite"
    source.write_bytes(b"never read")
    for words, hint in (
        (["-o", str(tmp_path / "file")], f"-o {tmp_path}/file_compiled"),
        (["-o", str(tmp_path / "file/below")], f"-o {tmp_path}/file_compiled"),
        (["-o", str(tmp_path / "out"), "--timeline", str(tmp_path / "none/arena.svg")], f"mkdir -p {tmp_path}/none"),
    ):
        done = CliRunner().invoke(compile_, [str(source), "--to", to, *words])
        assert isinstance(done.exception, InputError)
        assert done.exception.hint == hint
    assert {*contents(tmp_path)} == {"file", "no.tflite"}


def test_a_missing_parent_is_made(tmp_path: Path) -> None:
    written_files.check_place(tmp_path / "a/b/c", (tmp_path / "arena.svg", None))
    written_files.write(tmp_path / "a/b/c", FIRST)

    assert contents(tmp_path / "a/b/c") == FIRST
