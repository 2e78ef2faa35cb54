"""What this machine has of what Tilewright needs, what is missing, and the command that fixes it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from enum import StrEnum

from tilewright.compiler.tools import REINSTALL, TOOLKIT, find_tool, known_archs, mixed
from tilewright.errors import UsageError
from tilewright.gpu.telemetry import MIN_DRIVER, Gpu, find_gpu, torch_cuda
from tilewright.isolation.confinement import Isolation

SUPPORTED_PYTHON = ((3, 11), (3, 12))
PACKAGES = {"torch": "torch", "cuda-tile": "cuda.tile"}
"""The module of each package that a session imports."""
DISASSEMBLER = "pip install --force-reinstall nvidia-cuda-nvdisasm"
CONFINE = "from tilewright.isolation.confinement import confine; print(confine([], []).model_dump_json())"


class State(StrEnum):
    """How a finding stands."""

    OK = "ok"
    LIMITED = "limited"
    MISSING = "missing"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    state: State
    detail: str
    remedy: str = ""


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
    broken: dict[str, str] = field(default_factory=dict)
    """Why an installed package cannot be imported, or a tool not run, by its name; of `processes`, why none starts."""


def this_machine() -> Machine:
    """The facts of this machine."""
    versions = {name: _version(name) for name in (*PACKAGES, *TOOLKIT)}
    packages = {name: version for name, version in versions.items() if version is not None}
    return Machine(
        platform.system(), sys.version_info[:2], _git_version(), packages, find_tool("tileiras"), known_archs(),
        find_tool("nvdisasm"), torch_cuda(), find_gpu(), _broken(packages),
    )  # fmt: skip


def examine(machine: Machine) -> list[Finding]:
    """Judge the facts. What is only missing for speed on a GPU is `limited`: the `cpu` backend works without it."""
    return [_judged(*row) for row in _table(machine)]


def _judged(name: str, well: str, troubles: list[_Trouble]) -> Finding:
    trouble = next((one for one in troubles if one.there), None)
    if trouble is None:
        return Finding(name, State.OK, well)
    return Finding(name, trouble.state, trouble.detail, trouble.remedy)


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


def _broken(packages: dict[str, str]) -> dict[str, str]:
    commands = {name: [sys.executable, "-c", f"import {PACKAGES[name]}"] for name in PACKAGES if name in packages}
    tools = {"tileiras": find_tool("tileiras"), "nvdisasm": find_tool("nvdisasm")}
    commands |= {name: [path, "--version"] for name, path in tools.items() if path is not None}
    reading, writing = os.pipe()  # whose end would tell the supervisor that its server is gone
    thread = "import threading as t; one = t.Thread(target=int); one.start(); one.join()"
    supervisor = [sys.executable, "-I", "-m", "tilewright.isolation.supervisor"]
    commands["processes"] = [*supervisor, sys.executable, "-I", "-c", thread]
    try:
        return {name: why for name, command in commands.items() if (why := _why_it_fails(command, reading))}
    finally:
        os.close(reading)
        os.close(writing)


def _why_it_fails(command: list[str], reading: int) -> str:
    try:
        done = subprocess.run(command, stdin=reading, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return "" if done.returncode == 0 else (said[-1] if said else f"it ended with status {done.returncode}")


def confinement() -> Finding:
    """What the kernel enforces on a process that confines itself as workers do."""
    command = [sys.executable, "-I", "-c", CONFINE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        return Finding("workers", State.LIMITED, f"their confinement could not be tried: {done.stderr.strip()[-200:]}")
    found = Isolation.model_validate_json(done.stdout)
    return Finding("workers", State.LIMITED if found.unprotected else State.OK, f"confined by {found}")


@dataclass(frozen=True)
class _Trouble:
    """What may be wrong with a thing, and what mends it."""

    there: bool
    detail: str
    remedy: str = ""
    state: State = State.MISSING


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
            _Trouble(
                machine.system != "Linux", f"{machine.system} is not supported: isolation of kernels rests on Linux",
                "use Linux, WSL 2 on Windows, or a Linux machine over ssh",
            ),
        ]),
        ("processes", "those of a session can be started", [
            _Trouble(
                "processes" in broken, f"those of a session cannot be started: {broken.get('processes')}",
                "use a newer container runtime, or run the container with `--security-opt seccomp=unconfined`",
            ),
        ]),
        ("python", version, [
            _Trouble(
                machine.python not in SUPPORTED_PYTHON, f"{version} is not tested",
                "use Python 3.11 or 3.12: `uv venv --python 3.12`",
                State.MISSING if machine.python < SUPPORTED_PYTHON[0] else State.LIMITED,
            ),
        ]),
        ("git", machine.git or "", [
            _Trouble(not machine.git, "not found", "install it: `apt-get install git`"),
        ]),
        ("torch", f"{packages.get('torch')}, {build}", [
            *_of_package(machine, "torch"),
            _Trouble(
                machine.torch_cuda is None and gpu is not None,
                "it is built without CUDA, beside a GPU: only the cpu backend works",
                "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130",
                State.LIMITED,
            ),
        ]),
        ("cuda-tile", packages.get("cuda-tile", ""), _of_package(machine, "cuda-tile")),
        ("tileiras", f"{release}, {machine.tileiras}", [
            _Trouble(bool(conflict), conflict, REINSTALL),
            _Trouble(machine.tileiras is None, "the compiler is not there", REINSTALL),
            _Trouble(
                "tileiras" in broken, f"{machine.tileiras} does not run: {broken.get('tileiras')}", REINSTALL
            ),
            _Trouble(
                gpu is not None and bool(machine.archs) and gpu.arch not in machine.archs,
                f"{release} does not compile for {gpu.arch if gpu else ''}", REINSTALL,
            ),
        ]),
        ("nvdisasm", machine.nvdisasm or "", [
            _Trouble(machine.nvdisasm is None, "not found", DISASSEMBLER),
            _Trouble(
                "nvdisasm" in broken, f"{machine.nvdisasm} does not run: {broken.get('nvdisasm')}", DISASSEMBLER
            ),
        ]),
        ("GPU", f"{gpu.name}, {gpu.arch}" if gpu else "", [
            _Trouble(
                gpu is None, "no driver shows one: the cpu backend interprets kernels and models latency",
                "if there is one, install its driver: `apt-get install nvidia-driver-580-open`, or run the container "
                "with --gpus all",
                State.LIMITED,
            ),
        ]),
        ("driver", gpu.driver if gpu else "", [
            _Trouble(gpu is None, "none", state=State.LIMITED),
            _Trouble(
                gpu is not None and not gpu.driver_is_recent,
                f"{gpu.driver if gpu else ''} is too old for CUDA 13, which cuTile kernels are launched with",
                f"install release {MIN_DRIVER} or later: `apt-get install nvidia-driver-{MIN_DRIVER}-open`; or use "
                "backend cpu",
            ),
        ]),
    ]  # fmt: skip


def _of_package(machine: Machine, name: str) -> list[_Trouble]:
    version, why = machine.packages.get(name), machine.broken.get(name)
    return [
        _Trouble(version is None, "not installed", f"pip install {name}"),
        _Trouble(bool(why), f"{version} cannot be imported: {why}", f"pip install --force-reinstall {name}"),
    ]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_version() -> str | None:
    if shutil.which("git") is None:
        return None
    return subprocess.run(["git", "--version"], capture_output=True, text=True, check=False).stdout.strip() or None
