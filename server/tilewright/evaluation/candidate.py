"""The candidate inside its worker: importing it, calling and timing it, and saying how it failed."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch

from tilewright.compiler.texts import raised
from tilewright.evaluation.results import Status
from tilewright.evaluation.tensors import tensors_of
from tilewright.frontends.protocol import imported_runtimes

MESSAGE_LIMIT = 1500
GIVEN = 200
GIVEN_PATH = f"/proc/self/fd/{GIVEN}"
"""File descriptor of the folder that holds a worker's candidate, and its path there. By way of it a candidate lies at
the same place in every worker, which compilers write into their results, and yet no worker sees another's."""
WARM_UP_CALLS = 1
"""Before those that are timed: it finds what is cached by address."""


class CandidateFailure(Exception):
    """The candidate failed: `status` and a message that names the cause and the candidate's own line."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


def give(folder: Path) -> None:
    """Make a folder visible to this process at `GIVEN_PATH`, as far as it may read it."""
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    os.dup2(opened, GIVEN, inheritable=False)
    os.close(opened)


class Candidate:
    """The entry point of a snapshot. `outputs` names the arguments that hold its results, if it returns none."""

    def __init__(self, folder: Path, paths: list[Path], module: str, function: str, outputs: list[str]) -> None:
        """Import `module` from the snapshot's task folder. Raises `CandidateFailure` where that fails."""
        self.folder = folder
        self._outputs = outputs
        self._places = [str(folder), *map(os.path.normpath, paths)]
        self._root = os.path.commonpath(self._places)
        sys.path[:0] = self._places
        try:
            loaded = importlib.import_module(module)
        except SyntaxError as error:
            where = f"{Path(error.filename or '?').name}:{error.lineno}"
            raise CandidateFailure(Status.SYNTAX_ERROR, f"{where}: {error.msg}: {(error.text or '').strip()}") from None
        except BaseException as error:
            raise self._failure(error, Status.IMPORT_ERROR) from None
        origin = str(getattr(loaded, "__file__", ""))
        if not self._is_ours(origin):
            raise CandidateFailure(
                Status.IMPORT_ERROR, f"importing {module!r} gave {origin or 'a built-in module'}; rename {module}.py"
            )
        entry = getattr(loaded, function, None)
        if not callable(entry):
            raise CandidateFailure(Status.IMPORT_ERROR, f"{module}.py defines no function {function!r}")
        self._entry: Callable[..., Any] = entry

    def __call__(self, arguments: dict[str, Any]) -> list[torch.Tensor]:
        """Call the entry point and give its outputs in order. Raises `CandidateFailure`."""
        try:
            result = self._entry(**arguments)
        except BaseException as error:
            raise self._failure(error, Status.RAISED) from None
        return self._collect(result, arguments)

    def forget(self) -> None:
        """Undo the import, so that another snapshot's modules of the same names can be imported."""
        for name, module in list(sys.modules.items()):
            origin = getattr(module, "__file__", None)
            if origin and self._is_ours(origin):
                del sys.modules[name]
        sys.path[:] = [place for place in sys.path if place not in self._places]
        del self._entry
        gc.collect()  # what a module registered with torch goes with it

    def _is_ours(self, origin: str) -> bool:
        """Whether a module's file lies where the candidate's modules do."""
        return origin.startswith(tuple(f"{place}/" for place in self._places))

    def wait(self) -> None:
        """Wait for the device; errors of kernels launched earlier surface here. Raises `CandidateFailure`."""
        try:
            torch.cuda.synchronize()
        except Exception as error:
            raise self._failure(error, Status.RAISED) from None

    def _collect(self, result: Any, arguments: dict[str, Any]) -> list[torch.Tensor]:
        if self._outputs:
            return [arguments[name] for name in self._outputs]
        try:
            return tensors_of(result)
        except TypeError as error:
            raise CandidateFailure(
                Status.NO_OUTPUT,
                f"the entry point {error}; it must return its output tensors, or the task must name the arguments that "
                "hold them in `outputs`",
            ) from None

    def _failure(self, error: BaseException, status: Status) -> CandidateFailure:
        if any(isinstance(error, runtime.compile_errors) for runtime in imported_runtimes()):
            status = Status.COMPILE_ERROR
        text = f"called sys.exit({error.code!r})" if isinstance(error, SystemExit) else raised(error)
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if self._is_ours(frame.filename)]
        if own:
            text += f"\n  at {own[-1].filename}:{own[-1].lineno}: {own[-1].line}"
        if isinstance(error, ModuleNotFoundError):
            text += (
                "\n  (a candidate comes with the committed files alone: a new module has to be committed first, and a "
                "submodule checked out: `git submodule update --init`)"
            )
        text = text.replace(f"{self._root}/", "")
        if len(text) > MESSAGE_LIMIT:
            text = f"{text[: MESSAGE_LIMIT // 2]}\n...\n{text[-MESSAGE_LIMIT // 2 :]}"
        return CandidateFailure(status, text)


def timed(
    candidate: Candidate, arguments: dict[str, Any], calls: int, written: Collection[str]
) -> tuple[list[float], list[torch.Tensor]]:
    """The ms of each of so many calls by device events, and what the last one gave. Each begins with a cold cache, and
    with the values that it was given in the arguments that are `written` to."""
    kept = {name: _copied(arguments[name]) for name in written}
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    other = torch.zeros(2 * cache // 4, dtype=torch.float32, device="cuda")
    events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
    outputs: list[torch.Tensor] = []
    for _ in range(WARM_UP_CALLS + calls):
        for name, value in kept.items():
            arguments[name].copy_(value)
        outputs = []  # the last call's, before this one's are made
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        other.sum()  # a read, so that no write-back is left for the call to pay for
        start.record()
        outputs = candidate(arguments)
        end.record()
        events.append((start, end))
    candidate.wait()
    return [float(start.elapsed_time(end)) for start, end in events[WARM_UP_CALLS:]], outputs


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def copy_outputs(outputs: list[torch.Tensor], boxes: list[torch.Tensor]) -> None:
    """Hand outputs over into the referee's boxes. Raises `CandidateFailure` where they are not like these."""
    if len(outputs) != len(boxes):
        raise CandidateFailure(Status.NO_OUTPUT, f"{len(outputs)} outputs instead of {len(boxes)}")
    for output, box in zip(outputs, boxes, strict=True):
        if output.shape != box.shape:
            raise CandidateFailure(Status.WRONG_SHAPE, f"shape {tuple(output.shape)} instead of {tuple(box.shape)}")
        if output.dtype != box.dtype:
            raise CandidateFailure(Status.WRONG_DTYPE, f"dtype {output.dtype} instead of {box.dtype}")
        if output.device != box.device:
            raise CandidateFailure(
                Status.NO_OUTPUT,
                f"an output is on {output.device}; the caller's data is on {box.device}, and its results must be",
            )
        box.copy_(output)
