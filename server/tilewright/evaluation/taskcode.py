"""A task's own `task.py`, run in the referee: inputs from seeds, the float64 reference, and the work."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Mapping
from numbers import Real
from typing import Any

import torch

from tilewright.evaluation.tensors import same_bytes, tensors_of
from tilewright.gpu.specs import RATES
from tilewright.task import Backend, Case, Task, TaskError, Work, case_label

Inputs = dict[str, Any]
CACHE_BYTES = 4 * 2**30
SMALL_BYTES = {Backend.CPU: 1 << 20, Backend.CUDA: 1 << 30}
"""Of inputs on which a reference runs faster than torch learns to do without their values, which takes over a second
once."""
CONSTANT_SEED = 1
"""Of the values of inputs that a task calls constant."""


class TaskCode:
    """The functions of a protected `task.py`, on the referee's device."""

    FUNCTIONS: tuple[str, ...] = "make_inputs", "reference", "work"
    takes_float64 = True
    """Whether the reference can be called with inputs of another dtype than the task's."""

    def __init__(self, task: Task, backend: Backend) -> None:
        """Import `task.py`. Raises `TaskError` where it fails or lacks one of its functions."""
        self.task = task
        self.device = "cuda" if backend is Backend.CUDA else "cpu"
        self._cached: dict[tuple[str, int], Inputs] = {}
        self._constant: dict[str, Inputs] = {}
        path = task.folder / "task.py"
        sys.path[:0] = [str(task.folder), *(str(task.folder / extra) for extra in task.file.python_path)]
        spec = importlib.util.spec_from_file_location(f"task_{task.name}", path)
        assert spec is not None and spec.loader is not None
        self._module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = self._module  # dataclasses look their module up there
        try:
            spec.loader.exec_module(self._module)
        except Exception as error:
            raise TaskError(f"{path}: cannot be imported: {type(error).__name__}: {error}") from error
        for name in self.FUNCTIONS:
            if not callable(getattr(self._module, name, None)):
                raise TaskError(f"{path}: defines no function {name}; a task needs {', '.join(self.FUNCTIONS)}")

    def start(self) -> list[int]:
        """Start the processes that the reference runs in, if it needs any; their PIDs."""
        return []

    def end(self) -> None:
        """End the processes that the reference runs in."""

    def inputs(self, case: Case, seed: int) -> Inputs:
        """The keyword arguments of a case, drawn from `seed` on the referee's device."""
        generator = torch.Generator(device=self.device)
        generator.manual_seed(seed)
        return self.drawn(case, generator)

    def drawn(self, case: Case, generator: torch.Generator) -> Inputs:
        """The same, from the present state of `generator`."""
        made = self._call("make_inputs", case, case, generator)
        if not isinstance(made, dict) or not all(isinstance(name, str) for name in made):
            raise TaskError(f"task.py: make_inputs must return a dict of arguments by name, not {type(made).__name__}")
        for name, value in made.items():
            if not isinstance(value, torch.Tensor | int | float | str | bool | None):
                raise TaskError(
                    f"task.py: make_inputs: argument {name!r} is a {type(value).__name__}; give tensors, numbers, "
                    "strings, bools or None"
                )
            if isinstance(value, torch.Tensor) and value.device.type != self.device:
                raise TaskError(
                    f"task.py: make_inputs: argument {name!r} is on {value.device}; make tensors on generator.device"
                )
        if missing := set(self.task.file.constant) - set(made):
            raise TaskError(
                f"task.toml: constant names {sorted(missing)[0]!r}, and make_inputs gives no such argument; it gives "
                f"{', '.join(made)}"
            )
        return made | self._constants(case)

    def _constants(self, case: Case) -> Inputs:
        """The inputs that the task calls constant, with the values of one seed."""
        if not self.task.file.constant:
            return {}
        key = case_label(case)
        if key not in self._constant:
            self._constant[key] = {}  # for the call below
            drawn = self.inputs(case, CONSTANT_SEED)
            self._constant[key] = {name: drawn[name] for name in self.task.file.constant}
        return self._constant[key]

    def constants_of(self, inputs: Inputs) -> Inputs:
        """Those of the inputs that the task calls constant."""
        return {name: inputs[name] for name in self.task.file.constant}

    def cached_inputs(self, case: Case, seed: int) -> Inputs:
        """The same, kept for the next call; for inputs that need not be secret."""
        key = (case_label(case), seed)
        if key not in self._cached:
            made = self.inputs(case, seed)
            held = sum(tensor_bytes(inputs) for inputs in self._cached.values())
            if held + tensor_bytes(made) > CACHE_BYTES:
                self._cached.clear()
            self._cached[key] = made
        return self._cached[key]

    def expected(self, case: Case, inputs: Inputs, dtype: torch.dtype | None = torch.float64) -> list[torch.Tensor]:
        """The reference's outputs computed on floating-point inputs raised to `dtype`, or as they are if it is None.
        8-bit floats, which have next to no arithmetic, come in float32 where inputs are raised. `inputs` are left as
        they are."""
        outputs = self._outputs(case, {name: _raised(value, dtype) for name, value in inputs.items()})
        return [_raised(one, torch.float32) if dtype and one.element_size() == 1 else one for one in outputs]

    def contract(self, case: Case, inputs: Inputs) -> list[torch.Tensor]:
        """Empty tensors of the shapes and dtypes that the outputs must have: the reference's, on these inputs."""
        small = tensor_bytes(inputs) <= SMALL_BYTES[Backend(self.device)]
        outputs = None if small else self._shapes(case, inputs)
        if outputs is None:
            try:
                outputs = self._outputs(case, {name: _copied(value) for name, value in inputs.items()})
            except TaskError:  # 8-bit floats have shapes and next to no arithmetic
                outputs = self._shapes(case, inputs) if small else None
                if outputs is None:
                    raise
        return [torch.empty(output.shape, dtype=output.dtype, device=self.device) for output in outputs]

    def _shapes(self, case: Case, inputs: Inputs) -> list[torch.Tensor] | None:
        """The reference's outputs without values; None for a reference that looks at values, which has to run."""
        from torch._subclasses.fake_tensor import FakeTensorMode  # its first use imports torch's compiler

        with contextlib.suppress(Exception), FakeTensorMode() as fake:
            shaped = {
                name: fake.from_tensor(value) if isinstance(value, torch.Tensor) else value
                for name, value in inputs.items()
            }
            return self._outputs(case, shaped)
        return None

    def arguments(self, case: Case, inputs: Inputs, contract: list[torch.Tensor] | None = None) -> Inputs:
        """What the entry point is called with: the inputs, and an empty tensor for each argument that it only fills."""
        missing = [name for name in self.task.file.outputs if name not in inputs]
        if not missing:
            return inputs
        shaped = dict(zip(self.task.file.outputs, contract or self.contract(case, inputs), strict=True))
        return inputs | {name: shaped[name] for name in missing}

    def work(self, case: Case) -> Work:
        """The compulsory work of a case."""
        return self._valid(case, self._call("work", case, case))

    def _valid(self, case: Case, found: Any) -> Work:
        if not isinstance(found, Work) or not _amount(found.bytes) or found.bytes == 0 or not _amount(found.flops):
            empty = isinstance(found, Work) and found.bytes == 0
            hint = ". A case without elements cannot be timed: have [hidden] draw it"
            raise TaskError(
                "task.py: work must return Work(bytes, flops, dtype) with positive bytes, and with flops that are not "
                f"negative, not {found!r} ({case_label(case)}){hint if empty else ''}"
            )
        if not isinstance(found.dtype, str) or found.dtype not in RATES:
            raise TaskError(
                f"task.py: work: no arithmetic rate is known for dtype {found.dtype!r}; use one of {', '.join(RATES)}"
            )
        return Work(float(found.bytes), float(found.flops), found.dtype)

    @property
    def has_work(self) -> bool:
        """Whether task.py says the work of a case. Then it costs nothing to ask, of any backend's case, and no call can
        do less. Otherwise all inputs are counted, of which a function may read a part."""
        return callable(getattr(self._module, "work", None))

    def try_out_all(self, backend: Backend) -> None:
        """Try `work` on the timed cases of all backends, or of `backend` alone where inputs are drawn for it, and the
        other functions on the cases that `backend` checks. Raises `TaskError`."""
        for each in Backend if self.has_work else [backend]:
            for case in self.task.benchmark_cases(each):
                self.work(case)
        for case in self.task.correctness_cases(backend):
            self.try_out(case)

    def try_out(self, case: Case) -> None:
        """Raises `TaskError` where a function of the task fails on `case`, or where other seeds give the same tensors:
        nothing about such inputs would be secret."""
        one, other = self.inputs(case, seed=1), self.inputs(case, seed=2)
        again = self.inputs(case, seed=1)
        tensors = [name for name, value in one.items() if isinstance(value, torch.Tensor)]
        if not all(name in again and same_bytes(one[name], again[name]) for name in tensors):
            raise TaskError(
                f"task.py: make_inputs gives other tensors when the seed is the same ({case_label(case)}); draw all "
                "that is random from its argument `generator`"
            )
        self.contract(case, one)
        self.expected(case, one)
        names = [name for name in tensors if one[name].numel()]
        if names and all(same_bytes(one[name], other[name]) for name in names):
            raise TaskError(
                f"task.py: make_inputs gives the same tensors for every seed ({case_label(case)}); draw them from its "
                "argument `generator`, as in torch.randn(..., generator=generator, device=generator.device)"
            )

    def _outputs(self, case: Case, inputs: Inputs) -> list[torch.Tensor]:
        made = self._call("reference", case, **inputs)
        try:
            outputs = tensors_of(made)
        except TypeError as error:
            raise TaskError(f"task.py: reference {error}; it must return a tensor, or a tuple of tensors") from None
        names = self.task.file.outputs
        if names and len(names) != len(outputs):
            raise TaskError(f"task.toml names {len(names)} outputs, but reference returns {len(outputs)}")
        return outputs

    def _call(self, name: str, case: Case, *positional: Any, **named: Any) -> Any:
        try:
            return getattr(self._module, name)(*positional, **named)
        except Exception as error:
            raise TaskError(
                f"task.py: {name} failed for {case_label(case)}: {type(error).__name__}: {error}"
            ) from error


def tensor_bytes(values: Mapping[Any, Any]) -> int:
    """Bytes of all tensors among these values."""
    return sum(value.numel() * value.element_size() for value in values.values() if isinstance(value, torch.Tensor))


def _amount(value: Any) -> bool:
    """Whether a value is a finite number that is not negative, of Python's or numpy's."""
    return issubclass(type(value), Real) and bool(0 <= value <= sys.float_info.max)


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _raised(value: Any, dtype: torch.dtype | None) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
        return value.to(dtype or value.dtype, copy=True)
    return _copied(value)
