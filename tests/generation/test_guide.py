"""The guide to the generation of text does what it says: its commands and its Python, on a small random folder."""

from __future__ import annotations

import io
import re
import shlex
import sys
import wave
from pathlib import Path

import pytest

from edge_infer.cli import main_here
from tests.support.generation.gguf_files import write_gguf
from tests.support.generation.hub_folders import write_folder
from tests.support.generation.pair_folders import write_pair
from tests.support.generation.record_pairs import sound

GUIDE = (Path(__file__).parents[2] / "docs/guide/generate.md").read_text("utf-8")


def test_its_commands_and_lines_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "SmolLM2-135M-Instruct", changes={"max_position_embeddings": 512})
    (lines,) = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
    for line in lines.splitlines()[1:]:
        said, _, command = line.rpartition("| ")
        said = " ".join(shlex.split(said)[1:]) + "\n" if said else ""
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(said.encode())))
        with pytest.raises(SystemExit) as ended:
            main_here()
        done = capsys.readouterr()
        assert not ended.value.code, done.err
        assert "tokens" in done.err or "smol.bundle" in done.out + done.err
    names: dict[str, object] = {}
    parts = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len(parts) == 6
    for code in [one for one in parts if "whisper" not in one]:
        exec(compile(code, "generate.md", "exec"), names)
    names.clear()  # its generators end now, and not whenever the functions among them are collected
    assert re.search(r" (stop|length) \d+\n", capsys.readouterr().out)


def test_its_gguf_file_becomes_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ((line, file),) = re.findall(r"\$ (edge-infer convert (\S+\.gguf) .*)", GUIDE)
    write_gguf(tmp_path / file, kind="Q4_0")
    monkeypatch.setattr(sys, "argv", shlex.split(line))

    with pytest.raises(SystemExit) as ended:
        main_here()

    said = capsys.readouterr()
    assert not ended.value.code
    assert "weights exact" in said.out + said.err


def test_its_sounds_and_texts_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, kind in {"whisper-tiny": "whisper-times", "flan-t5-small": "flan"}.items():
        write_pair(tmp_path / name, kind)
    samples = (sound(1.0) * 32767).astype("<i2")
    with wave.open("speech.wav", "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(samples.tobytes())
    lines = re.findall(r"^edge-infer convert (?:whisper|flan).*?(?=  |\Z| text2text)", GUIDE, re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as ended:
            main_here()
        assert not ended.value.code, capsys.readouterr().err
    capsys.readouterr()
    (code,) = [one for one in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) if "whisper" in one]

    exec(compile(code, "generate.md", "exec"), {})

    assert re.search(r"\(\(0\.08, 0\.\d+\)", capsys.readouterr().out)
