"""The referee's side of a dump: what was compiled before is looked up, the rest compiled in a clean process.

A candidate's worker hands over bytecode and text; whatever is made of them comes from a process without its code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tilewright.compiler.assembling import Lowered
from tilewright.compiler.compilation import Compilation
from tilewright.compiler.store import CompilationStore
from tilewright.evaluation.caches import compiler_variables
from tilewright.evaluation.compiling import cpus
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import Status
from tilewright.isolation.process import spawned, worker_environment
from tilewright.roofline.model import HostWork
from tilewright.wire.channel import Message
from tilewright.wire.record import misfit

MOST_AXES = 16
"""Of a tensor that a kernel is launched with."""
OVERHEAD_S = 30.0
"""For one compile, over its own limit: disassembly, and waiting for a processor."""


@dataclass(frozen=True)
class Launched:
    """A kernel that a call launches, lowered for one architecture, and its first grid and tensors' shapes."""

    lowered: Lowered
    grid: list[int]
    shapes: dict[str, list[int]]


def launched(reply: Message, bytecodes: list[bytearray], archs: list[str]) -> list[Launched]:
    """A worker's answer to `dump` for these architectures. Raises `WorkerFailure` where it is none."""
    try:
        found = []
        for described, bytecode in zip(reply["kernels"], bytecodes, strict=True):
            grid = [int(extent) for extent in described.pop("grid")]
            shapes = {
                str(name): [int(extent) for extent in shape] for name, shape in described.pop("shapes", {}).items()
            }
            lowered = Lowered(**described, bytecode=bytes(bytecode))
            lowered.failed("")  # its texts and hints are of the right types
            if any(len(shape) > MOST_AXES or not 0 <= min(shape, default=0) <= max(shape, default=0) < 2**63
                   for shape in shapes.values()):  # fmt: skip
                raise ValueError(f"shapes {shapes}")
            if lowered.frontend not in ("cutile", "triton") or not isinstance(lowered.options, dict):
                raise ValueError(f"frontend {lowered.frontend!r}")
            if not (isinstance(lowered.error, str) and lowered.arch in archs and lowered.opt_level in range(4)):
                raise ValueError(f"-O{lowered.opt_level} for {lowered.arch!r}")
            found.append(Launched(lowered, grid, shapes))
        return found
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WorkerFailure(Status.CRASHED, f"the process described its kernels wrongly: {misfit(error)}") from None


def operations(reply: Message) -> list[HostWork]:
    """A worker's answer to `dump` of a torch task. Raises `WorkerFailure` where it is none."""
    try:
        return [HostWork.model_validate(described) for described in reply["operations"]]
    except (KeyError, TypeError, ValidationError) as error:
        raise WorkerFailure(Status.CRASHED, f"the process described its operations wrongly: {misfit(error)}") from None


def compile_all(
    sources: list[Lowered],
    store: CompilationStore,
    folder: Path,
    compile_s: float,
    deadline: float,
    tell: Callable[[str], None],
) -> list[Compilation]:
    """Compile each source, in `compile_s` seconds at most, as many at a time as there are processors.

    `deadline` (monotonic seconds) bounds it all. A compile that ran out of time is not kept, since the next might not.
    Raises `WorkerFailure` where the compiling process fails.
    """
    keys = [source.key for source in sources]
    found: dict[str, Compilation] = {}
    for key in dict.fromkeys(keys):
        if (known := store.load(key)) is not None:
            found[key] = known
    missing = {key: source for key, source in zip(keys, sources, strict=True) if key not in found}
    if missing:
        tell(f"compiling {len(missing)} of {len(sources)} kernels" if len(sources) > 1 else "compiling one kernel")
        rounds = math.ceil(len(missing) / cpus())
        with _process(folder, deadline) as process:
            reply = process.request(
                "compile",
                rounds * (compile_s + OVERHEAD_S),
                [source.bytecode for source in missing.values()],
                kernels=[_described(source) for source in missing.values()],
                compile_s=compile_s,
            )
        for key, made in zip(missing, _read(reply[1], len(missing)), strict=True):
            found[key] = made
            if not made.timed_out:
                store.save(key, made)
    return [found[key] for key in keys]


def hand_over(kernels: list[Launched], made: list[Compilation], into: Path) -> list[dict[str, Any]]:
    """Write each compilation to a file of `into`, since all of them are too long for a frame; what is known of each."""
    into.mkdir(mode=0o700, parents=True, exist_ok=True)
    listed = []
    for kernel, one in zip(kernels, made, strict=True):
        handle, name = tempfile.mkstemp(suffix=".json", dir=into)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(one.model_dump_json())
        listed.append({"grid": kernel.grid, "shapes": kernel.shapes, "file": Path(name).name})
    return listed


def _described(source: Lowered) -> dict[str, Any]:
    described = dataclasses.asdict(source)
    del described["bytecode"]
    return described


def _read(buffers: list[bytearray], wanted: int) -> list[Compilation]:
    try:
        found = [Compilation.model_validate_json(bytes(buffer)) for buffer in buffers]
    except ValidationError as error:
        raise WorkerFailure(Status.CRASHED, f"the compiling process answered wrongly: {misfit(error)}") from None
    if len(found) != wanted:
        raise WorkerFailure(Status.CRASHED, f"the compiling process answered {len(found)} of {wanted} requests")
    return found


@contextlib.contextmanager
def _process(folder: Path, deadline: float) -> Iterator[WorkerHandle]:
    scratch = Path(tempfile.mkdtemp(prefix="compiling-", dir=folder))
    environment = worker_environment(scratch, compiler_variables(scratch))
    started = spawned("tilewright.evaluation.compiling", [str(os.getpid())], environment, scratch)
    process = WorkerHandle(started, scratch)
    process.label, process.deadline = "compiler", deadline
    try:
        yield process
    finally:
        process.close()
