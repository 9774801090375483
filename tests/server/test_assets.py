from __future__ import annotations

import gzip
import hashlib
import json
import os
from typing import TYPE_CHECKING

import brotli
import pytest
import zstandard

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from tests.support.server.bundles import write_bundle
from tests.support.server.client import MODULE, Client

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "br": brotli.decompress,
    "zstd": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
    "gzip": gzip.decompress,
}


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/studio/", "text/html; charset=utf-8"),
        ("/demo/", "text/html; charset=utf-8"),
        ("/demo/index.html", "text/html; charset=utf-8"),
        ("/demo/style.css", "text/css; charset=utf-8"),
        ("/blank.html", "text/html; charset=utf-8"),
        ("/src/index.js", "text/javascript; charset=utf-8"),
        ("/src/deep/er/module.mjs", "text/javascript; charset=utf-8"),
        ("/vendor/engine.wasm", "application/wasm"),
        ("/vendor/lib.zip", "application/zip"),
        ("/models/tiny/onnx/model.onnx", "application/octet-stream"),
        ("/models/tiny/manifest.json", "application/json"),
        ("/models/", "application/json"),
        ("/health", "text/plain; charset=utf-8"),
    ],
)
def test_every_file_has_its_media_type_and_every_page_is_isolated(get: Client, path: str, media_type: str) -> None:
    answer = get(path)
    assert (answer.status, answer.headers["content-type"]) == (200, media_type)
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["cross-origin-embedder-policy"] == "require-corp"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_errors_are_isolated_too(get: Client) -> None:
    for answer in (get("/src/none.js"), get("/nowhere"), get("/health", "DELETE")):
        assert answer.status in (404, 405)
        assert answer.headers["cross-origin-embedder-policy"] == "require-corp"


def test_without_isolation_pages_may_embed_anything(web_root: Path) -> None:
    with ServerThread(create_app({}, web_root, isolated=False)) as server:
        headers = Client(server.url)("/").headers
    assert "cross-origin-opener-policy" not in headers
    assert "cross-origin-embedder-policy" not in headers
    assert headers["x-content-type-options"] == "nosniff"


# -- entity tags and caching --


def test_the_entity_tag_is_the_digest_and_a_known_one_saves_the_body(get: Client) -> None:
    first = get("/src/index.js")
    assert first.body == MODULE
    assert first.headers["etag"] == f'"{hashlib.sha256(MODULE).hexdigest()}"'
    assert first.headers["cache-control"] == "no-cache"
    for known in (first.headers["etag"], f'"other", W/{first.headers["etag"]}', "*"):
        again = get("/src/index.js", if_none_match=known)
        assert (again.status, again.body) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
        assert "content-length" not in again.headers
    assert get("/src/index.js", if_none_match='"other"').status == 200


def test_each_encoding_has_a_tag_of_its_own(get: Client) -> None:
    packed = get("/src/index.js", accept_encoding="br")
    plain = get("/src/index.js")
    assert packed.headers["etag"] != plain.headers["etag"]
    assert get("/src/index.js", accept_encoding="br", if_none_match=packed.headers["etag"]).status == 304
    assert get("/src/index.js", accept_encoding="br", if_none_match=plain.headers["etag"]).status == 200


def test_a_changed_file_has_another_tag(tmp_path: Path) -> None:
    root = write_bundle(tmp_path, {"src/a.js": b"one", "demo/index.html": b""})
    with ServerThread(create_app({}, root)) as server:
        get = Client(server.url)
        first = get("/src/a.js")
        (tmp_path / "new.js").write_bytes(b"two")
        (tmp_path / "new.js").replace(root / "src" / "a.js")
        second = get("/src/a.js", if_none_match=first.headers["etag"])
    assert (second.status, second.body) == (200, b"two")


def test_a_name_with_its_digest_is_kept_for_ever_and_never_gives_other_bytes(get: Client) -> None:
    digest = hashlib.sha256(MODULE).hexdigest()
    kept = get(f"/src/index.js?sha256={digest}")
    assert kept.headers["cache-control"] == "public, max-age=31536000, immutable"
    wrong = get(f"/src/index.js?sha256={'0' * 64}")
    assert wrong.status == 404
    assert wrong.headers["cache-control"] == "no-store"


def test_head_tells_what_get_would_send(get: Client) -> None:
    for accepted in ("identity", "gzip"):
        for path in ("/src/index.js", "/vendor/noise.wasm", "/models/tiny/onnx/model.onnx", "/models/", "/health"):
            head, full = get(path, "HEAD", accept_encoding=accepted), get(path, accept_encoding=accepted)
            assert (head.status, head.body) == (200, b"")
            assert head.headers["content-length"] == str(len(full.body))
            assert head.headers.get("etag") == full.headers.get("etag")


# -- ranges --


def test_a_range_is_a_part_of_the_plain_file(get: Client) -> None:
    size = len(MODULE)
    for header, start, stop in (("bytes=0-9", 0, 10), ("bytes=100-", 100, size), ("bytes=-5", size - 5, size)):
        answer = get("/src/index.js", range=header, accept_encoding="br")
        assert (answer.status, answer.body) == (206, MODULE[start:stop])
        assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{size}"
        assert "content-encoding" not in answer.headers


def test_a_large_file_is_resumed_where_it_stopped(get: Client, web_root: Path) -> None:
    data = (web_root / "vendor" / "noise.wasm").read_bytes()
    first = get("/vendor/noise.wasm", range="bytes=0-1999999")
    rest = get("/vendor/noise.wasm", range="bytes=2000000-", if_range=first.headers["etag"])
    assert (first.status, rest.status) == (206, 206)
    assert first.body + rest.body == data
    assert get("/vendor/noise.wasm").body == data


def test_a_range_of_a_file_that_changed_is_the_whole_file(get: Client) -> None:
    for if_range in ('"other"', "W/" + get("/src/index.js").headers["etag"], "Fri, 20 Nov 2026 10:00:00 GMT"):
        answer = get("/src/index.js", range="bytes=0-9", if_range=if_range)
        assert (answer.status, answer.body) == (200, MODULE)


def test_ranges_that_cannot_be_understood_are_ignored_and_those_after_the_end_refused(get: Client) -> None:
    for header in ("bytes=9-3", "bytes=0-1,5-6", "pages=1-2", "bytes="):
        assert get("/src/index.js", range=header).status == 200
    beyond = get("/src/index.js", range=f"bytes={len(MODULE)}-")
    assert beyond.status == 416
    assert beyond.headers["content-range"] == f"bytes */{len(MODULE)}"
    assert get("/demo/empty.txt", range="bytes=0-").status == 416
    assert get("/demo/empty.txt").body == b""


# -- encodings --


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip"])
def test_a_compressed_answer_holds_the_same_bytes(get: Client, web_root: Path, encoding: str) -> None:
    for path in ("src/index.js", "vendor/engine.wasm", "demo/index.html"):
        answer = get(f"/{path}", accept_encoding=encoding)
        data = (web_root / path).read_bytes()
        assert answer.headers["content-encoding"] == encoding
        assert answer.headers["vary"] == "Accept-Encoding"
        assert len(answer.body) < len(data) / 2
        assert DECODERS[encoding](answer.body) == data


def test_the_client_chooses_the_encoding(get: Client) -> None:
    def chosen(accepted: str) -> str | None:
        return get("/src/index.js", accept_encoding=accepted).headers.get("content-encoding")

    assert chosen("gzip, deflate, br, zstd") == "br"
    assert chosen("gzip, deflate, br;q=0, zstd;q=0") == "gzip"
    assert chosen("br;q=0, *") == "zstd"
    assert chosen("identity") is None
    assert chosen("deflate") is None


def test_what_does_not_shrink_is_sent_as_it_is(get: Client) -> None:
    for path in ("/vendor/noise.wasm", "/demo/style.css", "/vendor/lib.zip", "/vendor/picture.png"):
        assert "content-encoding" not in get(path, accept_encoding="br, zstd, gzip").headers


# -- paths --


@pytest.mark.parametrize(
    "path",
    [
        "/src/../secret.txt",
        "/src/%2e%2e/secret.txt",
        "/src/..%2fsecret.txt",
        "/src/%2e%2e%2fsecret.txt",
        "/src/%252e%252e/secret.txt",
        "/src/..%5csecret.txt",
        "/src/..\\secret.txt",
        "/src//etc/passwd",
        "/src/%2fetc/passwd",
        "/src//../../secret.txt",
        "/src/./index.js",
        "/src/deep//er/module.mjs",
        "/src/C:%5cWindows%5cwin.ini",
        "/src/index.js%00.txt",
        "/src/index.js/",
        "/src/deep",
        "/src/",
        "/src/" + "a/" * 500 + "b",
        "/src/" + "a" * 5000,
        "/demo/.secret",
        "/secret.txt",
        "/vendor/link.txt",
        "/models/tiny/../secret.txt",
        "/models/tiny/..%2f..%2fsecret.txt",
        "/models/tiny/onnx/../manifest.json",
        "/models/..%2fsecret.txt/manifest.json",
        "/models/tiny/unnamed.txt",
        "/models/packed/unnamed.txt",
        "/models/bare%20model/manifest.json",
        "/wheels/..%2f..%2fsecret.txt",
    ],
)
def test_no_path_leaves_its_folder(get: Client, web_root: Path, path: str) -> None:
    link = web_root / "vendor" / "link.txt"
    if not link.is_symlink():
        link.symlink_to(web_root / "secret.txt")
    answer = get(path)
    assert answer.status == 404
    assert b"secret\n" not in answer.body
    assert answer.body != b"secret"


def test_a_link_inside_its_folder_is_followed(get: Client, web_root: Path) -> None:
    link = web_root / "src" / "alias.js"
    link.symlink_to("index.js")
    assert get("/src/alias.js").body == MODULE


def test_a_file_that_may_not_be_read_is_as_good_as_none(tmp_path: Path) -> None:
    root = write_bundle(tmp_path, {"src/a.js": b"one", "demo/index.html": b""})
    os.mkfifo(root / "src" / "pipe.js")
    with ServerThread(create_app({}, root)) as server:
        assert Client(server.url)("/src/pipe.js").status == 404


def test_in_a_checkout_the_examples_are_served_where_they_are_edited(tmp_path: Path) -> None:
    files = {"examples/app.py": b"new", "secret.py": b"secret", "web/vendor.py": b"", "web/src/index.js": b""}
    files |= {"web/vendor/versions.json": b"{}", "web/vendor/examples/app.py": b"old"}
    write_bundle(tmp_path, files)
    with ServerThread(create_app({}, tmp_path / "web")) as server:
        get = Client(server.url)
        assert get("/vendor/examples/app.py").body == b"new"
        assert get("/vendor/examples/..%2fsecret.py").status == 404
        (tmp_path / "web" / "vendor.py").unlink()  # an installed wheel has no script
        assert get("/vendor/examples/app.py").body == b"old"


def test_engine_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    write_bundle(tmp_path, {"web/src/index.js": b"", "web/vendor.py": b"", "installed/src/index.js": b""})
    for name, hint in (("web", "make setup"), ("installed", "pip install 'edge-infer[web]'")):
        with ServerThread(create_app({}, tmp_path / name)) as server:
            answer = Client(server.url)("/vendor/pyodide/pyodide.mjs")
        assert (answer.status, json.loads(answer.body)["hint"]) == (404, hint)
