"""`hf:owner/name` is taken wherever a model is: its files, and no others, are fetched, checked and kept."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import edge_infer
from edge_infer import Bundle
from edge_infer.bundle import bundle as bundle_place
from edge_infer.cli import main_here
from edge_infer.errors import EdgeInferError, FetchError, InputError, IntegrityError, UnsupportedError
from edge_infer.platform import hub_client
from edge_infer.platform.hub import HubAddress
from edge_infer_converters import convert
from edge_infer_converters.conversion import DecoderConversion
from tests.support.generation import gguf_files, hub_folders
from tests.support.hub import COMMIT, Hub, folder_files
from tests.support.mutations import with_last_byte_changed

if TYPE_CHECKING:
    from collections.abc import Iterator

DIGITS = Path(__file__).parents[2] / "examples/digits/digits.onnx"


@pytest.fixture(params=["package", "plain"])
def cache(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an empty cache; with the package `huggingface_hub`, and as if it were not installed."""
    if request.param == "plain":
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    else:
        pytest.importorskip("huggingface_hub")
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_TOKEN_PATH", "HF_HUB_CACHE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))
    monkeypatch.setenv("EDGE_INFER_CACHE", str(tmp_path / "edge-infer"))
    yield tmp_path / "huggingface/hub/models--owner--name"


@pytest.fixture
def decoder(tmp_path: Path) -> dict[str, bytes]:
    """Return the files of a repository of a model that generates text, with some that nobody needs."""
    files = folder_files(hub_folders.write_folder(tmp_path / "folder", shards=2))
    return {**files, "README.md": b"# A model", "pytorch_model.bin": bytes(20_000), "onnx/model_int8.onnx": b"x"}


def test_a_decoder_is_converted_from_its_commit(
    cache: Path, tmp_path: Path, decoder: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Hub(decoder) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        result = convert("hf:owner/name", tmp_path / "out.bundle")
        again = len(hub.asked)
        convert("hf:owner/name", tmp_path / "other.bundle")

    assert isinstance(result, DecoderConversion)
    manifest = Bundle.open(result.path).manifest
    assert (manifest.name, manifest.source) == ("name", {"hub": "owner/name", "revision": COMMIT})
    unused = {"README.md", "pytorch_model.bin", "onnx/model_int8.onnx"}
    assert hub.fetched() == sorted(decoder.keys() - unused)
    assert [path for _, path, _ in hub.asked[again:]] == ["/api/models/owner/name/revision/main"]
    assert (cache / "refs/main").read_text() == COMMIT
    assert (cache / f"snapshots/{COMMIT}/config.json").read_bytes() == decoder["config.json"]


def test_a_model_of_onnx_is_loaded_and_run(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"onnx/model.onnx": DIGITS.read_bytes(), "onnx/model_fp16.onnx": b"x" * 20_000, "README.md": b"#"}
    with Hub(files) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        session = edge_infer.load("hf:owner/name", backend="onnxruntime")
        named = edge_infer.load("hf:owner/name/onnx/model.onnx", backend="onnxruntime")

    image = np.zeros((1, 1, 8, 8), np.float32)
    assert (
        np.asarray(session.run({"image": image})["logits"]) == np.asarray(named.run({"image": image})["logits"])
    ).all()
    assert hub.fetched() == ["onnx/model.onnx"]


def test_a_bundle_answers_from_the_command_line(
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = convert(hub_folders.write_folder(tmp_path / "folder"), tmp_path / "m.bundle", precision="int8")
    files = {**folder_files(made.path), "README.md": b"#"}
    with Hub(files) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setattr(
            sys, "argv", ["edge-infer", "generate", "hf:owner/name@main", "the", "--max-tokens", "3", "--seed", "1"]
        )
        with pytest.raises(SystemExit) as ended:
            main_here()
        answer = edge_infer.generate("hf:owner/name").complete("the", max_tokens=3, seed=1)

    assert not ended.value.code
    assert answer.text in capsys.readouterr().out
    assert hub.fetched() == sorted(folder_files(made.path))


def test_a_gguf_file_is_named_or_the_only_one(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = gguf_files.write_gguf(tmp_path / "tiny-Q4_0.gguf", kind="Q4_0").read_bytes()
    with Hub({"tiny-Q4_0.gguf": file, "tiny-Q8_0.gguf": b"x" * 20_000}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        with pytest.raises(InputError, match=r"has 2 models: `tiny-Q4_0\.gguf`, `tiny-Q8_0\.gguf`") as caught:
            convert("hf:owner/name", tmp_path / "out.bundle")
        result = convert("hf:owner/name/tiny-Q4_0.gguf", tmp_path / "out.bundle")

    assert caught.value.hint == "hf:owner/name/tiny-Q4_0.gguf"
    assert Bundle.open(result.path).manifest.name == "tiny-Q4_0"
    assert hub.fetched() == ["tiny-Q4_0.gguf"]


def test_offline_the_cache_is_taken(
    cache: Path,
    tmp_path: Path,
    decoder: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Hub(decoder) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        first = convert("hf:owner/name", tmp_path / "first.bundle")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    assert convert("hf:owner/name", tmp_path / "second.bundle").revision == first.revision
    assert convert(f"hf:owner/name@{COMMIT}", tmp_path / "third.bundle").revision == first.revision
    with pytest.raises(InputError, match=r"is not in .*models--owner--other, and HF_HUB_OFFLINE"):
        convert("hf:owner/other", tmp_path / "fourth.bundle")


def test_weights_beside_a_model_keep_their_names(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnx

    model = onnx.load(DIGITS)
    place = cache.parents[2] / "external"
    place.mkdir()
    onnx.save(model, place / "model.onnx", save_as_external_data=True, location="model.onnx_data", size_threshold=512)
    with Hub({f"onnx/{name}": data for name, data in folder_files(place).items()}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        session = edge_infer.load("hf:owner/name", backend="onnxruntime")

    image = np.ones((1, 1, 8, 8), np.float32)
    expected = edge_infer.load(DIGITS, backend="onnxruntime").run({"image": image})["logits"]
    assert (np.asarray(session.run({"image": image})["logits"]) == np.asarray(expected)).all()
    assert hub.fetched() == ["onnx/model.onnx", "onnx/model.onnx_data"]


def test_the_token_reaches_the_hub_alone(
    cache: Path,
    tmp_path: Path,
    decoder: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    with Hub(decoder, token="secret-of-mine") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        with pytest.raises(InputError, match=r"has no owner/name@main for you \(status 401\)") as caught:
            convert("hf:owner/name", tmp_path / "out.bundle")
        assert "set HF_TOKEN" in caught.value.hint
        cache.parents[1].mkdir(parents=True, exist_ok=True)
        (cache.parents[1] / "token").write_text("wrong-one\n")
        monkeypatch.setenv("HF_TOKEN", "secret-of-mine")
        convert("hf:owner/name", tmp_path / "out.bundle")
        hub.token = "another"
        with pytest.raises(InputError) as refused:
            convert("hf:owner/name", tmp_path / "more.bundle")

    assert {token for _, path, token in hub.asked if path.startswith("/store/")} == {""}
    assert "secret-of-mine" not in caplog.text + str(refused.value) + repr(refused.value.details)


#: By case what is done to the Hub, and what must be said.
def _shorter(hub: Hub) -> None:
    hub.files["config.json"] = hub.files["config.json"][:-1]


def _other(hub: Hub) -> None:
    hub.files["config.json"] = b" " + hub.files["config.json"][1:]


def _other_weights(hub: Hub) -> None:
    name = "model-00001-of-00002.safetensors"
    hub.files[name] = with_last_byte_changed(hub.files[name])


HARM: dict[str, tuple[Any, type[EdgeInferError], str]] = {
    "shorter": (_shorter, EdgeInferError, "config.json"),
    "other-hash": (_other, EdgeInferError, "config.json"),
    "other-weights": (_other_weights, EdgeInferError, "model-00001-of-00002.safetensors"),
}


@pytest.mark.parametrize("case", HARM)
def test_what_the_hub_did_not_promise_is_refused(
    cache: Path, tmp_path: Path, decoder: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    harm, kind, said = HARM[case]
    with Hub(decoder) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        harm(hub)
        with pytest.raises(kind, match=said) as caught:
            convert("hf:owner/name", tmp_path / "out.bundle")

    assert isinstance(caught.value, (IntegrityError, FetchError))
    assert not (tmp_path / "out.bundle").exists()
    folder = cache / f"snapshots/{COMMIT}"
    assert not (folder / said).exists()
    assert not [one for one in cache.rglob("*.incomplete") if one.parent.name == "blobs" and one.name.startswith(".")]


EVIL: dict[str, list[dict[str, Any]]] = {
    "path-above": [{"rfilename": "../../evil.json", "size": 1}],
    "absolute": [{"rfilename": "/etc/passwd", "size": 1}],
    "windows": [{"rfilename": "a\\..\\b", "size": 1}],
    "nul": [{"rfilename": "a\0b", "size": 1}],
    "no-name": [{"size": 1}],
    "size": [{"rfilename": "a", "size": -1}],
    "size-of-text": [{"rfilename": "a", "size": "1"}],
    "hash": [{"rfilename": "a", "size": 1, "blobId": "../x"}],
    "numbers": [1, 2],  # type: ignore[list-item]
}


@pytest.mark.parametrize("case", EVIL)
def test_an_evil_list_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))
    with Hub({}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.listed = EVIL[case]
        with pytest.raises(FetchError, match="does not answer as a Hub does"):
            edge_infer.load("hf:owner/name")

    assert not (tmp_path / "huggingface").exists()


@pytest.mark.parametrize("commit", ["main", "../../x", 5, "0" * 39])
def test_a_commit_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: Any) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))
    with Hub({"a": b"b"}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.commit = commit
        with pytest.raises(FetchError, match="expected 40 hexadecimal digits"):
            edge_infer.load("hf:owner/name")


def test_a_repository_without_a_model_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))
    monkeypatch.setenv("EDGE_INFER_CACHE", str(tmp_path / "edge-infer"))
    with Hub({"model.safetensors": b"x", "README.md": b"#"}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        with pytest.raises(UnsupportedError) as caught:
            edge_infer.generate("hf:owner/name")
        with pytest.raises(InputError, match=r"`owner/name` has no file `onnx/model\.onnx`"):
            edge_infer.load("hf:owner/name/onnx/model.onnx")

    assert caught.value.hint == "edge-infer convert hf:owner/name -o name.bundle"
    assert hub.fetched() == []


@pytest.mark.parametrize(
    "text",
    ["hf:", "hf:name", "hf:owner/", "hf:../name", "hf:owner/na me", "hf:owner/name/", "hf:owner/name/../x", "hf:a/b@"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not an address of the Hugging Face Hub"):
        edge_infer.load(text)


@pytest.mark.parametrize(
    ("text", "name", "revision", "path"),
    [
        ("hf:owner/name", "owner/name", "main", ""),
        ("hf:owner/name@v1.0", "owner/name", "v1.0", ""),
        ("hf:owner/name@refs/pr/3", "owner/name", "refs/pr/3", ""),
        ("hf:owner/name@refs/pr/3/a.gguf", "owner/name", "refs/pr/3", "a.gguf"),
        ("hf:owner/name/onnx/model.onnx", "owner/name", "main", "onnx/model.onnx"),
        ("hf:owner/name@abc/a b.gguf", "owner/name", "abc", "a b.gguf"),
    ],
)
def test_an_address_names_what_is_meant(text: str, name: str, revision: str, path: str) -> None:
    address = HubAddress(text)

    assert (address.name, address.revision, address.path) == (name, revision, path)


def test_a_page_takes_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_place, "in_browser", lambda: True)

    with pytest.raises(UnsupportedError, match="A page does not load `hf:owner/name`"):
        Bundle.open("hf:owner/name")


def test_a_file_of_no_stated_size_has_a_bound(
    cache: Path, tmp_path: Path, decoder: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setattr(hub_client, "_MOST_UNSTATED_BYTES", 1000)
    monkeypatch.setattr(hub_client, "_CHUNK", 500)
    with Hub(decoder) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        for one in hub.listed:
            one.pop("size", None)
            one.pop("lfs", None)
        with pytest.raises(FetchError, match="has more than 1000 bytes, and the Hub does not say how many"):
            convert("hf:owner/name", tmp_path / "out.bundle")

    assert not list(cache.rglob("*.incomplete"))


def test_a_hub_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")

    with pytest.raises(FetchError, match="cannot be reached") as caught:
        edge_infer.load("hf:owner/name")

    assert "HF_HUB_OFFLINE=1" in caught.value.hint
    assert os.environ["HF_HOME"] in caught.value.hint
    assert json.dumps(caught.value.details)
