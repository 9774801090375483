"""A Debian for ARM in a folder, made without running one emulated instruction. Standard library only.

apt resolves and fetches the packages of the other architecture in folders of its own, so that the machine's packages
are not touched; `dpkg-deb --fsys-tarfile | tar` unpacks them. No installation script runs: the interpreter and the
libraries need none. Wheels come by this machine's pip, told of the other platform. The archive and the package index
are those that this machine's apt and pip are set up with.

    python -m tests.device.arm_root arm64 FOLDER
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
#: Where pip puts the wheels, inside the root.
SITE = "opt/site"
# Folders that are links in a Debian of today, and that packages still ship as folders.
_MERGED = ("bin", "sbin", "lib")


class Arm(NamedTuple):
    """One kind of ARM.

    Attributes:
        debian: Debian's name of it.
        qemu: The emulator's name of it.
        elf: The class and machine in the head of an ELF file (System V ABI: `e_ident[4]`, `e_machine`).
        platforms: The wheel tags that it runs, the newest first: glibc 2.36 is bookworm's.
        packages: What apt installs; `libatomic1` is what numpy's 32-bit build needs.
        wheels: What pip installs.
    """

    debian: str
    qemu: str
    elf: tuple[int, int]
    platforms: tuple[str, ...]
    packages: tuple[str, ...]
    wheels: tuple[str, ...]


_GLIBC = ("2_36", "2_35", "2_34", "2_31", "2_28", "2_27", "2_24", "2_17")
_SYNC = ("tuf", "securesystemslib", "cryptography", "urllib3", "zstandard")
_TESTS = ("pytest", "pytest-timeout", "hypothesis", "jsonschema", "click", "rich")
# A server that `--host` reaches (`by_ssh.py`), and the tools it uses, which are on every Debian that boots.
_SSH = ("openssh-server", "coreutils", "tar", "gzip")
ARMS = {
    "arm64": Arm(
        "arm64",
        "aarch64",
        (2, 183),
        (*(f"manylinux_{glibc}_aarch64" for glibc in _GLIBC), "manylinux2014_aarch64"),
        ("python3", "python3-minimal", "libstdc++6", "dash", "ca-certificates", *_SSH),
        ("onnxruntime", "ai-edge-litert", "onnx", "numpy", *_SYNC, *_TESTS),
    ),
    # No numpy of today has a wheel for it: Debian's own, which tflite-runtime (numpy 1) needs anyway.
    "armhf": Arm(
        "armhf",
        "arm",
        (1, 40),
        (*(f"manylinux_{glibc}_armv7l" for glibc in _GLIBC), "manylinux2014_armv7l"),
        ("python3", "python3-minimal", "python3-numpy", "libstdc++6", "libatomic1", "dash", *_SSH),
        ("tflite-runtime==2.14.0", "pytest", "pytest-timeout"),
    ),
}


class CannotBuildError(Exception):
    """This machine cannot make the root; the text says why."""


def build(arm: Arm, folder: Path) -> Path:
    """Make the root, unless it is there already.

    Args:
        arm: The kind of ARM.
        folder: Where roots and downloads are kept.

    Returns:
        The root folder.

    Raises:
        CannotBuildError: A tool is missing, or the archive has no such architecture.
    """
    root = folder / arm.debian
    recipe = json.dumps([arm.packages, arm.wheels])
    stamp = folder / f"{arm.debian}.ready"
    if stamp.is_file() and stamp.read_text("utf-8") == recipe:
        return root
    for tool in ("apt-get", "dpkg-deb", "tar"):
        if shutil.which(tool) is None:
            raise CannotBuildError(f"no `{tool}` here: the roots are made from Debian's packages")
    stamp.unlink(missing_ok=True)
    shutil.rmtree(root, ignore_errors=True)
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    apt = _Apt(folder / "apt" / arm.debian, arm.debian)
    for package in apt.fetch(arm.packages):
        _unpack(package, root)
        package.unlink()
    version = _python_version(root)
    _install_wheels(arm, version, root / SITE)
    _settle(root)
    stamp.write_text(recipe, "utf-8")
    return root


def emulator(arm: Arm, folder: Path) -> Path:
    """Fetch qemu's emulator of user programs, statically linked, and return its path.

    Raises:
        CannotBuildError: This machine's archive has none.
    """
    binary = folder / f"qemu-{arm.qemu}-static"
    if not binary.is_file():
        own = subprocess.run(
            ["dpkg", "--print-architecture"], check=True, capture_output=True, text=True
        ).stdout.strip()
        packages = _Apt(folder / "apt" / "own", own).fetch(("qemu-user-static",), only=True)
        member = f"./usr/bin/qemu-{arm.qemu}-static"
        shell = 'dpkg-deb --fsys-tarfile "$1" | tar -xO "$2"'
        with binary.with_suffix(".part").open("wb") as file:
            run = subprocess.run(["sh", "-c", shell, "sh", str(packages[0]), member], stdout=file, check=False)
        if run.returncode or not file_size(binary.with_suffix(".part")):
            raise CannotBuildError(f"the package qemu-user-static has no {member}")
        binary.with_suffix(".part").chmod(0o755)
        binary.with_suffix(".part").rename(binary)
        for package in packages:
            package.unlink()
    return binary


def file_size(path: Path) -> int:
    """Return a file's size in bytes."""
    return path.stat().st_size


class _Apt:
    """apt with lists, cache and state in folders of its own, for one architecture."""

    def __init__(self, folder: Path, architecture: str) -> None:
        self._folder = folder = folder.resolve()
        for part in ("lists/partial", "cache/archives/partial"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        self._options = [
            option
            for setting in (
                f"APT::Architecture={architecture}",
                f"APT::Architectures::={architecture}",
                f"Dir::State={folder}",
                f"Dir::State::lists={folder}/lists",
                f"Dir::State::status={folder}/status",
                f"Dir::Cache={folder}/cache",
                "APT::Install-Recommends=false",
                "APT::Sandbox::User=",
                "Acquire::Languages=none",
                "Acquire::Retries=3",
                "Debug::NoLocking=true",
            )
            for option in ("-o", setting)
        ]

    def fetch(self, packages: tuple[str, ...], *, only: bool = False) -> list[Path]:
        """Download packages and what they depend on; `only` without that."""
        archives = self._folder / "cache/archives"
        # One index of several may be out of step on a mirror: what the others list is enough, or the fetch says not.
        said = self._run("update", "-q")
        how = ("download",) if only else ("install", "-y", "--download-only", "--no-install-recommends")
        failure = self._run(*how, "-q", *packages, cwd=archives)
        if failure:
            raise CannotBuildError(f"apt-get: {failure} {said}".strip())
        return sorted(archives.glob("*.deb"))

    def _run(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run apt-get; return what it says of its failure, or nothing."""
        command = ["apt-get", *self._options, *arguments]
        run = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
        return run.stderr.strip()[-600:] if run.returncode else ""


def _unpack(package: Path, root: Path) -> None:
    shell = 'dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink --no-same-owner -C "$2"'
    subprocess.run(["sh", "-c", shell, "sh", str(package), str(root)], check=True)


def _python_version(root: Path) -> str:
    found = sorted(path.name.removeprefix("python") for path in (root / "usr/bin").glob("python3.*[0-9]"))
    if not found:
        raise CannotBuildError("the packages hold no python3")
    return found[-1]


def _install_wheels(arm: Arm, version: str, site: Path) -> None:
    """Let this machine's pip unpack the wheels of the other platform, the engine's in this machine's version."""
    # What constrains this machine is not for another one: `backports-strenum`, say, is of Python 3.10 by its own word.
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    tags = [argument for tag in arm.platforms for argument in ("--platform", tag)]
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(site), "--no-compile", "--upgrade"]
    command += ["--python-version", version, "--implementation", "cp", "--only-binary=:all:", *tags]
    is_whole = arm.debian == "arm64"
    names = list(arm.wheels) if is_whole else [name for name in arm.wheels if not name.startswith("tflite")]
    engines = [f"{name}=={metadata.version(name)}" if name == "onnxruntime" else name for name in names]
    run = subprocess.run([*command, *engines], capture_output=True, text=True, check=False, env=environment)
    if run.returncode == 0 and not is_whole:  # its numpy is Debian's
        rest = [name for name in arm.wheels if name not in names]
        run = subprocess.run(
            [*command, "--no-deps", *rest], capture_output=True, text=True, check=False, env=environment
        )
    if run.returncode:
        raise CannotBuildError(f"pip for {arm.debian}, Python {version}: {run.stderr.strip()[-600:]}")


def _settle(root: Path) -> None:
    """Do what installation scripts would have done, as far as anything here needs it."""
    for name in ("proc", "sys", "dev", "tmp", "root", "tree", "etc"):
        (root / name).mkdir(exist_ok=True)
    shell = root / "usr/bin/sh"
    if not shell.exists():
        shell.symlink_to("dash")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\npi:x:1000:1000:pi:/tmp:/bin/sh\n", "utf-8")
    python = root / "usr/bin/python3"
    version = _python_version(root)
    if not python.exists():
        python.symlink_to(f"python{version}")
    # The same Python here writes the same bytecode; without it each emulated start would compile anew.
    if f"{sys.version_info.major}.{sys.version_info.minor}" == version:
        folders = [str(root / "usr/lib" / f"python{version}"), str(root / "usr/lib/python3"), str(root / SITE)]
        command = [sys.executable, "-m", "compileall", "-q", "-j", "2", "-s", str(root), "-p", "/"]
        command += ["--invalidation-mode", "unchecked-hash", *folders]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    try:
        print(build(ARMS[sys.argv[1]], Path(sys.argv[2]).resolve()))
    except CannotBuildError as error:
        sys.exit(f"cannot build: {error}")
