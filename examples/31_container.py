"""A container image of the server, or of one model without pip, made without a container engine and without root.

    python examples/31_container.py digits.bundle -o image [--slim] [--wheel edge_infer-VERSION-py3-none-any.whl]

mmdebstrap unpacks Python and the few Debian packages that it needs: no shell, no pip, no package manager. Then the
wheel of edge-infer with its server goes in, or, with `--slim`, the folder that `edge-infer slim` writes.
`image/root.tar` is the root of the container, `image/Dockerfile` makes an image of it. At last the root is entered, in
a user namespace, and asked. The last line tells sizes and the answer as JSON.

Needs: pip install 'edge-infer[onnxruntime]', mmdebstrap and unshare (util-linux), and for users a line in /etc/subuid
"""

from __future__ import annotations

import argparse
import io
import json
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from urllib.request import Request, urlopen

SUITE, PYTHON = "bookworm", "3.11"
PACKAGES = (f"python{PYTHON}", "libstdc++6", "ca-certificates")
#: Of these packages, and of those that they need: what a container has no use for.
LEFT_OUT = (
    *("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/perl", "usr/share/lintian", "usr/share/debconf"),
    *("usr/bin/dpkg", "usr/bin/openssl", "usr/bin/perl", "bin/tar", "usr/share/dpkg", "var/lib/dpkg", "dev"),
)
#: What the wheels of Debian 12 may ask for: glibc 2.36.
TAGS = [f"manylinux_2_{minor}" for minor in (36, 35, 34, 31, 28, 27, 24, 17)] + ["manylinux2014"]
PASSWD = "root:x:0:0::/tmp:/none\nserve:x:1000:1000::/tmp:/none\n"
SERVE = f"""\
FROM scratch
ADD root.tar /
COPY digits.bundle /models/digits.bundle
ENV PYTHONPATH=/opt/site
USER 1000
EXPOSE 8080
ENTRYPOINT ["/usr/bin/python{PYTHON}", "-m", "edge_infer", "serve", "--host", "0.0.0.0", "--log-format", "json"]
CMD ["/models/digits.bundle"]
"""
SLIM = f"""\
FROM scratch
ADD root.tar /
USER 1000
ENTRYPOINT ["/usr/bin/python{PYTHON}", "-I", "-S", "/opt/model"]
CMD ["--self-test"]
"""
#: Enters a root: what an engine mounts is the machine's here.
ENTER = 'mount --rbind /dev "$1/dev" && mount --rbind /proc "$1/proc" && root=$1 && shift && exec chroot "$root" "$@"'


def sources() -> list[str]:
    """Name the archives of this machine where it is the same Debian, such as a mirror; else Debian's own are used."""
    is_same = f"VERSION_CODENAME={SUITE}" in Path("/etc/os-release").read_text()
    places = (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d/debian.sources"))
    return [str(place) for place in places if is_same and place.is_file()]


def unpack_debian(target: Path) -> None:
    """Unpack Python and what it needs; no installation script runs."""
    command = ["mmdebstrap", "--mode=unshare", "--variant=extract", f"--include={','.join(PACKAGES)}", SUITE]
    subprocess.run([*command, str(target), *sources()], check=True)


def install(wheel: str, folder: Path) -> None:
    """Install edge-infer with its server by this machine's pip, for the container's Python."""
    machine = platform.machine()
    tags = [word for tag in TAGS for word in ("--platform", f"{tag}_{machine}")]
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--target", str(folder)]
    command += ["--python-version", PYTHON, "--implementation", "cp", "--only-binary=:all:", *tags]
    subprocess.run([*command, f"{wheel}[server,onnxruntime]"], check=True)


def write_root(base: Path, folders: dict[str, Path], target: Path) -> None:
    """Write the root of the container: Debian's files but for what it has no use for, and ours."""
    certificates = io.BytesIO()
    with tarfile.open(base) as source, tarfile.open(target, "w") as root:
        for member in source:
            name = member.name.removeprefix("./")
            if any(name == one or name.startswith(f"{one}/") for one in LEFT_OUT) or name in ("", "."):
                continue
            content = source.extractfile(member) if member.isreg() else None
            if content is not None and name.startswith("usr/share/ca-certificates/"):
                certificates.write(content.read())  # what update-ca-certificates does
                continue
            root.addfile(member, content)
        for name, mode in (("dev", 0o755), ("proc", 0o755), ("sys", 0o755), ("tmp", 0o1777), ("models", 0o755)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            root.addfile(entry)
        files = {"etc/passwd": PASSWD.encode(), "etc/ssl/certs/ca-certificates.crt": certificates.getvalue()}
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            root.addfile(entry, io.BytesIO(data))
        for name, folder in folders.items():
            root.add(
                folder, name, filter=lambda entry: entry.replace(uid=0, gid=0, uname="root", gname="root", deep=False)
            )


def words_of(dockerfile: str, name: str) -> list[str]:
    """Return the words of a line such as `CMD ["--self-test"]`."""
    (line,) = [line for line in dockerfile.splitlines() if line.startswith(f"{name} ")]
    words: list[str] = json.loads(line.removeprefix(f"{name} "))
    return words


def enter(root: Path, words: list[str]) -> subprocess.Popen[str]:
    """Start a program in a root, as nobody on this machine: the namespace's root is this user."""
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", ENTER]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": "/opt/site", "HOME": "/tmp"}
    return subprocess.Popen(
        [*command, "sh", str(root), *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def try_server(root: Path, bundle: Path) -> str:
    """Start the server as the image does, but on a free port; return what its model says of itself."""
    shutil.copytree(bundle, root / "models/digits.bundle")
    words = [*words_of(SERVE, "ENTRYPOINT"), "--port", "0", "--host", "127.0.0.1", *words_of(SERVE, "CMD")]
    server = enter(root, words)
    assert server.stderr is not None
    try:
        said = []
        for line in server.stderr:
            said.append(line)
            if line.startswith("Serving "):
                break
        else:
            raise SystemExit("".join(said))
        with urlopen(Request(f"{line.split()[1]}/v2/models/digits")) as answer:
            found: str = json.load(answer)["name"]
            return found
    finally:
        server.terminate()
        server.communicate(timeout=60)


def try_slim(root: Path) -> str:
    """Let the folder of one model prove itself."""
    done = enter(root, [*words_of(SLIM, "ENTRYPOINT"), *words_of(SLIM, "CMD")])
    output, said = done.communicate(timeout=120)
    if done.returncode:
        raise SystemExit(said)
    return output.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, help="a folder of a bundle, such as digits.bundle")
    parser.add_argument("-o", "--output", type=Path, default=Path("image"), help="a folder that is not there yet")
    parser.add_argument(
        "--slim", action="store_true", help="one model and the runtime, without a server and without pip"
    )
    parser.add_argument("--wheel", default="edge-infer", help="a wheel in place of the newest release")
    arguments = parser.parse_args()
    if not (arguments.bundle / "manifest.json").is_file():
        raise SystemExit(
            f"{arguments.bundle} is not the folder of a bundle: edge-infer convert MODEL -o {arguments.bundle}"
        )
    for program in ("mmdebstrap", "unshare"):
        if shutil.which(program) is None:
            raise SystemExit(f"{program} is not installed: apt-get install mmdebstrap util-linux")
    arguments.output.mkdir(parents=True)
    target = arguments.output / "root.tar"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        unpack_debian(folder / "base.tar")
        if arguments.slim:
            command = [sys.executable, "-m", "edge_infer", "slim", str(arguments.bundle), "-o", str(folder / "model")]
            subprocess.run(command, check=True)
            folders = {"opt/model": folder / "model"}
        else:
            install(arguments.wheel, folder / "site")
            folders = {"opt/site": folder / "site"}
        write_root(folder / "base.tar", folders, target)
        (arguments.output / "Dockerfile").write_text(SLIM if arguments.slim else SERVE)
        root = folder / "root"
        with tarfile.open(target) as packed:
            packed.extractall(root, filter="tar")
        sizes = {part: sum(one.lstat().st_size for one in (root / part).rglob("*")) for part in (".", *folders)}
        said = try_slim(root) if arguments.slim else try_server(root, arguments.bundle)
    megabytes = {("root" if part == "." else part): round(size / 1e6, 1) for part, size in sizes.items()}
    print(json.dumps({"mb": megabytes, "said": said}))


if __name__ == "__main__":
    main()
