"""Matrix products over K, and attention over the length, beside NVIDIA's libraries, in float16.

python -m benchmarks.advice.tables matmul FILE [--seconds N]    on a GPU: M = N = 8192, K from 512 to 8192
python -m benchmarks.advice.tables attention FILE [--seconds N]    on a GPU: 4 batches, 32 heads, 1024 to 16384 keys
python -m benchmarks.advice.tables check    anywhere: every config compiles for sm_90, and is right on a small size
python -m benchmarks.advice.tables show FILE ...    anywhere: the tables

cuTile's own `exhaustive_search` chooses a config for each cell, in a process of its own. The kernel with that config
and the library's are captured, and replayed in turns. TFLOP/s are 2 M N K, or 4 B H N N D, a half of it if causal, over
the latency of a call. FILE is written after each cell, and cells that it holds are not measured again.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from benchmarks.advice.turns import Line, Turns
from benchmarks.kernels.tables import attention, matmul
from benchmarks.recorded import read

SIDE, DEPTHS = 8192, range(512, 8193, 512)
BATCH, HEADS, WIDTHS, LENGTHS = 4, 32, (64, 128), (1024, 2048, 4096, 8192, 16384)
MATMULS = [
    (128, 128, 64, 0, 0, 0), (128, 128, 64, 0, 0, 2), (128, 128, 128, 0, 0, 0), (128, 256, 64, 8, 0, 0),
    (256, 128, 64, 8, 0, 0), (128, 256, 128, 8, 0, 0), (256, 128, 128, 8, 0, 0), (128, 256, 64, 8, 2, 0),
    (256, 128, 64, 8, 2, 0), (256, 128, 64, 8, 2, 2),
]  # fmt: skip
"""Tile (M, N, K), and the hints num_worker_warps, num_ctas and occupancy; 0: none."""
ATTENTIONS = [
    (64, 64, 4, 2), (64, 64, 4, 3), (64, 128, 4, 0), (64, 128, 4, 2), (128, 64, 8, 0), (128, 64, 8, 2),
    (128, 128, 8, 0), (128, 128, 8, 2),
]  # fmt: skip
"""Tile of queries and of keys, num_worker_warps, occupancy; each with and without a loop of its own before the diagonal
if attention is causal."""
KERNELS = ("plain", "persistent")


def operands(depth: int, side: int = SIDE, device: str = "cuda") -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator(device).manual_seed(1)
    make = functools.partial(torch.randn, generator=generator, device=device, dtype=torch.float16)
    return make(side, depth), make(depth, side)


def heads(length: int, width: int, batch: int = BATCH, count: int = HEADS, device: str = "cuda") -> list[torch.Tensor]:
    generator = torch.Generator(device).manual_seed(1)
    shape = (batch, count, length, width)
    return [torch.randn(shape, generator=generator, device=device, dtype=torch.float16) for _ in "qkv"]


def configs(causal: bool) -> list[tuple[Any, ...]]:
    return [(*one, split) for one in ATTENTIONS for split in ((False, True) if causal else (False,))]


def searched(space: list[Any], kernel: Any, grid: Any, taken: Any, hints: Any) -> Line:
    """The best config by cuTile's own search, and how many failed."""
    from cuda.tile.tune import exhaustive_search

    stream = torch.cuda.current_stream()
    found = exhaustive_search(space, stream, grid, kernel, taken, hints, quiet=True)
    return {"config": found.best.config, "searched": len(space), "failed": len(found.failures)}


def _hints(**values: int) -> dict[str, int]:
    return {name: value for name, value in values.items() if value}


def search_matmul(depth: int, persistent: bool) -> Line:
    a, b = operands(depth)
    out = torch.empty(SIDE, SIDE, dtype=a.dtype, device=a.device)
    return searched(
        MATMULS,
        matmul.persistent_kernel if persistent else matmul.plain_kernel,
        lambda one: matmul.grid(a, b, one[0], one[1], one[4], one[5], persistent),
        lambda one: (a, b, out, *one[:3]),
        lambda one: _hints(num_worker_warps=one[3], num_ctas=one[4], occupancy=one[5]),
    )


def search_attention(length: int, width: int, causal: bool) -> Line:
    q, k, v = heads(length, width)
    out = torch.empty_like(q)
    return searched(
        configs(causal),
        attention.attention_kernel,
        lambda one: attention.grid(q, one[0]),
        lambda one: attention.arguments(q, k, v, out, causal, one[0], one[1], one[4], attention.FLUSHED_EXP2),
        lambda one: _hints(num_worker_warps=one[2], occupancy=one[3]),
    )


def search(what: str, cells: Iterable[tuple[Any, ...]]) -> Iterator[Line]:
    """The config of each cell, as the searching process says it."""
    command = [sys.executable, "-m", "benchmarks.advice.tables", "search", what, json.dumps([*cells])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)


def measure_matmul(turns: Turns) -> None:
    cells = [(depth, kernel == "persistent") for depth in DEPTHS for kernel in KERNELS]
    wanted = [cell for cell in cells if not turns.has({"part": "matmul config", "cell": list(cell)})]
    for line in search("matmul", wanted) if wanted else ():
        turns.add({"part": "matmul config"} | line)
    chosen = {tuple(one["cell"]): one for one in turns.lines if one["part"] == "matmul config" and "config" in one}
    for depth in DEPTHS:
        a, b = operands(depth)
        for persistent in (False, True):
            if (depth, persistent) in chosen:
                config = chosen[depth, persistent]["config"]
                about = {"part": "matmul", "k": depth, "kernel": KERNELS[persistent], "config": config}
                turns.measure(
                    about,
                    (matmul.cublas, a, b),
                    (matmul.matmul, a, b, *config, persistent),
                )
        turns.forget()


def measure_attention(turns: Turns) -> None:
    cells = [(length, width, causal) for length in LENGTHS for width in WIDTHS for causal in (False, True)]
    wanted = [cell for cell in cells if not turns.has({"part": "attention config", "cell": list(cell)})]
    for line in search("attention", wanted) if wanted else ():
        turns.add({"part": "attention config"} | line)
    chosen = {tuple(one["cell"]): one for one in turns.lines if one["part"] == "attention config" and "config" in one}
    for cell in cells:
        if cell not in chosen or turns.late:
            continue
        length, width, causal = cell
        q, k, v = (one.cpu() for one in heads(length, width))
        torch.cuda.empty_cache()
        *config, split = chosen[cell]["config"]
        for name, library in (("cudnn", attention.cudnn), ("flash", attention.flash)):
            about = {"part": "attention", "n": length, "d": width, "causal": causal, "beside": name}
            turns.measure(
                about | {"config": [*config, split]},
                (library, q, k, v, causal),
                (attention.attention, q, k, v, causal, *config, split),
            )
        turns.forget()


def run_search(what: str, cells: list[list[Any]]) -> None:
    for cell in cells:
        try:
            found = search_matmul(*cell) if what == "matmul" else search_attention(*cell)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
        torch.cuda.empty_cache()
        print(json.dumps({"cell": cell} | found), flush=True)


def check() -> None:
    """Each config in the interpreter on a small size, and compiled for sm_90 at full size. Raises AssertionError."""
    from tilewright.compiler.assembling import assemble
    from tilewright.compiler.cutile import lower
    from tilewright.compiler.signature import signature_of
    from tilewright.gpu.specs import spec_by_arch
    from tilewright.interpreter import host

    host.install(spec_by_arch("sm_90"))

    def compiled(kernel: Any, taken: tuple[Any, ...]) -> str:
        done = assemble(lower(kernel, signature_of(kernel, taken), "sm_90"), 60.0)
        assert done.resources is not None, done.error
        return done.resources.headline(True, "sm_90")

    def right(out: torch.Tensor, exact: torch.Tensor) -> None:
        assert float((out.double() - exact).norm() / exact.norm()) < 2e-3

    a, b = operands(192, 320, "cpu")
    wide = [torch.empty(one, dtype=torch.float16) for one in ((SIDE, 1024), (1024, SIDE), (SIDE, SIDE))]
    for config in MATMULS:
        for persistent in (False, True):
            with host.running(host.Mode.RUN):
                right(matmul.matmul(a, b, *config, persistent), a.double() @ b.double())
            kernel = matmul.persistent_kernel if persistent else matmul.plain_kernel
            print(config, KERNELS[persistent], compiled(matmul.hinted(kernel, *config[3:]), (*wide, *config[:3])))
    q, k, v = heads(256, 64, 1, 2, "cpu")
    wide = [torch.empty(BATCH, HEADS, 4096, 128, dtype=torch.float16) for _ in "qkvo"]
    for causal in (False, True):
        exact = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal)
        for *config, split in configs(causal):
            for fast in range(4) if not causal else (attention.FLUSHED_EXP2,):
                with host.running(host.Mode.RUN):
                    right(attention.attention(q, k, v, causal, *config, split, fast), exact)
            taken = attention.arguments(*wide, causal, *config[:2], split, attention.FLUSHED_EXP2)
            print(config, causal, split, compiled(attention.hinted(*config[2:]), taken))


def rate(line: Line, us: float) -> float:
    """TFLOP/s of a line's work in so many microseconds."""
    if line["part"] == "matmul":
        return 2 * SIDE * SIDE * int(line["k"]) / us / 1e6
    flops = 4 * BATCH * HEADS * int(line["n"]) ** 2 * int(line["d"])
    return flops / (2 if line["causal"] else 1) / us / 1e6


def show(files: list[Path]) -> None:
    for file in files:
        record = read(file)
        print(f"{file.name}: {record['gpu']}, {record['date']}, {record['versions']}")
        for line in record["lines"]:
            if line["part"].endswith("config"):
                continue
            name = " ".join(
                f"{key}={value}" for key, value in line.items() if key in "k kernel n d causal beside config"
            )
            if "error" in line:
                print(f"{name}: {line['error']}")
                continue
            own, other = rate(line, line["second_us"]), rate(line, line["first_us"])
            half = 50 * (line["high"] - line["low"])
            share = f"{100 * line['speedup']:.1f}% ± {half:.1f} of it" if math.isfinite(half) else ""
            print(f"{name}: {own:.0f} TFLOP/s, the library {other:.0f}; {share}; equal {line['equal']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["matmul", "attention", "check", "show", "search"])
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which no cell is begun")
    arguments = parser.parse_args()
    if arguments.what == "check":
        check()
    elif arguments.what == "show":
        show([*map(Path, arguments.rest)])
    elif arguments.what == "search":
        run_search(arguments.rest[0], json.loads(arguments.rest[1]))
    else:
        command = f"advice.tables {arguments.what} FILE"
        with Turns(Path(*arguments.rest), command, arguments.seconds) as turns:
            {"matmul": measure_matmul, "attention": measure_attention}[arguments.what](turns)
        show([Path(*arguments.rest)])


if __name__ == "__main__":
    main()
