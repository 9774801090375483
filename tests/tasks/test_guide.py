"""The guide to tokenizers does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

if TYPE_CHECKING:
    import pytest

GUIDE = Path(__file__).parents[2] / "docs/guide/tokenizers.md"
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "##s", "hello", "world")


def test_its_lines_print_what_stands_behind_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Tokenizer(models.WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.add_special_tokens(["[CLS]", "[SEP]", "[PAD]"])
    made.save(str(tmp_path / "tokenizer.json"))
    monkeypatch.chdir(tmp_path)
    code = "".join(re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL))
    expected = re.findall(r"print\(.*\)\s+# (.*)", code)

    exec(compile(code, GUIDE.name, "exec"), {})

    assert capsys.readouterr().out.splitlines() == expected
    assert len(expected) == 7
