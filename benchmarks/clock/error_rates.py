"""What is timed in its own process: how often identical kernels are told apart, and real gains found.

python -m benchmarks.clock.error_rates record FILE.npz    on a GPU: pairs of identical kernels of six durations
python -m benchmarks.clock.error_rates analyse FILE.npz    anywhere: trials resampled from the record, as a table, JSON

Recorded pairs go through the decision of the level in-process. Replayed programs: `programs.py`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from benchmarks.recorded import header, write

from tilewright.bundled import examples
from tilewright.evaluation import statistics as decisions
from tilewright.evaluation.statistics import Evidence, Pair

MOST_PROCESSES = 16
"""Pairs of processes recorded of a kernel."""
PAIRS = 126
"""Recorded of each pair of processes."""
BLOCK = 8
"""Consecutive pairs that resampling keeps together, since neighbours resemble each other."""
TRIALS = 10_000
GAINS = (0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05)
BF16 = "bfloat16"
KERNELS: dict[str, tuple[str, dict[str, Any]]] = {
    "5 us": ("rmsnorm", {"M": 128, "N": 4096, "dtype": BF16}),
    "10 us": ("rmsnorm", {"M": 640, "N": 4096, "dtype": BF16}),
    "50 us": ("rmsnorm", {"M": 2048, "N": 8192, "dtype": BF16}),
    "100 us": ("rmsnorm", {"M": 4800, "N": 8192, "dtype": BF16}),
    "500 us": ("matmul", {"M": 4096, "N": 4096, "K": 4096, "dtype": BF16}),
    "5 ms": ("matmul", {"M": 8192, "N": 8192, "K": 8192, "dtype": BF16}),
}


def make_task(parent: Path, name: str) -> tuple[Path, bytes]:
    """A committed repository with an example's task, on one case alone; and the kernel's source."""
    example, case = KERNELS[name]
    source = next(examples().glob(f"*{example}*"))
    folder = parent / name.replace(" ", "")
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))
    toml = tomllib.loads((folder / "task.toml").read_text())
    text = (folder / "task.toml").read_text().split("[[cases]]")[0]
    text += "[[cases]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in case.items())
    (folder / "task.toml").write_text(text)
    identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgSign=false"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "task"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder, (folder / toml["editable"][0]).read_bytes()


def spent_by(name: str) -> str:
    """The record's name of the seconds that a pair took of this kernel, by pair of processes."""
    return f"{name}, s a pair"


def record(target: Path, most: int, only: Sequence[str]) -> None:
    """Pairs of the same kernel against itself, each pair of processes new, by the production `Bench`; of the kernels
    `only`, or of all. What `target` holds of others stays."""
    import torch

    from tilewright.evaluation import measurement
    from tilewright.evaluation.pool import WorkerPool
    from tilewright.evaluation.results import Environment
    from tilewright.evaluation.seeds import Seeds, new_secret
    from tilewright.evaluation.snapshot import Snapshot
    from tilewright.evaluation.taskcode import TaskCode
    from tilewright.gpu.telemetry import Recorder, find_gpu
    from tilewright.isolation.fork_server import ForkServer
    from tilewright.roofline.bounds import Ceilings
    from tilewright.task import Backend, load_task

    gpu = find_gpu()
    assert gpu is not None
    fork_server = ForkServer("tilewright.evaluation.worker", f"cuda:{gpu.arch}")  # before CUDA is opened
    torch.zeros(1, device="cuda")
    environment = Environment(
        backend=Backend.CUDA,
        device=gpu.name,
        arch=gpu.arch,
        torch=torch.__version__,
        cuda_tile="",
        compiler="",
        python="",
        ceilings=Ceilings(copy_bytes_per_s=1, flops={}, measured=False),
    )
    made = {"device": gpu.name, "driver": gpu.driver, "torch": torch.__version__}
    made |= {key: value for key, value in header("").items() if key in ("commit", "date")}
    found: dict[str, Any] = {}
    if target.exists():
        with np.load(target) as known:
            found = {name: known[name] for kernel in KERNELS for name in (kernel, spent_by(kernel)) if name in known}
    with tempfile.TemporaryDirectory() as scratch:
        parent = Path(scratch)
        pool = WorkerPool(fork_server, f"cuda:{gpu.arch}", parent, spares=4)
        pool.refill()
        for name in only or KERNELS:
            folder, _ = make_task(parent / "snapshots", name)
            code = TaskCode(load_task(folder), Backend.CUDA)
            started = time.monotonic()
            runs = []
            snapshots = []
            for index in range(2):  # of one source, with a compile cache each
                (cache := parent / f"cache-{index}" / name).mkdir(parents=True)
                snapshots.append(Snapshot(id=f"{index}", root=folder, task=PurePosixPath(), cache=cache))
            spent = []
            for _ in range(most):
                arms = [pool.take(label, math.inf) for label in ("candidate", "incumbent")]
                for arm, snapshot in zip(arms, snapshots, strict=True):
                    arm.load(code.task, snapshot)
                pool.refill()
                with Recorder(gpu.uuid, set()) as recorder:
                    clock = measurement.Phases()
                    bench = measurement.Bench(code, arms, environment, recorder, clock)
                    case = code.task.benchmark_cases(Backend.CUDA)[0]
                    _, evidence = bench.case(case, Seeds(new_secret()), (PAIRS,), math.inf)
                for arm in arms:
                    arm.close()
                runs.append(evidence.pairs)
                spent.append(clock.seconds["measure"] / PAIRS)
            found[name], found[spent_by(name)] = np.array(runs, dtype=np.float32), np.array(spent, dtype=np.float32)
            seconds = (time.monotonic() - started) / most
            ratios = np.log(found[name][..., 1] / found[name][..., 0])
            print(
                f"{name}: median {np.median(found[name][..., 0]) * 1e3:.1f} us, {seconds:.1f} s a pair of processes, "
                f"sd of a pair {ratios.std(axis=1).mean():.3%}, between processes {ratios.mean(axis=1).std():.3%}",
                flush=True,
            )
            np.savez_compressed(target, **made, **found)
        pool.close()


def resampled(runs: np.ndarray, source: random.Random, gain: float) -> Iterator[Pair]:
    """Pairs of one pair of processes without end, drawn in blocks; the candidate made faster by `gain`."""
    pairs = runs[source.randrange(len(runs))]
    swapped = source.random() < 0.5  # which of two copies is called the candidate
    while True:
        start = source.randrange(len(pairs) - BLOCK + 1)
        for row in pairs[start : start + BLOCK]:
            one, other = map(float, row[:2])  # an earlier record has the times by another clock, too
            if swapped:
                one, other = other, one
            yield Pair(one / (1 + gain), other)


def trial(runs: np.ndarray, source: random.Random, gain: float, pair_s: float = 0.0) -> tuple[bool, float]:
    """One experiment by the production code: whether it ends as a keep, and the ms of GPU time that its pairs took.
    `pair_s`: the seconds that a pair takes, of which a run has no more than its limit holds; without, no limit."""
    from tilewright.evaluation.measurement import TIME_LIMIT_S, paired
    from tilewright.evaluation.results import BenchmarkResult, CaseTiming, Level, Status
    from tilewright.policy import VerdictKind, confirmed, verdict_of_benchmark
    from tilewright.rules import Rules

    spent = 0.0
    most = max(int(TIME_LIMIT_S / pair_s), decisions.LOOKS[0]) if pair_s else decisions.LOOKS[-1]
    for confirms in (False, True):
        pairs = resampled(runs, source, gain)
        evidence = Evidence()
        for look in decisions.LOOKS:
            while len(evidence.pairs) < min(look, most):
                evidence.pairs.append(next(pairs))
            if evidence.is_decided(only=True) or len(evidence.pairs) >= most:
                break
        spent += sum(pair.candidate + pair.incumbent for pair in evidence.pairs)
        timing = CaseTiming(case={}, level=Level.IN_PROCESS, latency_ms=1.0, **paired(evidence))
        speedup, low, high = decisions.combined([evidence.speedup]).ratio()
        result = BenchmarkResult(
            status=Status.PASSED,
            level=Level.IN_PROCESS,
            latency_ms=1.0,
            cases=[timing],
            speedup=speedup,
            speedup_low=low,
            speedup_high=high,
        )
        verdict = verdict_of_benchmark(result, Rules())
        assert verdict is not None
        verdict = confirmed(verdict) if confirms else verdict
        if verdict.kind is not VerdictKind.KEEP:
            return False, spent
    return True, spent


def analyse(record_file: Path, trials: int, gains: tuple[float, ...]) -> dict[str, Any]:
    """False keeps (a gain of zero) and power of every kernel of the record."""
    recorded = np.load(record_file)
    found: dict[str, Any] = {}
    for name in (name for name in KERNELS if name in recorded):
        runs = recorded[name]
        latency_ms = float(np.median(runs[..., 0]))
        calls = min(max(round(10.0 / latency_ms), 1), 512)
        pair_s = float(recorded[spent_by(name)].mean())
        rows = {}
        for gain in gains:
            source = random.Random(f"{name} {gain}")
            count = trials if gain in (0.0, 0.01, 0.03) else max(trials // 10, 1)
            ended = [trial(runs, source, gain, pair_s) for _ in range(count)]
            rows[str(gain)] = {
                "trials": count,
                "kept": sum(kept for kept, _ in ended) / count,
                "gpu_seconds": float(np.mean([spent for _, spent in ended])) * calls / 1e3,
            }
        found[name] = {
            "latency_ms": latency_ms,
            "process_pairs": int(runs.shape[0]),
            "pairs": int(runs.shape[0] * runs.shape[1]),
            "pair_s": round(pair_s, 4),
            "by_gain": rows,
        }
        false = rows["0.0"]["kept"]
        print(
            f"{name:>7}: {latency_ms * 1e3:7.1f} us  false keeps {false:.3%}  "
            + "  ".join(f"+{float(gain):.2%} kept {row['kept']:.1%}" for gain, row in rows.items() if gain != "0.0"),
            flush=True,
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "analyse"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--processes", type=int, default=MOST_PROCESSES, help="with record: at most, of each kernel")
    parser.add_argument("--only", nargs="+", default=[], choices=[*KERNELS], metavar="KERNEL", help="with record")
    parser.add_argument("--identical", action="store_true", help="with analyse: no gains, identical kernels alone")
    parser.add_argument("--json", type=Path, help="with analyse: where the figures go")
    asked = parser.parse_args()
    if asked.what == "record":
        record(asked.file, asked.processes, asked.only)
    else:
        found = analyse(asked.file, asked.trials, (0.0,) if asked.identical else (0.0, *GAINS))
        if asked.json:
            with np.load(asked.file) as recorded:
                on = {name: str(recorded[name]) for name in recorded if not recorded[name].ndim}
            write(
                asked.json,
                header("clock.error_rates analyse FILE.npz --json FILE") | {"recorded": on, "kernels": found},
            )


if __name__ == "__main__":
    main()
