"""The command `edge-infer serve`, as a process of its own."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException, RemoteDisconnected
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from edge_infer.cli import serve as serve_module
from edge_infer.errors import BundleError, EdgeInferError, InputError
from edge_infer.server.app import Limits
from edge_infer.server.http.listener import is_local, listen, url_from_outside, url_of
from edge_infer.server.options import ServeOptions
from edge_infer.server.static.pages import find_web_root
from tests.support import warm_command
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import Client
from tests.support.server.process import started
from tests.support.wait import wait_until


def test_the_url_is_printed_when_it_answers_and_ctrl_c_ends_it(tmp_path: Path, web_root: Path) -> None:
    write_bundle(tmp_path / "one.bundle", bundle_files("first"))
    write_bundle(tmp_path / "second.bundle", bundle_files("second"))
    with started(tmp_path, "--web-root", str(web_root), "--open") as (process, url, line):
        assert "(first of `one.bundle`, second)" in line  # by the manifest's name, not by the folder's
        get = Client(url)
        assert get("/").status == 200
        assert get("/models/second/manifest.json?token=secret").status == 200
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "GET /models/second/manifest.json 200" in rest
    assert "secret" not in rest
    assert "Traceback" not in rest
    assert rest.endswith("Stopped\n")


def test_sigterm_under_load_loses_no_request_that_was_accepted(tmp_path: Path, web_root: Path) -> None:
    """Every connection gets a whole answer or none at all: 200, or 503 once the server is stopping."""
    write_bundle(tmp_path / "one.bundle", bundle_files("first"))
    body = struct.pack("<3f", 1, 2, 3)
    outcomes: list[str] = []

    def client(url: str) -> None:
        host = url.removeprefix("http://")
        while True:
            connection = HTTPConnection(host, timeout=30)
            try:
                connection.connect()
            except OSError:
                return  # it listens no more
            try:
                for _ in range(50):
                    headers = {"Content-Type": "application/octet-stream"}
                    connection.request("POST", "/v2/models/first/infer", body, headers)
                    response = connection.getresponse()
                    data = response.read()
                    outcomes.append("ok" if data == body else str(response.status))
                    if response.getheader("Connection") == "close":
                        return
            except RemoteDisconnected:
                return  # an idle connection that the stopping server closed: nothing was accepted
            except OSError:
                return
            except HTTPException as error:
                outcomes.append(f"cut: {error}")
                return
            finally:
                connection.close()

    arguments = ("--web-root", str(web_root), "--log-format", "json")
    with started(tmp_path, *arguments) as (process, url, _), ThreadPoolExecutor(8) as threads:
        assert Client(url)("/v2/models/first/ready").status == 200
        clients = [threads.submit(client, url) for _ in range(8)]
        wait_until(lambda: len(outcomes) >= 100)
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
        for future in clients:
            future.result(60)
    assert process.returncode == 0
    assert set(outcomes) <= {"ok", "503"}
    assert outcomes.count("ok") >= 100
    lines = [json.loads(line) for line in rest.splitlines() if line.startswith("{")]
    served = [line for line in lines if line.get("path") == "/v2/models/first/infer" and line["status"] == 200]
    assert len(served) == outcomes.count("ok")
    assert rest.endswith("Stopped\n")


def test_named_bundles_are_served_and_nothing_else(tmp_path: Path, web_root: Path) -> None:
    write_bundle(tmp_path / "one.bundle", bundle_files("first"))
    model = tmp_path / "bare.onnx"
    model.write_bytes(bundle_files()["onnx/model.onnx"])
    with started(tmp_path, "bare.onnx", "--web-root", str(web_root), "--no-isolation") as (_, url, line):
        assert "(bare)" in line
        page = Client(url)("/")
        assert page.status == 200
        assert "cross-origin-opener-policy" not in page.headers


def test_without_a_bundle_there_is_the_page_and_a_hint(tmp_path: Path, web_root: Path) -> None:
    with started(tmp_path, "--web-root", str(web_root)) as (process, url, line):
        assert "(no model)" in line
        assert process.stdout is not None
        assert process.stdout.readline().startswith("hint: edge-infer convert")
        assert Client(url)("/models/").body == b'{"models": []}'


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return warm_command.run(["serve", *arguments], cwd=folder, timeout_s=60)


def test_a_port_in_use_is_one_clear_error(tmp_path: Path, web_root: Path) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        done = run(tmp_path, "--web-root", str(web_root), "--port", str(port))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"error: Port {port} is in use" in done.stderr
    assert f"hint: --port {port + 1}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["none.bundle"], 1, "There is no file or folder `none.bundle`"),
        (["--web-root", "nowhere"], 1, "`nowhere` has no folder `src`"),
        (["--host", "203.0.113.7", "--web-root", "."], 1, "is not an address of this machine"),
        (["--host", "not a host", "--web-root", "."], 1, "is not an address of this machine"),
        (["--port", "99999"], 2, "99999"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: list[str], status: int, message: str) -> None:
    (tmp_path / "src").mkdir()
    done = run(tmp_path, *arguments)
    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_extras_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "httptools", None)
        result = CliRunner().invoke(serve_module.serve, [])
    assert isinstance(result.exception, EdgeInferError)
    assert result.exception.hint == "pip install 'edge-infer[server]'"
    assert "httptools" in result.exception.message


def parsed(*arguments: str) -> ServeOptions:
    """Return the options that the command takes from its arguments."""
    params = serve_module.serve.make_context("serve", list(arguments)).params
    return ServeOptions(**{name: value for name, value in params.items() if name not in ("sources", "settings")})


def test_the_options_default_to_the_limits_of_an_application() -> None:
    assert serve_module.limits_of(ServeOptions(lazy=True)) == Limits()
    assert parsed() == ServeOptions()


def test_the_file_has_options_and_the_command_line_goes_first(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(
        '[server]\nport = 0\nmax_rows = 7\nlazy = true\ncors_origins = ["https://shop.example"]\ntls_key = "k"\n'
    )

    options = parsed("--max-rows", "8", "--config", str(file))

    assert (options.port, options.max_rows, options.lazy) == (0, 8, True)
    assert (options.cors_origins, options.tls_key) == (("https://shop.example",), Path("k"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("max_row = 7", "did you mean `max_rows`?"),
        ("max_rows = 7.5", "`server.max_rows` is float, expected int"),
        ("port = true", "`server.port` is bool, expected int"),
        ("lazy = 1", "`server.lazy` is int, expected bool"),
    ],
)
def test_an_option_in_the_file_that_is_wrong_is_named(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "serve.toml").write_text(f"[server]\n{line}\n")

    with pytest.raises(InputError) as caught:
        parsed("--config", str(tmp_path / "serve.toml"))

    assert said in f"{caught.value.message} {caught.value.hint}"


def test_an_option_in_the_file_is_within_its_range(tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text("[server]\nmax_batch_size = 5000\n")

    with pytest.raises(click.BadParameter, match="5000 is not in the range"):
        parsed("--config", str(tmp_path / "serve.toml"))


def test_missing_web_files_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "edge_infer_web", None)
    monkeypatch.setattr("edge_infer.__file__", str(tmp_path / "edge_infer" / "__init__.py"))
    with pytest.raises(BundleError) as caught:
        find_web_root()
    assert caught.value.hint == "pip install 'edge-infer[web]'"
    write_bundle(tmp_path / "web", {"src/index.js": b"", "studio/index.html": b""})
    assert find_web_root() == tmp_path / "web"


def test_a_listening_socket_has_a_url() -> None:
    with listen("127.0.0.1", 0) as loopback:
        assert url_of(loopback) == f"http://127.0.0.1:{loopback.getsockname()[1]}"
    with listen("0.0.0.0", 0) as everywhere:
        assert url_of(everywhere).startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    ("own", "url"),
    [("192.168.7.8", "http://192.168.7.8:{}"), ("fd00::7", "http://[fd00::7]:{}"), ("127.0.0.1", ""), ("", "")],
)
def test_who_listens_everywhere_is_told_the_address_for_others(
    monkeypatch: pytest.MonkeyPatch, own: str, url: str
) -> None:
    class Way(socket.socket):
        def connect(self, _address: object) -> None:
            if not own:
                raise OSError("Network is unreachable")

        def getsockname(self) -> tuple[str, int]:
            return own, 5353

    with listen("0.0.0.0", 0) as everywhere, listen("127.0.0.1", 0) as loopback:
        monkeypatch.setattr(socket, "socket", Way)
        assert url_from_outside(everywhere) == url.format(everywhere.getsockname()[1])
        assert url_from_outside(loopback) == ""


def test_the_page_that_is_opened_fits_what_is_served() -> None:
    page_of = serve_module._page_of
    assert page_of(has_pages=True, has_tenants=False) == "/"
    assert page_of(has_pages=False, has_tenants=False) == "/docs"
    assert page_of(has_pages=True, has_tenants=True) == "/dashboard"


def test_an_address_is_local_or_not() -> None:
    assert [is_local(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert not any(is_local(host) for host in ("0.0.0.0", "::", "192.0.2.1", "example.org", ""))


def test_the_runtime_loads_no_server() -> None:
    script = (
        "import sys, edge_infer, edge_infer.cli.serve; print({'starlette', 'uvicorn', 'brotli'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, check=True)
    assert done.stdout == "set()\n"
