"""Mutation test of the correctness check: wrong kernels made from right ones, each judged as a candidate is.

python benchmarks/mutants.py [--json FILE] [--only NAME] [--per-kernel N] [--seed N]

The right kernels are those of assets/examples and benchmarks/kernels. Every mutant changes one place of one. It runs on
the interpreter in this process, over the same planned runs and through the same judgement as in a session; mutants that
do not compile, or whose host code fails, do not count. EQUIVALENT lists, by hand, mutants that compute the same.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import hashlib
import itertools
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from recorded import header, write

from tilewright.bundled import examples
from tilewright.evaluation.calibration import Trial, make_trial
from tilewright.evaluation.calling import Done, Given, cpu_arguments
from tilewright.evaluation.candidate import Candidate, CandidateFailure
from tilewright.evaluation.correctness import Run, check_trial, planned_runs
from tilewright.evaluation.results import Status
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.taskcode import Inputs, TaskCode
from tilewright.evaluation.tensors import opened, to_buffer, trespass
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host
from tilewright.session.runs import HIDDEN_CASES
from tilewright.task import Backend, Frontend, case_label, load_task

CALL_S = 20
SWAPS = {
    "ct.max": "ct.min", "ct.sum": "ct.max", "ct.maximum": "ct.minimum", "ct.exp": "ct.exp2", "ct.rsqrt": "ct.sqrt",
    "ct.log": "ct.log2", "ct.zeros": "ct.ones",
}  # fmt: skip
OPERATORS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "%", ast.Mod: "//"}
COMPARISONS = {ast.Lt: ["<=", ">"], ast.LtE: ["<"], ast.Gt: [">=", "<"], ast.Eq: ["!=", ">="]}

PADDED = "what the padding holds is cut off by the store, or masked"
WIDENED = "the arithmetic that follows widens to float32 by itself, and the value is of the narrow dtype anyway"
ZEROS = "one more step adds a tile of zeros, or of weights that are zero"
LARGER = "tiles or steps beyond the tensors' ends hold padding only"
TWICE = "blocks compute and store the same values twice"
BOUNDED = "gather and scatter check bounds: such columns are neither used nor stored"

EQUIVALENT: list[tuple[str, str, str, str]] = [
    ("rmsnorm", r"gain = .*astype", r"gain = ct.load\(.*ZERO\)(\.astype\(ct.bfloat16\))?$", WIDENED),
    ("rmsnorm", r"gain = .*ZERO", r"gain = .*(NAN|NEG_INF)", PADDED),
    ("rmsnorm", r"values = .*shape=\(1,", r"values = .*shape=\(2,", TWICE),
    ("rmsnorm", r"tile = 1 <<", r"tile = 2 <<", LARGER),
    (
        "rmsnorm",
        r"tile = 1 << \(columns - 1\)",
        r"tile = 1 << \((columns - 2|columns)\)",
        "sizes that this task has not",
    ),
    ("matmul", r"for step", r"for step in range\(.*\+ 1\)", ZEROS),
    ("matmul", r"\(TK, TN\)", r"\(TN, TK\)", "tiles are square"),
    ("matmul", r"\(TM, TK\)", r"\(TK, TM\)", "tiles are square"),
    ("rope", r"(first|second|c|s) = .*astype", r"(first|second|c|s) = ct.load\(.*zero\)(\.reshape.*)?$", WIDENED),
    ("rope", r"(c|s) = .*astype", r"(c|s) = .*astype\(ct.bfloat16\)", WIDENED),
    ("rope", r"(first|second) = .*astype", r"(first|second) = .*astype\(ct.bfloat16\)", WIDENED),
    ("rope", r"zero = .*ZERO", r"zero = .*(NAN|NEG_INF)|PaddingMode.(NAN|NEG_INF)", PADDED),
    ("affine", r"[ags] = .*ZERO", r"[ags] = .*(NAN|NEG_INF)", PADDED),
    ("affine", r"[ags] = .*astype", r"[ags] = ct.load\(.*ZERO\)(\.astype\(ct.bfloat16\))?$", WIDENED),
    ("affine", r"grid = .*, 1\)", r"grid = .*, 2\)", TWICE),
    ("attention", r"mine = .*ZERO", r"mine = .*(NAN|NEG_INF)", PADDED),
    ("attention", r"for step", r"for step in range\(.*\+ 1\)", ZEROS),
    ("attention", r"scores = ct.mma", r"\* 0\.0|\+ ct.zeros", "a zero stays zero"),
    ("layernorm", r"[wb] = .*ZERO", r"[wb] = .*(NAN|NEG_INF)", PADDED),
    ("layernorm", r"[wb] = .*astype", r"[wb] = ct.load\(.*ZERO\)(\.astype\(ct.bfloat16\))?$", WIDENED),
    ("layernorm", r"a = .*shape=\(1,", r"a = .*shape=\(2,", TWICE),
    ("layernorm", r"tile = 1 <<", r"tile = 2 <<", LARGER),
    ("linear", r"total = total \+ .*ZERO", r"total = total \+ .*(NAN|NEG_INF)", PADDED),
    ("linear", r"total = total \+ .*astype", r"total = total \+ ct.load\(.*ZERO\)(\.astype\(ct.float16\))?$", WIDENED),
    ("linear", r"total = ct.zeros", r"\(TN, TM\)", "tiles are square"),
    ("linear", r"for step", r"for step in range\(.*\+ 1\)", ZEROS),
    ("rowsum", r"for step", r"for step in range\(.*\+ 1\)", ZEROS),
    ("softmax", r"tiles = ", r"shape=\(T, 1\)", LARGER),
    ("softmax", r"for step", r"for step in range\(.*\+ 1\)", ZEROS),
    ("softmax", r"a = ct.load", r"a = .*(NAN|ZERO)", PADDED),
    ("swiglu", r"(gate|up) = .*0\.0\)", r"(gate|up) = .*(-1|1)\.0\)", BOUNDED),
    ("swiglu", r"inside = ", r"<=", BOUNDED),
    ("swiglu", r"ct.scatter", r"\(row, columns\)", BOUNDED),
    ("transpose", r"a = .*ZERO", r"a = .*(NAN|NEG_INF)", PADDED),
    ("transpose", r"a = .*astype", r"a = ct.load\(.*ZERO\)(\.astype\(ct.float16\))?$", WIDENED),
    ("xent", r"a = .*ZERO", r"a = .*(NAN|NEG_INF)", PADDED),
    ("xent", r"tile = 1 <<", r"tile = 2 <<", LARGER),
]
"""Kernel, patterns of the changed line before and after, and why such a mutant gives what the kernel gives. Only what
gave the right kernel's bytes in every run is looked up here."""

TOLERATED: list[tuple[str, str, str]] = [
    (
        "rmsnorm",
        r"values = ct.load\(.*ZERO\)(\.astype\(ct.bfloat16\))?$",
        "like torch in bfloat16: a few roundings to it",
    ),
    ("attention", r"mixed = .*float16", "one rounding to the inputs' dtype a step, of at most four"),
]
"""The same for mutants that round to the inputs' dtype no more than honest kernels may; they count as survivors."""


@dataclass(frozen=True)
class Mutant:
    """One change of a kernel's source: the kind, the line, and the code before and after."""

    kernel: str
    kind: str
    line: int
    before: str
    after: str
    source: str


@dataclass
class Verdict:
    """How a mutant ended: `outcome` is killed, survived, equivalent or invalid; a killer has a status and a run."""

    kernel: str
    kind: str
    line: int
    before: str
    after: str
    outcome: str
    status: str = ""
    run: str = ""
    message: str = ""


def mutants(kernel: str, source: str) -> list[Mutant]:
    """Every mutant of a module's functions, in order."""
    tree = ast.parse(source)
    plain = ast.unparse(tree)
    found: dict[str, Mutant] = {}
    for number, (_, _, _, node, inside) in enumerate(_sites(tree)):
        for kind, after in _variants(node, inside):
            changed = copy.deepcopy(tree)
            parent, field, index, _, _ = next(itertools.islice(_sites(changed), number, None))
            new: Any = ast.parse(after).body[0]
            new = new if isinstance(node, ast.stmt) else new.value
            if index is None:
                setattr(parent, field, new)
            else:
                getattr(parent, field)[index] = new
            text = ast.unparse(changed)
            if text != plain and text not in found:
                was, now = _changed(plain, text)
                found[text] = Mutant(kernel, kind, getattr(node, "lineno", 0), was, now, text)
    return list(found.values())


def _changed(before: str, after: str) -> tuple[str, str]:
    """The lines that differ, before and after, stripped."""
    lines = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    return tuple(" / ".join(line[2:].strip() for line in lines if line.startswith(sign)) for sign in "-+")


def _sites(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int | None, Any, dict[str, Any]]]:
    """(parent, field, index, node, surroundings) of every statement and expression in the module's functions."""
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        indices = {
            name.id
            for call in ast.walk(function)
            if isinstance(call, ast.keyword) and call.arg == "index"
            for name in ast.walk(call.value)
            if isinstance(name, ast.Name)
        }
        inside = {"kernel": bool(function.decorator_list), "indices": sorted(indices), "loop": False, "keyword": ""}
        for index, statement in enumerate(function.body):
            yield from _under(function, "body", index, statement, inside)


def _under(
    parent: ast.AST, field: str, index: int | None, node: ast.AST, inside: dict[str, Any]
) -> Iterator[tuple[ast.AST, str, int | None, Any, dict[str, Any]]]:
    if isinstance(node, ast.expr | ast.stmt):
        yield parent, field, index, node, inside
    inner = dict(inside)
    if isinstance(node, ast.For):
        inner["loop"] = True
    if isinstance(node, ast.keyword):
        inner["keyword"] = node.arg
    for name, value in ast.iter_fields(node):
        if name in ("targets", "target", "ctx", "func", "op", "ops"):
            if name == "func" and isinstance(value, ast.Attribute) and value.attr in ("astype", "reshape"):
                yield from _under(value, "value", None, value.value, inner)
            continue
        for place, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST):
                yield from _under(node, name, place, child, inner)


def _variants(node: Any, inside: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(kind, the code instead) of every change to one statement or expression."""
    match node:
        case ast.Assign() if inside["kernel"] and inside["loop"]:
            target, value = ast.unparse(node.targets[0]), ast.unparse(node.value)
            for dtype in ("bfloat16", "float16"):
                yield "precision", f"{target} = ({value}).astype(ct.{dtype}).astype(ct.float32)"
            yield "dropped statement", "pass"
        case ast.Assign() | ast.Expr() if inside["kernel"]:
            yield "dropped statement", "pass"
        case ast.Constant(value=bool()):
            return  # keepdims and the like: no change, or one that does not compile
        case ast.Constant(value=int()):
            kind = "axis" if inside["keyword"] == "axis" else "index" if inside["keyword"] == "index" else "constant"
            yield kind, str(node.value + 1)
            if node.value:
                yield kind, str(node.value - 1)
        case ast.Constant(value=float()):
            yield "constant", str(node.value * 1.01 if node.value else 1.0)
            yield "constant", str(node.value * 2 if node.value else -1.0)
        case ast.BinOp():
            left, right = ast.unparse(node.left), ast.unparse(node.right)
            if type(node.op) in OPERATORS:
                yield "operator", f"({left}) {OPERATORS[type(node.op)]} ({right})"
            yield "dropped term", left
            yield "dropped term", right
        case ast.Compare():
            for other in COMPARISONS.get(type(node.ops[0]), []):
                yield "comparison", f"({ast.unparse(node.left)}) {other} ({ast.unparse(node.comparators[0])})"
        case ast.Subscript(slice=ast.Tuple(elts=[first, second])) if inside["kernel"]:
            places = [ast.unparse(ast.Subscript(ast.Name("x"), part))[2:-1] for part in (second, first)]
            yield "swapped axes", f"{ast.unparse(node.value)}[{places[0]}, {places[1]}]"
        case ast.Tuple() if 2 <= len(node.elts) <= 4 and not any(isinstance(part, ast.Slice) for part in node.elts):
            parts = [ast.unparse(part) for part in node.elts]
            for first in range(len(parts) - 1):
                swapped = [*parts[:first], parts[first + 1], parts[first], *parts[first + 2 :]]
                yield "swapped axes", f"({', '.join(swapped)})"
        case ast.Name() if inside["kernel"] and inside["keyword"] == "index":
            for other in inside["indices"]:
                if other != node.id:
                    yield "index", other
            yield "index", "0"
        case ast.Name(id="ZERO"):
            yield "padding", "ct.PaddingMode.NEG_INF"
            yield "padding", "ct.PaddingMode.NAN"
        case ast.Attribute():
            text = ast.unparse(node)
            if text.startswith("ct.PaddingMode."):
                yield "padding", "ct.PaddingMode.ZERO" if "INF" in text else "ct.PaddingMode.NEG_INF"
                yield "padding", "ct.PaddingMode.NAN"
            if text == "ct.float32":
                yield "precision", "ct.float16"
                yield "precision", "ct.bfloat16"
        case ast.Call():
            yield from _of_call(node, ast.unparse(node.func), [ast.unparse(part) for part in node.args])


def _of_call(node: ast.Call, name: str, parts: list[str]) -> Iterator[tuple[str, str]]:
    text = ast.unparse(node)
    if name in SWAPS:
        yield "operator", SWAPS[name] + text.removeprefix(name)
    if name == "ct.bid":
        yield "index", f"ct.bid({1 - int(parts[0])})" if parts[0] in "01" else "0"
        yield "index", f"{text} + 1"
        yield "race", f"{text} // 2"
        yield "race", f"{text} * 0"
    elif name == "ct.cdiv":
        yield "grid", f"({parts[0]}) // ({parts[1]})"
        yield "grid", f"{text} - 1"
    elif name == "range":
        yield "loop", f"range(({parts[0]}) - 1)"
        yield "loop", f"range(1, {parts[0]})"
        yield "loop", f"range(({parts[0]}) + 1)"
        yield "loop", f"range(0, {parts[0]}, 2)"
    elif name == "ct.where":
        yield "mask", f"ct.where({parts[0]}, {parts[2]}, {parts[1]})"
        yield "mask", parts[1]
    elif name == "ct.mma":
        yield "accumulator", f"ct.mma({parts[0]}, {parts[1]}, ({parts[2]}) * 0.0)"
        yield "accumulator", f"({text}) + ({parts[2]})"
    elif name in ("ct.transpose", "ct.exp", "ct.rsqrt", "ct.log"):
        yield "dropped function", parts[0]
    elif name in ("ct.sum", "ct.max") and len(parts) == 1:
        for dtype in ("bfloat16", "float16"):
            rounded = f"{name}(({parts[0]}).astype(ct.{dtype}){text.removeprefix(f'{name}({parts[0]}')}"
            yield "precision", rounded.replace(f"ct.{dtype})", f"ct.{dtype}).astype(ct.float32)", 1)
    elif name == "ct.store":
        yield "dropped statement", "None"
    elif name.endswith(".astype"):
        yield "cast", name.removesuffix(".astype")


class Bed:
    """A task with its right kernel, and the trials that every mutant of it goes through."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.task = load_task(folder)
        self.code = TaskCode(self.task, Backend.CPU)
        self.source = (folder / self.task.file.editable[0]).read_text(encoding="utf-8")
        self._runs = planned_runs(self.task, Backend.CPU, Seeds(f"{seed}:{self.task.name}"), HIDDEN_CASES)
        self._trials: list[tuple[Run, Trial]] = []
        self._right: list[str] = []

    @property
    def name(self) -> str:
        return self.task.name

    def trials(self) -> Iterator[tuple[Run, Trial]]:
        """Each planned run with its trial, which is made when first asked for."""
        for number, planned in enumerate(self._runs):
            if number == len(self._trials):
                trial = make_trial(self.code, planned.case, planned.seed, planned.values)
                self._trials.append((planned, trial))
            yield self._trials[number]

    def judge(self, mutant: Mutant, folder: Path) -> Verdict:
        """Run a mutant until the check fails it, or to the end."""
        told = {name: value for name, value in asdict(mutant).items() if name != "source"}
        (folder / f"{self.task.module}.py").write_text(mutant.source)
        sys.modules.pop(self.task.module, None)
        run = ""
        digests: list[str] = []

        def call(arguments: Inputs, given: Given) -> Done:
            done = _called(candidate, arguments, given)
            digests.append(hashlib.sha256(b"".join(bytes(to_buffer(out)) for out in done.outputs)).hexdigest())
            return done

        try:
            with host.running(host.Mode.RUN):
                candidate = Candidate(folder, [], self.task.module, self.task.function, self.task.file.outputs)
            for planned, trial in self.trials():
                run = f"{case_label(planned.case)} ({trial.values})"
                found = check_trial(self.code, planned, trial, call)
                if found.status is not Status.PASSED:
                    return Verdict(**told, outcome="killed", status=found.status, run=run, message=found.message)
        except CandidateFailure as failure:
            faulty = any(word in str(failure) for word in ("KernelFault", "TimeoutError"))
            outcome = "killed" if failure.status is Status.RAISED and faulty else "invalid"
            return Verdict(**told, outcome=outcome, status=failure.status, run=run, message=str(failure)[:300])
        finally:
            sys.path.remove(str(folder))
        self._right = self._right or digests  # the right kernel is judged first
        return Verdict(**told, **_unkilled(mutant, digests == self._right))


def _unkilled(mutant: Mutant, same: bool) -> dict[str, str]:
    """`same`: in every run its outputs were the right kernel's, bit for bit; no other mutant is equivalent."""
    for kernel, before, after, reason in EQUIVALENT if same else ():
        if kernel == mutant.kernel and re.search(before, mutant.before) and re.search(after, mutant.after):
            return {"outcome": "equivalent", "message": reason}
    tolerated = [text for name, after, text in TOLERATED if name == mutant.kernel and re.search(after, mutant.after)]
    return {"outcome": "survived", "message": " ".join(tolerated)}


def _called(candidate: Candidate, arguments: Inputs, given: Given) -> Done:
    """One call in this process, on arguments that lie in buffers as a frame brings them."""
    for name in arguments.keys() - given.inputs.keys():
        arguments[name].reshape(-1).view(torch.uint8).fill_(0xFF)
    described, views = cpu_arguments(arguments, given)
    buffers = [bytearray(view) for view in views]
    made = {item.name: opened(item, buffers) for item in described}
    signal.alarm(CALL_S)
    try:
        with host.running(host.Mode.RUN):
            outputs = [output.contiguous() for output in candidate(made)]
    finally:
        signal.alarm(0)
    tensors = [item for item in described if item.tensor is not None]
    zones = zip(tensors, buffers, strict=True)
    return Done(
        outputs,
        {item.name: made[item.name] for item in tensors},
        {
            item.name: trespass(torch.frombuffer(buffer, dtype=torch.uint8), item.before, item.after)
            for item, buffer in zones
        },
    )


def _out_of_time(*_: object) -> None:
    raise TimeoutError(f"a call took over {CALL_S} s")


def prepare() -> None:
    """Make this process one that interprets kernels."""
    torch.set_num_threads(1)  # tiles are small
    host.install(spec_by_arch("sm_90"))
    signal.signal(signal.SIGALRM, _out_of_time)


def folders() -> list[Path]:
    """The tasks whose kernels are mutated: those of cuTile, which the interpreter runs."""
    own = Path(__file__).parent / "kernels"
    found = sorted(path for parent in (examples(), own) for path in parent.iterdir() if (path / "task.toml").is_file())
    return [path for path in found if load_task(path).file.frontend is Frontend.CUTILE]


def sample(found: list[Mutant], count: int, source: random.Random) -> list[Mutant]:
    """`count` mutants, the kinds in turn."""
    kinds: dict[str, list[Mutant]] = {}
    for mutant in source.sample(found, len(found)):
        kinds.setdefault(mutant.kind, []).append(mutant)
    turns = itertools.chain.from_iterable(itertools.zip_longest(*(kinds[kind] for kind in sorted(kinds))))
    return [mutant for mutant in turns if mutant is not None][:count]


def run(seed: int, per_kernel: int, only: str = "") -> tuple[list[Verdict], dict[str, str]]:
    """The verdicts, and the right sources by kernel. Raises AssertionError where a right kernel is refused."""
    verdicts: list[Verdict] = []
    sources: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for folder in folders():
            bed = Bed(folder, seed)
            if only and bed.name != only:
                continue
            sources[bed.name] = ast.unparse(ast.parse(bed.source))
            places = (Path(scratch) / f"{bed.name}-{number}" for number in itertools.count())
            right = Mutant(bed.name, "none", 0, "", "", bed.source)
            verdict = bed.judge(right, _made(next(places)))
            assert verdict.outcome == "survived", f"the right kernel of {bed.name} fails: {verdict}"
            chosen = sample(mutants(bed.name, bed.source), per_kernel, random.Random(seed))
            started = time.monotonic()
            verdicts += [bed.judge(mutant, _made(next(places))) for mutant in chosen]
            print(f"{bed.name}: {len(chosen)} mutants in {time.monotonic() - started:.1f} s", file=sys.stderr)
    return verdicts, sources


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def rate(verdicts: list[Verdict]) -> float:
    """The share of mutants killed, of those that run and are not equivalent."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    return counts["killed"] / max(counts["killed"] + counts["survived"], 1)


def report(verdicts: list[Verdict], sources: dict[str, str], seconds: float) -> str:
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    killed = [verdict for verdict in verdicts if verdict.outcome == "killed"]
    lines = [f"{len(verdicts)} mutants of {len(sources)} kernels in {seconds:.0f} s: {dict(outcomes)}"]
    lines.append(f"killed: {len(killed)} of {len(killed) + outcomes['survived']}, {rate(verdicts):.1%}")
    lines.append(f"by status: {dict(Counter(verdict.status for verdict in killed).most_common())}")
    lines.append(f"by values: {dict(Counter(verdict.run.partition('(')[2][:-1] for verdict in killed).most_common())}")
    for verdict in verdicts:
        if verdict.outcome == "survived":
            lines.append(f"SURVIVED {verdict.kernel}:{verdict.line} {verdict.kind} {verdict.message}")
            lines += [f"  - {verdict.before}", f"  + {verdict.after}"]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write every verdict, as JSON or .json.gz")
    parser.add_argument("--only", default="", help="one kernel by its task's name")
    parser.add_argument("--per-kernel", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    prepare()
    started = time.monotonic()
    verdicts, sources = run(arguments.seed, arguments.per_kernel, arguments.only)
    seconds = time.monotonic() - started
    print(report(verdicts, sources, seconds))
    if arguments.json:
        record = header("mutants.py --json FILE") | {
            "seed": arguments.seed,
            "seconds": round(seconds, 1),
            "outcomes": Counter(verdict.outcome for verdict in verdicts),
            "rate": round(rate(verdicts), 4),
            "mutants": [asdict(verdict) | {"message": verdict.message[:160]} for verdict in verdicts],
        }
        write(arguments.json, record)
    raise SystemExit(0 if rate(verdicts) >= 0.95 else 1)


if __name__ == "__main__":
    main()
