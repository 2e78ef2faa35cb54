"""What this machine has of what Tilewright needs, what is missing, and the command that fixes it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from dataclasses import dataclass, field

from tilewright.compiler.tools import REINSTALL, TOOLKIT, find_tool, known_archs, mixed
from tilewright.errors import UsageError
from tilewright.gpu.telemetry import MIN_DRIVER, Gpu, find_gpu, torch_cuda
from tilewright.isolation.confinement import Isolation
from tilewright.text import Line, Mark

SUPPORTED_PYTHON = ((3, 11), (3, 12))
PACKAGES = {"torch": "torch", "cuda-tile": "cuda.tile"}
"""The module of each package that a session imports."""
DISASSEMBLER = "pip install --force-reinstall nvidia-cuda-nvdisasm"
WORKER = """import threading
thread = threading.Thread(target=int)
thread.start()
thread.join()
from tilewright.isolation.confinement import confine
print(confine([], []).model_dump_json())
"""
"""What a worker needs of the kernel: a thread, and its confinement."""


@dataclass(frozen=True)
class Machine:
    """The facts that `examine` judges."""

    system: str
    python: tuple[int, int]
    git: str | None
    packages: dict[str, str]
    tileiras: str | None
    archs: frozenset[str]
    nvdisasm: str | None
    torch_cuda: str | None
    gpu: Gpu | None
    isolation: Isolation | None
    """What the kernel enforces on a worker; None where none can be started."""
    broken: dict[str, str] = field(default_factory=dict)
    """Why an installed package cannot be imported, or a tool or worker not run, by its name."""


def this_machine() -> Machine:
    """The facts of this machine."""
    versions = {name: _version(name) for name in (*PACKAGES, *TOOLKIT)}
    packages = {name: version for name, version in versions.items() if version is not None}
    tools = {name: find_tool(name) for name in ("tileiras", "nvdisasm")}
    commands = {"git": ["git", "--version"]}
    commands |= {name: [sys.executable, "-c", f"import {PACKAGES[name]}"] for name in PACKAGES if name in packages}
    commands |= {name: [path, "--version"] for name, path in tools.items() if path is not None}
    python = [sys.executable, "-I"]
    commands["workers"] = [*python, "-m", "tilewright.isolation.supervisor", *python, "-c", WORKER]
    printed, broken = _run(commands)
    return Machine(
        platform.system(), sys.version_info[:2], printed.get("git", "").strip() or None, packages,
        tools["tileiras"], known_archs(), tools["nvdisasm"], torch_cuda(), find_gpu(),
        None if "workers" in broken else Isolation.model_validate_json(printed["workers"]), broken,
    )  # fmt: skip


def examine(machine: Machine) -> list[Line]:
    """Judge the facts. What is only missing for speed on a GPU is a warning: the `cpu` backend works without it."""
    lines = []
    for name, well, troubles in _table(machine):
        found = [Line(name, mark, detail, remedy) for there, mark, detail, remedy in troubles if there]
        lines.append(found[0] if found else Line(name, Mark.OK, well))
    return lines


def resolutions() -> list[str]:
    """What the clock resolves on this machine's GPU, in words. Raises `UsageError`."""
    from tilewright.gpu.lease import GpuBusy
    from tilewright.referee.clock import resolved
    from tilewright.referee.replayer import Fault, Replayer, ReplayerGone, exclusive_gpu

    try:
        with exclusive_gpu(), Replayer() as replayer:
            return [*resolved(replayer)]
    except (Fault, GpuBusy, ReplayerGone) as error:
        raise UsageError(f"{error}; `tilewright doctor` says what is missing") from None


def _run(commands: dict[str, list[str]]) -> tuple[dict[str, str], dict[str, str]]:
    """What each command prints, and why some fail."""
    printed, broken = {}, {}
    reading, writing = os.pipe()  # whose end would tell the supervisor that its server is gone
    try:
        for name, command in commands.items():
            try:
                done = subprocess.run(command, stdin=reading, capture_output=True, text=True, timeout=120, check=False)
            except (OSError, subprocess.SubprocessError) as error:
                broken[name] = str(error)
                continue
            printed[name] = done.stdout
            if done.returncode:
                said = (done.stderr.strip() or done.stdout.strip()).splitlines()
                broken[name] = said[-1] if said else f"it ended with status {done.returncode}"
    finally:
        os.close(reading)
        os.close(writing)
    return printed, broken


_Trouble = tuple[bool, Mark, str, str]
"""Whether something is wrong with a thing, how bad that is, what it is, and what mends it."""


def _table(machine: Machine) -> list[tuple[str, str, list[_Trouble]]]:
    """Each thing's name, what is said of it where nothing is wrong, and its troubles, the first of which counts."""
    gpu, broken, packages = machine.gpu, machine.broken, machine.packages
    version = ".".join(map(str, machine.python))
    releases = {name: packages[name] for name in TOOLKIT if name in packages}
    release = releases.get("nvidia-cuda-tileiras", "from a CUDA toolkit")
    conflict = mixed(releases)
    build = f"CUDA {machine.torch_cuda}" if machine.torch_cuda else "CPU only"
    return [
        ("system", "Linux", [
            (
                machine.system != "Linux", Mark.FAIL,
                f"{machine.system} is not supported: isolation of kernels rests on Linux",
                "use Linux, WSL 2 on Windows, or a Linux machine over ssh",
            ),
        ]),
        ("workers", f"confined by {machine.isolation}", [
            (
                machine.isolation is None, Mark.FAIL, f"none can be started: {broken.get('workers')}",
                "use a newer container runtime, or run the container with `--security-opt seccomp=unconfined`",
            ),
            (
                bool(machine.isolation and machine.isolation.unprotected), Mark.WARN,
                f"confined by {machine.isolation}", "",
            ),
        ]),
        ("python", version, [
            (
                machine.python not in SUPPORTED_PYTHON,
                Mark.FAIL if machine.python < SUPPORTED_PYTHON[0] else Mark.WARN,
                f"{version} is not tested", "use Python 3.11 or 3.12: `uv venv --python 3.12`",
            ),
        ]),
        ("git", machine.git or "", [(not machine.git, Mark.FAIL, "not found", "install it: `apt-get install git`")]),
        ("torch", f"{packages.get('torch')}, {build}", [
            *_of_package(machine, "torch"),
            (
                machine.torch_cuda is None and gpu is not None, Mark.WARN,
                "it is built without CUDA, beside a GPU: only the cpu backend works",
                "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130",
            ),
        ]),
        ("cuda-tile", packages.get("cuda-tile", ""), _of_package(machine, "cuda-tile")),
        ("tileiras", f"{release}, {machine.tileiras}", [
            (bool(conflict), Mark.FAIL, conflict, REINSTALL),
            *_of_tool(machine, "tileiras", machine.tileiras, REINSTALL),
            (
                gpu is not None and bool(machine.archs) and gpu.arch not in machine.archs, Mark.FAIL,
                f"{release} does not compile for {gpu.arch if gpu else ''}", REINSTALL,
            ),
        ]),
        ("nvdisasm", machine.nvdisasm or "", _of_tool(machine, "nvdisasm", machine.nvdisasm, DISASSEMBLER)),
        ("GPU", f"{gpu.name}, {gpu.arch}, driver {gpu.driver}" if gpu else "", [
            (
                gpu is None, Mark.WARN, "no driver shows one: the cpu backend interprets kernels and models latency",
                "if there is one, install its driver: `apt-get install nvidia-driver-580-open`, or run the container "
                "with --gpus all",
            ),
            (
                gpu is not None and not gpu.driver_is_recent, Mark.FAIL,
                f"driver {gpu.driver if gpu else ''} is too old for CUDA 13, which cuTile kernels are launched with",
                f"install release {MIN_DRIVER} or later: `apt-get install nvidia-driver-{MIN_DRIVER}-open`; or use "
                "backend cpu",
            ),
        ]),
    ]  # fmt: skip


def _of_package(machine: Machine, name: str) -> list[_Trouble]:
    version, why = machine.packages.get(name), machine.broken.get(name)
    return [
        (version is None, Mark.FAIL, "not installed", f"pip install {name}"),
        (bool(why), Mark.FAIL, f"{version} cannot be imported: {why}", f"pip install --force-reinstall {name}"),
    ]


def _of_tool(machine: Machine, name: str, path: str | None, remedy: str) -> list[_Trouble]:
    return [
        (path is None, Mark.FAIL, "not found", remedy),
        (name in machine.broken, Mark.FAIL, f"{path} does not run: {machine.broken.get(name)}", remedy),
    ]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
