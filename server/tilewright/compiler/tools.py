"""Where CUDA's programs are: the wheels' first, then those on PATH, then CUDA's own folder."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

REINSTALL = (
    "pip install --force-reinstall --no-deps "
    "'nvidia-cuda-tileiras==13.4.*' 'nvidia-cuda-nvcc==13.4.*' 'nvidia-cuda-crt==13.4.*' 'nvidia-nvvm==13.4.*'"
)
"""The command that gives all parts of the compiler, of one release."""
TOOLKIT = ("nvidia-cuda-tileiras", "nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm")


class MissingTool(Exception):
    """A program of the compiler is not there, or cannot work; the text says what to do."""


def mixed(releases: Mapping[str, str]) -> str:
    """Why these wheels of the compiler, with their releases, do not work together; empty if they do."""
    if len({tuple(release.split(".")[:2]) for release in releases.values()}) < 2:
        return ""
    return f"wheels of different releases: {', '.join(f'{name} {release}' for name, release in releases.items())}"


def find_tool(name: str) -> str | None:
    """Path of a program of CUDA's, or None."""
    try:
        import nvidia.cu13

        found = shutil.which(name, path=str(Path(next(iter(nvidia.cu13.__path__))) / "bin"))
    except ImportError:
        found = None
    return found or shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")


def need_tool(name: str) -> str:
    """Path of tileiras, the Tile IR compiler, or nvdisasm, which turns a cubin into SASS. Raises `MissingTool`."""
    tool = find_tool(name)
    if tool is None:
        remedy = REINSTALL if name == "tileiras" else f"pip install nvidia-cuda-{name}"
        raise MissingTool(f"{name} is not there, so no kernel can be looked at; fix it with: {remedy}")
    return tool


def need_compiler() -> None:
    """Raises `MissingTool` unless kernels can be compiled and disassembled here: none is blamed for its compiler."""
    need_tool("nvdisasm")
    tool, releases = need_tool("tileiras"), {}
    for name in TOOLKIT:
        with contextlib.suppress(metadata.PackageNotFoundError):
            releases[name] = metadata.version(name)
    if why := mixed(releases) or ("" if compiler_version() else f"{tool} does not run"):
        raise MissingTool(f"tileiras cannot compile a kernel here: {why}; fix it with: {REINSTALL}")


@cache
def _said(option: str) -> str:
    """What the tileiras found here says when it is asked; empty where it cannot be."""
    try:
        command = [find_tool("tileiras") or "tileiras", option]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def known_archs() -> frozenset[str]:
    """The architectures that tileiras compiles for; empty where it cannot be asked."""
    return frozenset(re.findall(r"=(sm_\d+)", _said("--help")))


def compiler_version() -> str:
    """What tileiras says of its release; empty where it cannot be asked."""
    return _said("--version").strip()
