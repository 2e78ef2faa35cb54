"""A KernelBench problem becomes a task: its Model, called in float64, is the reference; its weights are inputs.

Run as `python -m tilewright.attach.kernelbench PROBLEM OUT`, it describes the problem, in a process of its own.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tilewright.attach.function import completed
from tilewright.attach.inputs import Inputs
from tilewright.attach.repository import Proposal, Wishes, committed, named_after, tried
from tilewright.attach.writing import COUNTED
from tilewright.errors import UsageError

PARTS = ("Model", "get_inputs", "get_init_inputs")
HELPERS = PARTS[1:]


def propose(root: Path, wishes: Wishes, tell: Callable[[str], None]) -> Proposal:
    """A task for the problem in a file. Its sizes are the whole numbers that `get_inputs` alone uses; the weights are
    those of one seed, and inputs that stay the same. Raises `UsageError`."""
    path, (repository, files) = Path(wishes.entry), committed(root)
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError) as error:
        raise UsageError(f"{path} is no KernelBench problem: {error}") from None
    if missing := [part for part in PARTS if part not in _defined(tree)]:
        raise UsageError(f"{path} is no KernelBench problem: it defines no {missing[0]}")
    words = ["python", "-m", "tilewright.attach.kernelbench", "problem.py", "{out}"]
    ran, _, out = tried({"problem.py": text.encode()}, Path(repository.root), words, ["."])
    if not out:
        raise UsageError(f"{path}: the problem could not be run: {ran.ended}\n{ran.last_words[-1200:]}")
    about: dict[str, Any] = json.loads(out)
    sizes: dict[str, int] = about["sizes"]
    case: dict[str, Any] = {**sizes, "dtype": about["dtype"]}
    inputs = Inputs({}, [case], sizes, set(), {}, [], {}, [], [""])
    weights = dict(zip(about["weights"], about["weight_names"], strict=True))
    head: dict[str, Any] = {
        "name": wishes.name or named_after(path.stem), "entry": "kernel:run", "editable": ["kernel.py"],
        "frontend": "torch", **({"constant": [*weights.values()]} if weights else {}),
    }  # fmt: skip
    beside = {
        "task.py": _task_py(about["inputs"], weights, sizes),
        "problem.py": text,
        "kernel.py": _kernel_py(text, tree, about, weights),
    }
    seen = [
        f"inputs: {', '.join([*about['inputs'], *weights.values()])}",
        "reference: the problem's Model in float64, with the weights of seed 0; kernel.py begins as the same in torch",
    ]
    return completed(files, head, inputs, wishes.ranges, beside, seen, tell)


def describe(path: Path) -> dict[str, Any]:
    """A problem's sizes, and the names of its inputs and weights."""
    import inspect

    import torch

    text = path.read_text(encoding="utf-8")
    tree, problem = ast.parse(text), dict[str, Any]({"__name__": "problem"})
    exec(compile(tree, str(path), "exec"), problem)
    assigned = {name: value for name, value in _assigned(tree) if type(problem.get(name)) is int}
    fixed = _names(tree, "get_init_inputs")
    leaves = {name for name, value in assigned.items() if not _loaded(value) & assigned.keys()}
    used = _names(tree, "get_inputs") & leaves - fixed
    with torch.device("meta"):
        drawn = problem["get_inputs"]()
        init = problem["get_init_inputs"]()
        model = problem["Model"](*init)
    parameters = [*inspect.signature(model.forward).parameters][: len(drawn)]
    weights = [*model.state_dict()]
    floats = [str(one.dtype) for one in drawn if isinstance(one, torch.Tensor) and one.is_floating_point()]
    return {
        "sizes": {name: problem[name] for name in assigned if name in used},
        "dtype": floats[0].removeprefix("torch.") if floats else "float32",
        "inputs": parameters,
        "weights": weights,
        "weight_names": [name.replace(".", "_") for name in weights],
        "buffers": [name for name, _ in model.named_buffers()],
        "init": repr(init),
    }


def _defined(tree: ast.Module) -> set[str]:
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def _loaded(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _names(tree: ast.Module, function: str) -> set[str]:
    """The names that a function uses, and those that the values of these use."""
    assigned = dict(_assigned(tree))
    queue = [*_loaded(next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function))]
    names: set[str] = set()
    while queue:
        if (name := queue.pop()) not in names:
            names.add(name)
            queue += _loaded(assigned[name]) if name in assigned else []
    return names


def _kernel_py(text: str, tree: ast.Module, about: dict[str, Any], weights: dict[str, str]) -> str:
    lines = text.splitlines()
    for node in reversed(tree.body):
        if isinstance(node, ast.FunctionDef) and node.name in HELPERS:
            del lines[node.lineno - 1 : node.end_lineno]
    source = "\n".join(lines).strip()
    given = ", ".join(about["inputs"])
    if not weights:
        return f"{source}\n\n\nMODEL = Model(*{about['init']})\n\n\ndef run({given}):\n    return MODEL({given})\n"
    named = "".join(
        f'        "{weight}": {name}{".clone()" if weight in about["buffers"] else ""},\n'
        for weight, name in weights.items()
    )
    return f"""{source}


with torch.device("meta"):
    MODEL = Model(*{about["init"]})


def run({", ".join([given, *weights.values()])}):
    weights = {{
{named}    }}
    return torch.func.functional_call(MODEL, weights, ({given},))
"""


def _task_py(names: list[str], weights: dict[str, str], sizes: dict[str, int]) -> str:
    return f'''"""Inputs, reference and work of problem.py. The reference is its Model in float64."""

import ast
import copy
from pathlib import Path

import problem
import torch
from torch.utils.flop_counter import FlopCounterMode

from tilewright.task import Work

TREE = ast.parse(Path(__file__).with_name("problem.py").read_text(encoding="utf-8"))
SIZES = {list(sizes)!r}
INPUTS = {names!r}
WEIGHTS = {weights!r}

with torch.random.fork_rng():
    torch.manual_seed(0)
    MODEL = problem.Model(*problem.get_init_inputs())
STATE = {{WEIGHTS[name]: value.detach().clone() for name, value in MODEL.state_dict().items()}}


def drawn(case, device):
    """What the problem's get_inputs gives with the sizes of a case."""
    tree, names = copy.deepcopy(TREE), {{"__name__": "problem"}}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in SIZES:
            node.value = ast.copy_location(ast.Constant(case[node.targets[0].id]), node.value)
    exec(compile(tree, "problem.py", "exec"), names)
    with torch.device(device):
        values = names["get_inputs"]()
    moved = (value.to(device) if isinstance(value, torch.Tensor) else value for value in values)
    return dict(zip(INPUTS, moved))


def make_inputs(case, generator):
    seed = torch.randint(2**62, (), generator=generator, device=generator.device)
    with torch.random.fork_rng():
        torch.manual_seed(int(seed))
        inputs = drawn(case, generator.device)
    return inputs | {{name: value.to(generator.device) for name, value in STATE.items()}}


def reference(**inputs):
    state = {{name: inputs[argument].clone() for name, argument in WEIGHTS.items()}}
    return torch.func.functional_call(MODEL, state, tuple(inputs[name] for name in INPUTS))


def work(case):
    inputs = drawn(case, "meta") | {{name: value.to("meta") for name, value in STATE.items()}}
{COUNTED}'''


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(describe(Path(sys.argv[1]))), encoding="utf-8")
