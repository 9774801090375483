"""Documents become pieces that say where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_infer.errors import InputError
from edge_infer.vectors.documents import cut, find_documents, read_pieces

if TYPE_CHECKING:
    from pathlib import Path


def pieces(path: Path, content: str | bytes, **options: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the pieces of a document, without their source."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    found = [piece.metadata for piece in read_pieces(path, **options)]
    assert all(one.pop("source") == path.as_posix() for one in found)
    assert [one.pop("part") for one in found] == [*range(len(found))]
    return [(piece.text, rest) for piece, rest in zip(read_pieces(path, **options), found, strict=True)]


@given(st.text(alphabet="ab. \n", max_size=400), st.integers(5, 60))
def test_a_cut_text_loses_no_word_and_no_piece_is_too_long(text: str, most: int) -> None:
    found = [*cut(text, most)]

    assert all(0 < len(piece) <= most for piece in found)
    assert "".join("".join(found).split()) == "".join(text.split())


def test_paragraphs_and_sentences_stay_whole() -> None:
    assert [*cut("One two.\n\nThree.\n\nFour five six seven. Eight nine.", 22)] == [
        "One two.\n\nThree.",
        "Four five six seven.",
        "Eight nine.",
    ]


def test_markdown_is_cut_at_headings(tmp_path: Path) -> None:
    text = "intro\n\n# One #\nfirst\n```sh\n# no heading\n```\n## Two\n\nsecond\n"

    assert pieces(tmp_path / "a.md", text) == [
        ("intro", {}),
        ("# One #\nfirst\n```sh\n# no heading\n```", {"title": "One"}),
        ("## Two\n\nsecond", {"title": "Two"}),
    ]


def test_html_gives_its_text_by_heading(tmp_path: Path) -> None:
    text = "<head><title>x</title></head><script>no()</script><p>a &amp; <b>b</b></p><h2>The  <i>end</i></h2><p>c<br>d"

    assert pieces(tmp_path / "a.html", text) == [("a & b", {}), ("The end\n\nc\n\nd", {"title": "The end"})]


def test_rows_keep_their_fields(tmp_path: Path) -> None:
    lines = '{"text": "one", "tag": "a"}\n\n{"text": "two", "n": 3}\n'

    assert pieces(tmp_path / "a.jsonl", lines) == [("one", {"tag": "a"}), ("two", {"n": 3})]
    assert pieces(tmp_path / "a.csv", '\ufeffname,n,x\n"a, b",3,1.5\nc,04,x\n', field="name") == [
        ("a, b", {"n": 3, "x": 1.5}),
        ("c", {"n": "04", "x": "x"}),
    ]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", '{"text": "a"}\n[1]\n', "line 2 is not an object"),
        ("a.jsonl", '{"text": "a"}\n{"text\n', "line 2 is not JSON"),
        ("a.jsonl", '{"words": "a"}\n', "no field `text`"),
        ("a.csv", "text,n\na,1,2\n", "line 2 does not have 2 fields"),
        ("a.csv", "text,n\na\n", "line 2 does not have 2 fields"),
        ("a.csv", 'text\n"a\n', "unexpected end"),
        ("a.txt", b"\xff\xfe", "not UTF-8"),
        ("a.md", b"\xc3", "not UTF-8"),
    ],
)
def test_a_damaged_document_is_named(tmp_path: Path, name: str, content: str | bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        pieces(tmp_path / name, content)


def test_folders_are_walked_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("b.md", "a.txt", "deep/c.csv", "picture.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")

    found = find_documents([str(tmp_path), str(tmp_path / "a.txt")])

    assert [path.relative_to(tmp_path).as_posix() for path in found] == ["a.txt", "b.md", "deep/c.csv"]
    for place, said in (("nothing", "no file or folder"), ("picture.png", "is not a document")):
        with pytest.raises(InputError, match=said):
            find_documents([str(tmp_path / place)])
