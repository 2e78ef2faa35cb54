"""What this machine has of what Tilewright needs, what is missing, and the command that mends it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter

from tilewright.compiler.tools import REINSTALL, TOOLKIT, find_nvdisasm, find_tileiras, known_archs, mixed
from tilewright.files import storage_problem
from tilewright.gpu.telemetry import MIN_DRIVER, Gpu, find_gpu, torch_cuda
from tilewright.heads import state_folders, why_unwritable
from tilewright.ledger import Journal, LedgerError, read_entries
from tilewright.wire.record import Record

SUPPORTED_PYTHON = ((3, 11), (3, 12))
_MODULES = {"torch": "torch", "cuda-tile": "cuda.tile"}
SUPERVISOR = "tilewright.isolation.supervisor"
_NVIDIA_VENDOR = "0x10de"


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
    wanted = ("torch", "cuda-tile", "mcp", "triton", *TOOLKIT)
    packages = {name: version for name in wanted if (version := _version(name)) is not None}
    return Machine(
        system=platform.system(),
        python=(sys.version_info.major, sys.version_info.minor),
        git=_output(["git", "--version"]),
        packages=packages,
        tileiras=find_tileiras(),
        archs=known_archs(),
        nvdisasm=find_nvdisasm(),
        torch_cuda=torch_cuda(),
        gpu=find_gpu(),
        pci_gpu=_gpu_on_the_bus(),
        broken=_broken(packages),
    )


def _broken(packages: dict[str, str]) -> dict[str, str]:
    tried = {name: [sys.executable, "-c", f"import {module}"] for name, module in _MODULES.items() if name in packages}
    tools = {"tileiras": find_tileiras(), "nvdisasm": find_nvdisasm()}
    tried |= {name: [path, "--version"] for name, path in tools.items() if path is not None}
    reading, writing = os.pipe()  # whose end would tell the supervisor that its server is gone
    thread = "import threading as t; one = t.Thread(target=int); one.start(); one.join()"
    tried["processes"] = [sys.executable, "-I", "-m", SUPERVISOR, sys.executable, "-I", "-c", thread]
    try:
        return {name: why for name, command in tried.items() if (why := _why_it_fails(command, reading))}
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


def examine(machine: Machine) -> list[Finding]:
    """Judge the facts; what is only missing for speed on a GPU is `limited`, since the `cpu` backend works without."""
    return [
        _system(machine),
        _processes(machine),
        _python(machine),
        _git(machine),
        _torch(machine),
        *_compiler(machine),
        _gpu(machine),
        _driver(machine),
    ]


@dataclass(frozen=True)
class Protection:
    """What keeps a session's log honest on this machine, or what does not."""

    name: str
    holds: bool
    detail: str


def protections() -> list[Protection]:
    """What protects a session here, and what an agent that runs as the same user can still do."""
    return [*_of_the_ledger(), _of_workers(), *_of_processes(), _of_the_program(), _another_account()]


def _of_the_ledger() -> list[Protection]:
    why = why_unwritable()
    where = f"the journal's head is kept in {state_folders()[0]} too, and in the trailers of the session's commits"
    lost = f"heads are not kept outside: {why}; set TILEWRIGHT_STATE to a folder that this user can write"
    return [
        _of_the_chain(),
        Protection("outside head", not why, lost if why else where),
        Protection(
            "same user", False, "who knows where can edit journal, head, commits and table together, and consistently; "
            "`tilewright rerun` then still runs what the log claims",
        ),
    ]  # fmt: skip


def _of_the_chain() -> Protection:
    """Tried: a journal is written, and a record of it changed."""
    try:
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            path = Path(folder) / "journal.jsonl"
            journal = Journal(path, TypeAdapter(_Trial))
            journal.append(_Trial(text="before"))
            journal.close()
            path.write_text(path.read_text().replace("before", "after"))
            read_entries(path, TypeAdapter(_Trial))
    except LedgerError:
        return Protection(
            "journal", True, "hash-chained; a record that was changed, cut off or added is found and named"
        )
    except OSError as error:
        return Protection("journal", False, f"no journal could be tried: {storage_problem(error) or error}")
    return Protection("journal", False, "a changed record was not found: this installation is broken; install it again")


class _Trial(Record):
    text: str


def _of_workers() -> Protection:
    """Tried, not looked up: a process confined as workers are tries what they may not do."""
    from tilewright.isolation.breakout import prove

    try:
        proof = prove()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return Protection("workers", False, f"their confinement could not be tried: {error}")
    found = f"a kernel's code can {', '.join(proof.succeeded)}" if proof.succeeded else "all were refused"
    return Protection("workers", not proof.succeeded, f"confined by {proof.isolation}; {proof} were tried: {found}")


def _of_processes() -> list[Protection]:
    """Tried: a process that this one starts tries to read this one's memory, as an agent would the server's."""
    reading = f"open('/proc/{os.getpid()}/mem', 'rb').close()"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", reading], capture_output=True, timeout=60, check=False)
    closed = "a process that did not start server and referee was refused their memory"
    open_ = "a process of the same user can read the memory of server and referee, secrets too; `sysctl "
    return [
        Protection("server", False, "the same user can kill it; no record is lost, and the session is taken up again"),
        Protection(
            "memory",
            done.returncode != 0,
            closed if done.returncode else f"{open_}kernel.yama.ptrace_scope=1` forbids it to users other than root",
        ),
    ]


def _of_the_program() -> Protection:
    """Tried: each file of the program is opened for writing, and none is written."""
    folder = Path(__file__).parent
    if any(map(_can_be_edited, folder.rglob("*.py"))):
        return Protection("program", False, f"this user can edit the program itself, in {folder}")
    return Protection("program", True, f"this user cannot edit the program in {folder}")


def _can_be_edited(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
    except OSError:
        return os.access(path.parent, os.W_OK)  # who may replace it need not open it
    return True


def _another_account() -> Protection:
    return Protection(
        "another account", False, "would close these: a server under a user of its own that owns program, state folder "
        "and checkout, while the agent works as another user or in a container without them",
    )  # fmt: skip


def _system(machine: Machine) -> Finding:
    if machine.system == "Linux":
        return Finding("system", State.OK, "Linux")
    return Finding(
        "system", State.MISSING, f"{machine.system} is not supported: isolation of kernels rests on Linux",
        "use Linux, WSL 2 on Windows, or a Linux machine over ssh",
    )  # fmt: skip


def _processes(machine: Machine) -> Finding:
    if why := machine.broken.get("processes"):
        remedy = "use a newer container runtime, or run the container with `--security-opt seccomp=unconfined`"
        return Finding("processes", State.MISSING, f"those of a session cannot be started: {why}", remedy)
    return Finding("processes", State.OK, "those of a session can be started")


def _python(machine: Machine) -> Finding:
    shown = ".".join(map(str, machine.python))
    if machine.python in SUPPORTED_PYTHON:
        return Finding("python", State.OK, shown)
    state = State.MISSING if machine.python < SUPPORTED_PYTHON[0] else State.LIMITED
    return Finding("python", state, f"{shown} is not tested", "use Python 3.11 or 3.12: `uv venv --python 3.12`")


def _git(machine: Machine) -> Finding:
    if machine.git:
        return Finding("git", State.OK, machine.git)
    return Finding("git", State.MISSING, "not found", "install it: `apt-get install git`")


def _torch(machine: Machine) -> Finding:
    version = machine.packages.get("torch")
    if version is None:
        return Finding("torch", State.MISSING, "not installed", "pip install torch")
    if why := machine.broken.get("torch"):
        remedy = "pip install --force-reinstall torch"
        return Finding("torch", State.MISSING, f"{version} cannot be imported: {why}", remedy)
    if machine.torch_cuda:
        return Finding("torch", State.OK, f"{version}, CUDA {machine.torch_cuda}")
    if machine.gpu is not None or machine.pci_gpu:
        return Finding(
            "torch", State.LIMITED, f"{version} is built without CUDA, beside a GPU: only the cpu backend works",
            "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130",
        )  # fmt: skip
    return Finding("torch", State.OK, f"{version}, CPU only")


def _compiler(machine: Machine) -> list[Finding]:
    version = machine.packages.get("cuda-tile")
    if version is None:
        return [Finding("cuda-tile", State.MISSING, "not installed", "pip install cuda-tile")]
    why = machine.broken.get("cuda-tile")
    found = [
        Finding(
            "cuda-tile",
            State.MISSING,
            f"{version} cannot be imported: {why}",
            "pip install --force-reinstall cuda-tile",
        )
        if why
        else Finding("cuda-tile", State.OK, version)
    ]
    releases = {name: machine.packages[name] for name in TOOLKIT if name in machine.packages}
    if different := mixed(releases):
        found.append(Finding("tileiras", State.MISSING, different, REINSTALL))
    elif machine.tileiras is None:
        found.append(Finding("tileiras", State.MISSING, "the compiler is not there", REINSTALL))
    elif why := machine.broken.get("tileiras"):
        found.append(Finding("tileiras", State.MISSING, f"{machine.tileiras} does not run: {why}", REINSTALL))
    elif machine.gpu is not None and machine.archs and machine.gpu.arch not in machine.archs:
        release = releases.get("nvidia-cuda-tileiras", machine.tileiras)
        found.append(
            Finding("tileiras", State.MISSING, f"{release} does not compile for {machine.gpu.arch}", REINSTALL)
        )
    else:
        release = releases.get("nvidia-cuda-tileiras", "from a CUDA toolkit")
        found.append(Finding("tileiras", State.OK, f"{release}, {machine.tileiras}"))
    if machine.nvdisasm is None:
        found.append(Finding("nvdisasm", State.MISSING, "not found", "pip install nvidia-cuda-nvdisasm"))
    elif why := machine.broken.get("nvdisasm"):
        remedy = "pip install --force-reinstall nvidia-cuda-nvdisasm"
        found.append(Finding("nvdisasm", State.MISSING, f"{machine.nvdisasm} does not run: {why}", remedy))
    else:
        found.append(Finding("nvdisasm", State.OK, machine.nvdisasm))
    return found


def _gpu(machine: Machine) -> Finding:
    if machine.gpu is not None:
        return Finding("GPU", State.OK, f"{machine.gpu.name}, {machine.gpu.arch}")
    if machine.pci_gpu:
        return Finding(
            "GPU", State.LIMITED, "an NVIDIA GPU is on the bus, but no driver shows it: only the cpu backend works",
            "install the driver: `apt-get install nvidia-driver-580-open`, or run the container with --gpus all",
        )  # fmt: skip
    return Finding("GPU", State.LIMITED, "none here: the cpu backend interprets kernels and models latency")


def _driver(machine: Machine) -> Finding:
    if machine.gpu is None:
        return Finding("driver", State.LIMITED, "none")
    if machine.gpu.driver_is_recent:
        return Finding("driver", State.OK, machine.gpu.driver)
    return Finding(
        "driver", State.MISSING, f"{machine.gpu.driver} is too old for CUDA 13, which cuTile kernels are launched with",
        f"install release {MIN_DRIVER} or later: `apt-get install nvidia-driver-{MIN_DRIVER}-open`; or use "
        "backend cpu",
    )  # fmt: skip


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _output(command: list[str]) -> str | None:
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else None


def _gpu_on_the_bus() -> bool:
    for device in Path("/sys/bus/pci/devices").glob("*"):
        try:
            vendor = (device / "vendor").read_text().strip()
            kind = (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == _NVIDIA_VENDOR and kind.startswith("0x03"):
            return True
    return False
