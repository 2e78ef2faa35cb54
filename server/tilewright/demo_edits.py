"""What the demo tries on each example: good edits and bad ones, each with what it is there to show.

Each edit rewrites the example's file by itself, so the edits can be taken in any order. In 01, 03 and 05 gains come
last, since a gain up to the ceiling ends the session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Aim(StrEnum):
    """What an edit is there to show."""

    GAIN = "a real gain"
    WRONG = "breaks correctness"
    SLOWER = "regresses"
    NOISE = "changes nothing"
    CRASH = "does not compile"
    OPEN = "who knows"


@dataclass(frozen=True)
class Edit:
    """One optimization to try: its name in the log, what it is there to show, and the change to the file's text."""

    name: str
    aim: Aim
    change: Callable[[str], str]


def _hints(text: str, hints: str) -> str:
    return re.sub(r"@ct\.kernel(\(.*?\))?\n", f"@ct.kernel({hints})\n" if hints else "@ct.kernel\n", text)


_BANDS = """    rows, columns = ct.cdiv(out.shape[0], TM), ct.cdiv(out.shape[1], TN)
    band = 8 * columns
    first = ct.bid(0) // band * 8
    height = min(rows - first, 8)
    row, column = first + ct.bid(0) % band % height, ct.bid(0) % band // height
"""

_SMALL_STEPS = """    row, zero = ct.bid(0), ct.PaddingMode.ZERO
    squares = ct.zeros((1, 256), ct.float32)
    for step in range(ct.cdiv(N, 256)):
        part = ct.load(x, index=(row, step), shape=(1, 256), padding_mode=zero).astype(ct.float32)
        squares += part * part
    scale = ct.rsqrt(ct.sum(squares, axis=1, keepdims=True) / N + EPS)
    for step in range(ct.cdiv(N, 256)):
        part = ct.load(x, index=(row, step), shape=(1, 256), padding_mode=zero).astype(ct.float32)
        gain = ct.load(weight, index=(step,), shape=(256,), padding_mode=zero).astype(ct.float32)
        ct.store(out, index=(row, step), tile=(part * scale * gain).astype(out.dtype))


"""


_SHARED_ANGLES = """    group, step = ct.cdiv(x_in.shape[1], 4), ct.bid(1)
    batch, start = ct.bid(0) // group, ct.bid(0) % group * 4
    shape, zero = (1, 1, TS, HALF), ct.PaddingMode.ZERO
    c = ct.load(cos, index=(step, 0), shape=(TS, HALF), padding_mode=zero).astype(ct.float32).reshape(shape)
    s = ct.load(sin, index=(step, 0), shape=(TS, HALF), padding_mode=zero).astype(ct.float32).reshape(shape)
    for head in range(start, start + 4):
        first = ct.load(x_in, index=(batch, head, step, 0), shape=shape, padding_mode=zero).astype(ct.float32)
        second = ct.load(x_in, index=(batch, head, step, 1), shape=shape, padding_mode=zero).astype(ct.float32)
        ct.store(x_out, index=(batch, head, step, 0), tile=(first * c - second * s).astype(x_out.dtype))
        ct.store(x_out, index=(batch, head, step, 1), tile=(second * c + first * s).astype(x_out.dtype))


"""

_LAYER_NORMS = {
    "of squares": """    mean = x.mean(dim=-1, keepdim=True)
    variance = x.square().mean(dim=-1, keepdim=True) - mean.square()
    return (x - mean) * torch.rsqrt(variance + eps) * weight + bias
""",
    "of both": """    variance, mean = torch.var_mean(x.float(), dim=-1, correction=0, keepdim=True)
    return torch.addcmul(bias, (x - mean) * torch.rsqrt(variance + eps), weight).to(x.dtype)
""",
    "of torch": """    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
""",
}


def _in_bands(text: str) -> str:
    text = text.replace("    row, column = ct.bid(0), ct.bid(1)\n", _BANDS)
    return text.replace(
        "grid = (ct.cdiv(out.shape[0], TILE_M), ct.cdiv(out.shape[1], TILE_N))",
        "grid = (ct.cdiv(out.shape[0], TILE_M) * ct.cdiv(out.shape[1], TILE_N),)",
    )


def _in_small_steps(text: str) -> str:
    return re.sub(r"    row = ct\.bid\(0\)\n.*?(?=def rmsnorm\()", _SMALL_STEPS, text, flags=re.DOTALL)


def _sharing_angles(text: str) -> str:
    text = re.sub(r"    head, step = .*?(?=def rope\()", _SHARED_ANGLES, text, flags=re.DOTALL)
    return text.replace("(batch * heads,", "(batch * ct.cdiv(heads, 4),")


def _layer_norm(way: str) -> Callable[[str], str]:
    pattern = re.compile(r"(?<=\"\"\"\n)    (?:values|mean|variance|return).*\Z", re.DOTALL)
    return lambda text: pattern.sub(lambda _: _LAYER_NORMS[way], text)


def _swap(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new)


def _hinted(hints: str) -> Callable[[str], str]:
    return lambda text: _hints(text, hints)


def _tiled(tile: str, hints: str = "") -> Callable[[str], str]:
    return lambda text: _hints(re.sub(r"TILE_M, TILE_N, TILE_K = .*", f"TILE_M, TILE_N, TILE_K = {tile}", text), hints)


def _launched(option: str) -> Callable[[str], str]:
    return lambda text: re.sub(r"next_power_of_2\(columns\).*\)\n", f"next_power_of_2(columns), {option})\n", text)


def _from_a_start(text: str) -> str:
    text = text.replace("    inside = columns < N\n", "    inside = columns < N\n    start = x + row * stride\n")
    return text.replace("tl.load(x + row * stride + columns", "tl.load(start + columns")


EDITS: dict[str, Sequence[Edit]] = {
    "01_rmsnorm_occupancy_only": (
        Edit("name the row's scale", Aim.NOISE, _swap("scale", "inverse_rms")),
        Edit("mean over the tile, not the row", Aim.WRONG, _swap("keepdims=True) / N", "keepdims=True) / TILE")),
        Edit("two passes in steps of 256", Aim.SLOWER, _in_small_steps),
        Edit("tile of three quarters", Aim.CRASH, _swap("1 << (columns - 1).bit_length()", "3 * columns // 4")),
        Edit("occupancy 4", Aim.GAIN, _hinted("occupancy=4")),
        Edit("8 worker warps at occupancy 4", Aim.OPEN, _hinted("occupancy=4, num_worker_warps=8")),
    ),
    "02_matmul_full_search": (
        Edit("tile 128x128x64", Aim.GAIN, _tiled("128, 128, 64")),
        Edit("leave out the last K step", Aim.WRONG, _swap("shape=(TM, TK))):", "shape=(TM, TK)) - 1):")),
        Edit("tile 128x256x64, 4 worker warps", Aim.SLOWER, _tiled("128, 256, 64", "num_worker_warps=4")),
        Edit("name the accumulator", Aim.NOISE, _swap("total", "accumulator")),
        Edit("tiles in bands of 8 rows", Aim.OPEN, _in_bands),
        Edit("tile 128x256x128, 8 worker warps", Aim.GAIN, _tiled("128, 256, 128", "num_worker_warps=8")),
    ),
    "03_rope_inplace_splitbuffer": (
        Edit("turn the other way", Aim.WRONG, _swap("first * c - second * s", "first * c + second * s")),
        Edit("name the second half", Aim.NOISE, _swap("second", "latter")),
        Edit("tile of 128 positions", Aim.SLOWER, _swap("TILE_S = 64", "TILE_S = 128")),
        Edit("tile of 48 positions", Aim.CRASH, _swap("TILE_S = 64", "TILE_S = 48")),
        Edit("occupancy 4", Aim.GAIN, _hinted("occupancy=4")),
        Edit("tile of 16 positions", Aim.GAIN, _swap("TILE_S = 64", "TILE_S = 16")),
        Edit("four heads a block share their angles", Aim.OPEN, _sharing_angles),
    ),
    "04_layernorm_torch": (
        Edit("name the centre", Aim.NOISE, _swap("centred", "around_zero")),
        Edit("double precision, to be safe", Aim.SLOWER, _swap("x.float()", "x.double()")),
        Edit("mean of the squares less the mean squared", Aim.WRONG, _layer_norm("of squares")),
        Edit("mean and variance in one operation", Aim.GAIN, _layer_norm("of both")),
        Edit("torch's own layer_norm", Aim.GAIN, _layer_norm("of torch")),
        Edit("torch.compile", Aim.OPEN, _swap("\ndef layernorm(", "\n@torch.compile\ndef layernorm(")),
    ),
    "05_softmax_triton": (
        Edit("no maximum taken off", Aim.WRONG, _swap("tl.exp(values - tl.max(values, axis=0))", "tl.exp(values)")),
        Edit("name the row's start", Aim.NOISE, _from_a_start),
        Edit("tile of three quarters", Aim.CRASH, _swap("triton.next_power_of_2(columns)", "3 * columns // 4")),
        Edit("8 warps", Aim.GAIN, _launched("num_warps=8")),
        Edit(
            "one reciprocal a row",
            Aim.OPEN,
            _swap("powers / tl.sum(powers, axis=0)", "powers * (1 / tl.sum(powers, axis=0))"),
        ),
        Edit("16 warps", Aim.GAIN, _launched("num_warps=16")),
    ),
}
