"""What hints, block sizes and fast arithmetic gain, kernel by kernel, and what a wrapper's mistakes cost.

python -m benchmarks.advice.hints measure FILE [--only PART ...] [--seconds N]    on a GPU
python -m benchmarks.advice.hints check    anywhere: every kernel is right on a small size
python -m benchmarks.advice.hints show FILE ...    anywhere: the tables

occupancy: nine kernels without a matrix product, each hint beside none. ctas: a cross entropy with twelve pairs of
occupancy and num_ctas, and Triton's. blocks: elements of a block from 256 to 8192. exp: attention by four ways to
compute exponentials, in small and large tiles. gemv: a GEMV from 0.2 to 1.9 GB, and cuBLAS. clone: a rotary embedding
into its input, and on a clone. Each of these replays two captured programs in turns. hot: host time of a call whose
kernel is kept, and of a call that makes it anew. search: what cuTile's own search says of the rotary embedding if its
arguments are cloned. FILE is written after each line, and lines that it holds are not measured again.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from benchmarks.advice.turns import Line, Turns
from benchmarks.kernels.tables import attention, rows
from benchmarks.recorded import read

ROWS, COLUMNS = 16384, 4096
VOCABULARY = 32768
OCCUPANCIES = (2, 4, 8, 16, 32)
BLOCKS = (256, 512, 1024, 2048, 4096, 8192)
CALLS = 20
KERNELS: dict[str, Callable[..., torch.Tensor]] = {
    "copy": rows.copy, "cast": rows.cast, "gelu": rows.gelu, "swiglu": rows.swiglu, "rope": rows.rope,
    "rmsnorm": rows.rmsnorm, "layernorm": rows.layernorm, "softmax": rows.softmax, "cross entropy": rows.xent,
}  # fmt: skip


def tensors(name: str, count: int = ROWS, device: str = "cuda") -> list[torch.Tensor]:
    """Inputs of a kernel with so many rows, on the CPU."""
    generator = torch.Generator(device).manual_seed(1)
    make = functools.partial(torch.randn, generator=generator, device=device)
    if name == "rope":
        angles = torch.arange(4096, device=device)[:, None] * make(64).abs()
        found = [make(count // 128, 4096, 2, 64).bfloat16(), angles.cos(), angles.sin()]
    elif name == "cross entropy":
        targets = torch.randint(0, VOCABULARY, (count // 4,), generator=generator, device=device, dtype=torch.int32)
        found = [make(count // 4, VOCABULARY).bfloat16(), targets]
    else:
        more = {"rmsnorm": [make(COLUMNS)], "layernorm": [make(COLUMNS)], "swiglu": [make(count, COLUMNS)]}
        found = [one.bfloat16() for one in (make(count, COLUMNS), *more.get(name, []))]
    return [one.cpu() for one in found]


def measure_occupancy(turns: Turns) -> None:
    for name, kernel in KERNELS.items():
        given = tensors(name)
        for occupancy in OCCUPANCIES:
            turns.measure(
                {"part": "occupancy", "kernel": name, "occupancy": occupancy},
                (kernel, *given, 0),
                (kernel, *given, occupancy),
            )
        turns.forget()


def measure_ctas(turns: Turns) -> None:
    from benchmarks.kernels.tables import xent_triton

    given = tensors("cross entropy")
    for ctas in (0, 2, 4):
        for occupancy in (0, 2, 4, 8):
            if ctas or occupancy:
                turns.measure(
                    {"part": "ctas", "occupancy": occupancy, "num_ctas": ctas},
                    (rows.xent, *given, 0, 0),
                    (rows.xent, *given, occupancy, ctas),
                )
    for block in (1024, 4096, 8192):
        for warps in (4, 8, 16):
            turns.measure(
                {"part": "ctas", "triton_block": block, "num_warps": warps},
                (rows.xent, *given, 0, 0),
                (xent_triton.xent, *given, block, warps),
            )
    turns.forget()


def measure_blocks(turns: Turns) -> None:
    for name, kernel in (("copy", rows.copy), ("gelu", rows.gelu), ("cross entropy", rows.xent)):
        given = tensors(name)
        more = (0, 0) if name == "cross entropy" else (0,)
        for block in BLOCKS:
            turns.measure(
                {"part": "blocks", "kernel": name, "block": block},
                (kernel, *given, *more, 1024),
                (kernel, *given, *more, block),
            )
        turns.forget()


def measure_exp(turns: Turns) -> None:
    for width in (64, 128):
        generator = torch.Generator("cuda").manual_seed(1)
        q, k, v = (
            torch.randn(4, 32, 4096, width, generator=generator, device="cuda", dtype=torch.float16).cpu()
            for _ in "qkv"
        )
        for *config, warps, occupancy in ((64, 64, 4, 0), (64, 64, 4, 2), (128, 64, 8, 0), (128, 128, 8, 0)):
            for fast in range(4):
                turns.measure(
                    {"part": "exp", "d": width, "tile": config, "warps": warps, "occupancy": occupancy, "exp": fast},
                    (attention.attention, q, k, v, False, 64, 64, 4, 0, False, 0),
                    (attention.attention, q, k, v, False, *config, warps, occupancy, False, fast),
                )
        turns.forget()


def measure_gemv(turns: Turns) -> None:
    for times in (1, 2, 4, 8):
        generator = torch.Generator("cuda").manual_seed(1)
        make = functools.partial(torch.randn, generator=generator, device="cuda", dtype=torch.float16)
        matrix, vector = make(7168 * times, 16384).cpu(), make(16384).cpu()
        turns.measure(
            {"part": "gemv", "rows": 7168 * times, "bytes": 2 * (matrix.numel() + vector.numel() + 7168 * times)},
            (rows.mv, matrix, vector),
            (rows.gemv, matrix, vector, 2, 4096, 4),
        )
        turns.forget()


def measure_clone(turns: Turns) -> None:
    for count in (128, 1024, ROWS):
        given = tensors("rope", count)
        for kernel in (rows.rope_in_place, rows.rope_of_a_clone):
            turns.measure(
                {"part": "clone", "elements": given[0].numel(), "kernel": kernel.__name__},
                (rows.rope, *given),
                (kernel, *given),
            )
        turns.forget()


def in_a_process(what: str, **environment: str) -> Line:
    command = [sys.executable, "-m", "benchmarks.advice.hints", what]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    if done.returncode:
        return {"error": done.stderr[-500:]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure_hot(turns: Turns) -> None:
    for cache in ("kept", "off"):
        about = {"part": "hot", "disk_cache": cache}
        if not turns.late and not turns.has(about):
            turns.add(about | in_a_process("call", **({"CUDA_TILE_CACHE_DIR": "0"} if cache == "off" else {})))


def measure_search(turns: Turns) -> None:
    about = {"part": "search"}
    if not turns.late and not turns.has(about):
        turns.add(about | in_a_process("clones"))


def call() -> Line:
    """Host microseconds of a small RMSNorm's call, the GPU's work included: its kernel kept, and made anew."""
    x, weight = (one.cuda() for one in tensors("rmsnorm", 256))

    def kept() -> None:
        rows.rmsnorm(x, weight, 4)

    def anew() -> None:
        rows.hinted.cache_clear()
        rows.rmsnorm(x, weight, 4)

    found = {}
    for one in (kept, anew):
        one()
        taken = []
        for _ in range(CALLS):
            torch.cuda.synchronize()
            began = time.perf_counter()
            one()
            torch.cuda.synchronize()
            taken.append(1e6 * (time.perf_counter() - began))
        found[f"{one.__name__}_us"] = [round(us, 1) for us in taken]
    return found


def clones() -> Line:
    """What cuTile's search says of each hint, its arguments from a buffer of their own or cloned for each sample."""
    found: Line = {}
    for count in (128, 1024, ROWS):
        given = [one.cuda() for one in tensors("rope", count)]
        for name in ("scratch", "clone"):
            found[f"{name} {given[0].numel()}"] = searched(*given, cloned=name == "clone")
    return found


def searched(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, cloned: bool) -> Line:
    import cuda.tile as ct
    from cuda.tile.tune import exhaustive_search

    scratch, began = torch.empty_like(x), time.perf_counter()
    result = exhaustive_search(
        [0, 2, 4, 8],
        torch.cuda.current_stream(),
        lambda _: (x.shape[0], ct.cdiv(x.shape[1], 16)),
        rows.rope_kernel,
        lambda _: (x, cosine, sine, x.clone() if cloned else scratch, 16, 64),
        lambda one: {"occupancy": one} if one else {},
        quiet=True,
    )
    seconds = round(time.perf_counter() - began, 2)
    means = {str(one.config): round(one.mean_us, 2) for one in result.successes}
    return {"best": result.best.config, "mean_us": means, "seconds": seconds}


PARTS = {
    "hot": measure_hot, "search": measure_search, "clone": measure_clone, "occupancy": measure_occupancy,
    "ctas": measure_ctas, "blocks": measure_blocks, "exp": measure_exp, "gemv": measure_gemv,
}  # fmt: skip


def check() -> None:
    """Each kernel in the interpreter on a small size, with a few of its arguments. Raises AssertionError."""
    from tilewright.gpu.specs import spec_by_arch
    from tilewright.interpreter import host

    functional = torch.nn.functional

    def rope(x: torch.Tensor, c: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        first, second = x[:, :, 0], x[:, :, 1]
        return torch.stack((first * c - second * s, second * c + first * s), dim=2)

    exact: dict[str, Callable[..., torch.Tensor]] = {
        "copy": lambda x: x, "cast": lambda x: x, "gelu": lambda x: functional.gelu(x, approximate="tanh"),
        "swiglu": lambda x, other: functional.silu(x) * other, "rope": rope,
        "rmsnorm": lambda x, w: functional.rms_norm(x, x.shape[1:], w, rows.EPSILON),
        "layernorm": lambda x, w: functional.layer_norm(x, x.shape[1:], w, None, rows.EPSILON),
        "softmax": lambda x: x.softmax(1),
        "cross entropy": lambda x, t: functional.cross_entropy(x, t.long(), reduction="none"),
    }  # fmt: skip
    host.install(spec_by_arch("sm_90"))
    for name, kernel in KERNELS.items():
        given = tensors(name, 128 if name == "rope" else 16, "cpu")
        wanted = exact[name](*(one.double() if one.is_floating_point() else one for one in given))
        with host.running(host.Mode.RUN):
            found = [kernel(*given, occupancy) for occupancy in (0, 8)]
            found += [rows.xent(*given, 0, 2, block) for block in BLOCKS] if name == "cross entropy" else []
            found += [one(*given, 0, 1024) for one in (rows.copy, rows.gelu) if KERNELS[name] is one]
            found += [rows.rope_of_a_clone(*given), rows.rope_in_place(*given)] if name == "rope" else []
        errors = [float((one.double() - wanted).norm() / wanted.norm()) for one in found]
        print(f"{name}: {max(errors):.1e}", flush=True)
        assert max(errors) < 5e-3
    matrix, vector = torch.randn(70, 3000).half(), torch.randn(3000).half()
    with host.running(host.Mode.RUN):
        out = rows.gemv(matrix, vector, 2, 4096, 4)
    assert float((out.double() - matrix.double() @ vector.double()).norm() / out.double().norm()) < 1e-3


def show(files: list[Path]) -> None:
    for file in files:
        record = read(file)
        print(f"{file.name}: {record['gpu']}, {record['date']}, {record['versions']}")
        shown = {"verdict", "equal", "speedup", "low", "high", "first_us", "second_us", "empty_us", "rounds", "pairs"}
        for line in record["lines"]:
            name = " ".join(f"{key}={value}" for key, value in line.items() if key not in shown | {"seconds"})
            if "speedup" in line:
                gain, half = 100 * (line["speedup"] - 1), 50 * (line["high"] - line["low"])
                name += f": {line['first_us']:.1f} us to {line['second_us']:.1f} us, {gain:+.1f}% ± {half:.1f}"
                name += "" if line["equal"] else "; other outputs"
            elif "kept_us" in line:
                name = f"hot, disk cache {line['disk_cache']}: " + ", ".join(
                    f"{one} {statistics.median(line[f'{one}_us']):.0f} us" for one in ("kept", "anew")
                )
            print(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "check", "show", "call", "clones"])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--only", nargs="+", default=[*PARTS], choices=PARTS, metavar="PART")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which no line is begun")
    arguments = parser.parse_args()
    if arguments.what == "check":
        check()
    elif arguments.what in ("call", "clones"):
        print(json.dumps({"call": call, "clones": clones}[arguments.what]()))
    elif arguments.what == "show":
        show(arguments.files)
    else:
        with Turns(*arguments.files, "advice.hints measure FILE", arguments.seconds) as turns:
            for part in arguments.only:
                PARTS[part](turns)
        show(arguments.files)


if __name__ == "__main__":
    main()
