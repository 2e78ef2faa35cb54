"""What this machine has of what Tilewright needs, what is missing, and the command that fixes it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tilewright.compiler.tools import REINSTALL, TOOLKIT, find_nvdisasm, find_tileiras, known_archs, mixed
from tilewright.errors import UsageError
from tilewright.gpu.telemetry import MIN_DRIVER, Gpu, find_gpu, torch_cuda

SUPPORTED_PYTHON = ((3, 11), (3, 12))
PACKAGES = {"torch": "torch", "cuda-tile": "cuda.tile"}
"""The module of each package that a session imports."""


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
    pci_gpu: bool
    broken: dict[str, str] = field(default_factory=dict)
    """Why an installed package cannot be imported, or a tool not run, by its name; of `processes`, why none starts."""


def this_machine() -> Machine:
    """The facts of this machine."""
    versions = {name: _version(name) for name in (*PACKAGES, *TOOLKIT)}
    packages = {name: version for name, version in versions.items() if version is not None}
    return Machine(
        platform.system(), sys.version_info[:2], _git_version(), packages, find_tileiras(), known_archs(),
        find_nvdisasm(), torch_cuda(), find_gpu(), _gpu_on_the_bus(), _broken(packages),
    )  # fmt: skip


def examine(machine: Machine) -> list[Finding]:
    """Judge the facts. What is only missing for speed on a GPU is `limited`: the `cpu` backend works without it."""
    judges = (_system, _processes, _python, _git, _torch, _cuda_tile, _tileiras, _nvdisasm, _gpu, _driver)
    return [finding for judge in judges for finding in judge(machine)]


def protections() -> list[Finding]:
    """What keeps a candidate's code and an agent's processes out of a session, tried on this machine."""
    return [_confinement(), _memory()]


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
    tools = {"tileiras": find_tileiras(), "nvdisasm": find_nvdisasm()}
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


def _confinement() -> Finding:
    """A process that is confined as workers are tries what they may not do."""
    from tilewright.isolation.breakout import prove

    try:
        proof = prove()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return Finding("workers", State.LIMITED, f"their confinement could not be tried: {error}")
    outcome = f"a kernel's code can {', '.join(proof.succeeded)}" if proof.succeeded else "all were refused"
    detail = f"confined by {proof.isolation}; {proof} were tried: {outcome}"
    return Finding("workers", State.LIMITED if proof.succeeded else State.OK, detail)


def _memory() -> Finding:
    """A process that this one starts tries to read this one's memory, as an agent would read the server's."""
    reading = f"open('/proc/{os.getpid()}/mem', 'rb').close()"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", reading], capture_output=True, timeout=60, check=False)
    if done.returncode:
        return Finding("memory", State.OK, "a process that did not start server and referee cannot read their memory")
    return Finding(
        "memory", State.LIMITED, "a process of the same user can read the memory of server and referee, secrets too",
        "`sysctl kernel.yama.ptrace_scope=1`, which root may still do",
    )  # fmt: skip


def _system(machine: Machine) -> Iterator[Finding]:
    if machine.system == "Linux":
        yield Finding("system", State.OK, "Linux")
    else:
        yield Finding(
            "system", State.MISSING, f"{machine.system} is not supported: isolation of kernels rests on Linux",
            "use Linux, WSL 2 on Windows, or a Linux machine over ssh",
        )  # fmt: skip


def _processes(machine: Machine) -> Iterator[Finding]:
    if why := machine.broken.get("processes"):
        remedy = "use a newer container runtime, or run the container with `--security-opt seccomp=unconfined`"
        yield Finding("processes", State.MISSING, f"those of a session cannot be started: {why}", remedy)
    else:
        yield Finding("processes", State.OK, "those of a session can be started")


def _python(machine: Machine) -> Iterator[Finding]:
    shown = ".".join(map(str, machine.python))
    if machine.python in SUPPORTED_PYTHON:
        yield Finding("python", State.OK, shown)
    else:
        state = State.MISSING if machine.python < SUPPORTED_PYTHON[0] else State.LIMITED
        yield Finding("python", state, f"{shown} is not tested", "use Python 3.11 or 3.12: `uv venv --python 3.12`")


def _git(machine: Machine) -> Iterator[Finding]:
    if machine.git:
        yield Finding("git", State.OK, machine.git)
    else:
        yield Finding("git", State.MISSING, "not found", "install it: `apt-get install git`")


def _absent(machine: Machine, name: str) -> Finding | None:
    """What is wrong with a package that is missing or broken."""
    if name not in machine.packages:
        return Finding(name, State.MISSING, "not installed", f"pip install {name}")
    if why := machine.broken.get(name):
        remedy = f"pip install --force-reinstall {name}"
        return Finding(name, State.MISSING, f"{machine.packages[name]} cannot be imported: {why}", remedy)
    return None


def _torch(machine: Machine) -> Iterator[Finding]:
    if absent := _absent(machine, "torch"):
        yield absent
    elif machine.torch_cuda is None and (machine.gpu is not None or machine.pci_gpu):
        yield Finding(
            "torch", State.LIMITED, "it is built without CUDA, beside a GPU: only the cpu backend works",
            "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130",
        )  # fmt: skip
    else:
        build = f"CUDA {machine.torch_cuda}" if machine.torch_cuda else "CPU only"
        yield Finding("torch", State.OK, f"{machine.packages['torch']}, {build}")


def _cuda_tile(machine: Machine) -> Iterator[Finding]:
    yield _absent(machine, "cuda-tile") or Finding("cuda-tile", State.OK, machine.packages["cuda-tile"])


def _tileiras(machine: Machine) -> Iterator[Finding]:
    releases = {name: machine.packages[name] for name in TOOLKIT if name in machine.packages}
    release = releases.get("nvidia-cuda-tileiras", "from a CUDA toolkit")
    why = mixed(releases)
    if not why and machine.tileiras is None:
        why = "the compiler is not there"
    elif not why and "tileiras" in machine.broken:
        why = f"{machine.tileiras} does not run: {machine.broken['tileiras']}"
    elif not why and machine.gpu is not None and machine.archs and machine.gpu.arch not in machine.archs:
        why = f"{release} does not compile for {machine.gpu.arch}"
    yield (
        Finding("tileiras", State.MISSING, why, REINSTALL)
        if why
        else Finding("tileiras", State.OK, f"{release}, {machine.tileiras}")
    )


def _nvdisasm(machine: Machine) -> Iterator[Finding]:
    if machine.nvdisasm is not None and "nvdisasm" not in machine.broken:
        yield Finding("nvdisasm", State.OK, machine.nvdisasm)
    else:
        why = f"{machine.nvdisasm} does not run: {machine.broken['nvdisasm']}" if machine.nvdisasm else "not found"
        yield Finding("nvdisasm", State.MISSING, why, "pip install --force-reinstall nvidia-cuda-nvdisasm")


def _gpu(machine: Machine) -> Iterator[Finding]:
    if machine.gpu is not None:
        yield Finding("GPU", State.OK, f"{machine.gpu.name}, {machine.gpu.arch}")
    elif machine.pci_gpu:
        yield Finding(
            "GPU", State.LIMITED, "an NVIDIA GPU is on the bus, but no driver shows it: only the cpu backend works",
            "install the driver: `apt-get install nvidia-driver-580-open`, or run the container with --gpus all",
        )  # fmt: skip
    else:
        yield Finding("GPU", State.LIMITED, "none here: the cpu backend interprets kernels and models latency")


def _driver(machine: Machine) -> Iterator[Finding]:
    if machine.gpu is None:
        yield Finding("driver", State.LIMITED, "none")
    elif machine.gpu.driver_is_recent:
        yield Finding("driver", State.OK, machine.gpu.driver)
    else:
        yield Finding(
            "driver", State.MISSING,
            f"{machine.gpu.driver} is too old for CUDA 13, which cuTile kernels are launched with",
            f"install release {MIN_DRIVER} or later: `apt-get install nvidia-driver-{MIN_DRIVER}-open`; or use "
            "backend cpu",
        )  # fmt: skip


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_version() -> str | None:
    if shutil.which("git") is None:
        return None
    return subprocess.run(["git", "--version"], capture_output=True, text=True, check=False).stdout.strip() or None


def _gpu_on_the_bus() -> bool:
    """Whether an NVIDIA display controller is among the PCI devices."""
    for device in Path("/sys/bus/pci/devices").glob("*"):
        try:
            vendor, kind = (device / "vendor").read_text().strip(), (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == "0x10de" and kind.startswith("0x03"):
            return True
    return False
