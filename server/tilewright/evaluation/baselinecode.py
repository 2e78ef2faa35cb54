"""A task whose reference is its baseline: what that returns on the same inputs, in a worker of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch

from tilewright.evaluation.calling import Given, calls_of, send_arguments, share_inputs
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.taskcode import Inputs, TaskCode, tensor_bytes
from tilewright.evaluation.tensors import dtype_of
from tilewright.frontends.protocol import Choice
from tilewright.task import Backend, Case, Task, TaskError, Work, case_label
from tilewright.wire.tensors import TensorSpec

Start = Callable[[Choice | None], contextlib.AbstractContextManager[list[WorkerHandle]]]


class BaselineCode(TaskCode):
    """The baseline is the reference. Outputs are compared within the bounds of their dtypes alone: there is no result
    in float64 from which closer bounds follow."""

    FUNCTIONS = ("make_inputs",)
    takes_float64 = False

    def __init__(self, task: Task, backend: Backend, start: Start) -> None:
        """`start` gives a context manager of one worker that has loaded the baseline, whose tuners take what is
        chosen."""
        super().__init__(task, backend)
        self._backend = backend
        self._start = start
        self._choice: Choice | None = Choice(0)
        """A search takes seconds, on each case, and the outputs of any config will do. None: its tuners search."""
        self._worker: WorkerHandle | None = None
        self._ending = contextlib.ExitStack()
        self._contracts: dict[str, list[TensorSpec]] = {}
        self._work: dict[str, Work] = {}

    def start(self) -> list[int]:
        return [self._ready().pid]

    def end(self) -> None:
        self._ending.close()
        self._worker = None

    def expected(self, case: Case, inputs: Inputs, dtype: torch.dtype | None = torch.float64) -> list[torch.Tensor]:
        """The baseline's outputs on these inputs as they are. Raises `TaskError` if it fails, or changes none of the
        inputs that the task takes for outputs."""
        contract = self.contract(case, inputs)
        call = calls_of(self._ready(), self, self._backend)
        try:
            outputs = call(inputs, Given(inputs, contract)).outputs
        except WorkerFailure as failure:
            if self._searches_now():
                return self.expected(case, inputs, dtype)
            raise self._failed(case, failure) from None
        if [one.shape for one in outputs] != [like.shape for like in contract]:
            raise TaskError(
                "the baseline, which is the reference, gives outputs of other shapes on other values of "
                f"{case_label(case)}: such a task needs a `reference` in task.py"
            )
        names = self.task.file.outputs
        if names and all(torch.equal(inputs[name], output) for name, output in zip(names, outputs, strict=True)):
            raise TaskError(
                f"the baseline, which is the reference, changes none of {', '.join(names)} on {case_label(case)}: what "
                "it does there is not seen; leave the case out"
            )
        return outputs

    def contract(self, case: Case, inputs: Inputs) -> list[torch.Tensor]:
        """Empty tensors of the shapes and dtypes of the baseline's outputs, as its first call on `case` gives them."""
        if case_label(case) not in self._contracts:
            self._contracts[case_label(case)] = self._described(case, inputs)
        return [
            torch.empty(spec.shape, dtype=dtype_of(spec), device=self.device)
            for spec in self._contracts[case_label(case)]
        ]

    def work(self, case: Case) -> Work:
        """As task.py says it; else the bytes of inputs and outputs, and no arithmetic: then inputs are drawn once."""
        if self.has_work:
            return super().work(case)
        if case_label(case) not in self._work:
            inputs = self.cached_inputs(case, seed=0)
            written = tensor_bytes(dict(enumerate(self.contract(case, inputs))))
            found = Work(tensor_bytes(inputs) + written, 0.0, "float32", written)
            self._work[case_label(case)] = self._valid(case, found)
        return self._work[case_label(case)]

    def _described(self, case: Case, inputs: Inputs) -> list[TensorSpec]:
        if missing := [name for name in self.task.file.outputs if name not in inputs]:
            raise TaskError(
                f"task.py: with reference = 'baseline', make_inputs has to give {missing[0]!r}, too, which the call "
                "fills: nobody else knows its shape"
            )
        worker, limit_s = self._ready(), self.task.file.timeout_s
        try:
            if self._backend is Backend.CUDA:
                shared, arguments = share_inputs(inputs)
                torch.cuda.synchronize()
                worker.request("inputs", limit_s, sets=[[one.model_dump() for one in arguments]])
                reply, _ = worker.request("describe", limit_s)
                worker.request("inputs", limit_s, sets=[])
                del shared  # until here the worker had its memory open
            else:
                send_arguments(worker, self.task, inputs)
                reply, _ = worker.request("describe", limit_s)
            return [TensorSpec.model_validate(spec) for spec in reply["outputs"]]
        except WorkerFailure as failure:
            if self._searches_now():
                return self._described(case, inputs)
            raise self._failed(case, failure) from None

    def _searches_now(self) -> bool:
        """Have tuners search, unless they do: the first config of one may not run on this GPU, or on this case."""
        searched, self._choice = self._choice is None, None
        self.end()
        return not searched

    def _ready(self) -> WorkerHandle:
        if self._worker is None or self._worker.ended:
            self.end()
            try:
                [self._worker] = self._ending.enter_context(self._start(self._choice))
            except WorkerFailure as failure:
                raise TaskError(f"the baseline cannot be loaded: {failure}") from None
        return self._worker

    def _failed(self, case: Case, failure: WorkerFailure) -> TaskError:
        return TaskError(f"the baseline, which is the reference, fails on {case_label(case)}: {failure}")
