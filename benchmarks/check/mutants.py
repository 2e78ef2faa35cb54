"""Mutation test of the correctness check: wrong kernels made from right ones, each judged as a candidate is.

python -m benchmarks.check.mutants [--json FILE] [--only NAME] [--per-kernel N] [--seed N]

The right kernels are those of assets/examples and benchmarks/kernels. Every mutant changes one place of one. It runs on
the interpreter in this process, over the same planned runs and through the same judgement as in a session; mutants that
do not compile, or whose host code fails, do not count. EQUIVALENT lists, by hand, mutants that compute the same.
"""

from __future__ import annotations

import argparse
import ast
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

import torch
from benchmarks.check.mutations import Mutant, mutants
from benchmarks.recorded import header, write

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
from tilewright.rules import DEFAULT
from tilewright.task import Backend, Frontend, case_label, load_task

CALL_S = 20

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


class Bed:
    """A task with its right kernel, and the trials that every mutant of it goes through."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.task = load_task(folder)
        self.code = TaskCode(self.task, Backend.CPU)
        self.source = (folder / self.task.file.editable[0]).read_text(encoding="utf-8")
        self._runs = planned_runs(self.task, Backend.CPU, Seeds(f"{seed}:{self.task.name}"), DEFAULT.hidden_cases)
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
    own = Path(__file__).parents[1] / "kernels"
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
        record = header("check.mutants --json FILE") | {
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
