"""Whether a call's result follows from its arguments alone, for tasks with `state = "forbid"`.

A candidate that has been called many times, on every shape, is called again on two draws of each, the second in the
first's memory where their tensors are of the same shapes; a fresh process is called on the second draws alone, in the
opposite order. Both must give the same bytes (where a task is not deterministic: right results), so that what a call
returns owes nothing to caches, counters, workspaces or tuning that earlier calls left behind. Compiled kernels may of
course live on, and so may memory that a call overwrites first.
"""

from __future__ import annotations

import torch

from tilewright.evaluation.calling import Call, Given
from tilewright.evaluation.correctness import Run, judge_drawn, layout
from tilewright.evaluation.fingerprint import inputs_hash
from tilewright.evaluation.results import Status
from tilewright.evaluation.taskcode import Inputs, TaskCode
from tilewright.task import case_label

OTHER_DRAWS = (2, 4)
"""Make of a run's seed those of draws which no call has seen."""
COMPARED_BYTES = 16 << 20
"""Of one call's outputs; larger ones are sampled."""


def depends_on_earlier_calls(code: TaskCode, runs: list[Run], warm: Call, fresh: Call) -> str:
    """Where a fresh process gives another result than one that was called before; empty where nowhere."""
    shapes = {case_label(run.case): run for run in runs}
    seen = {label: _result(code, run, warm, again=True) for label, run in shapes.items()}
    for label, run in reversed(shapes.items()):
        found, wrong = _result(code, run, fresh, again=False)
        wrong = wrong or seen[label][1]
        if wrong or (code.task.file.deterministic and found != seen[label][0]):
            return (
                f"{label}: a fresh process gives another result than one that was called often before"
                f'{f" ({wrong})" if wrong else ""}; the task says state = "forbid": let a call depend on its '
                "arguments alone, and keep no results, counters or tuned choices between calls"
            )
    return ""


def _result(code: TaskCode, run: Run, call: Call, again: bool) -> tuple[str, str]:
    """A hash over a call's outputs, and what is wrong with them; `again`: after a call on other values there, where
    their tensors are of the same shapes."""
    before, inputs = (code.inputs(run.case, run.seed ^ other) for other in OTHER_DRAWS)
    contract = code.contract(run.case, inputs)
    fits = again and layout(_tensors(inputs)) == layout(_tensors(before))
    fits = fits and layout(contract) == layout(code.contract(run.case, before))
    given = Given(inputs, contract, before=before if fits else None)
    outputs = call(code.arguments(run.case, inputs, contract), given).outputs
    found = judge_drawn(code, run.case, inputs, outputs, contract)
    kept = inputs_hash({str(number): output for number, output in enumerate(outputs)}, COMPARED_BYTES)
    return kept, "" if found.status is Status.PASSED else found.message


def _tensors(inputs: Inputs) -> Inputs:
    return {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
