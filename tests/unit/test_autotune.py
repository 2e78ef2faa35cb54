"""The parts of the search: knobs in a source, spaces, and the race."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import SCALE_KERNEL
from tilewright.autotune.report import SearchResult
from tilewright.autotune.space import Kind, declared, kind_of, proposed
from tilewright.autotune.tuner import REMEDY, _report
from tilewright.bundled import examples
from tilewright.evaluation.results import Status
from tilewright.knobs import Knobs, SpaceError, parse_values
from tilewright.policy import Ratio, mean_of

SOURCE = b"""
import cuda.tile as ct
from cuda.tile import kernel

TILE_M, TILE_N = 128, 64  # \xc3\xa9
TILE_K: int = 32
GROUP = -1
SCALE = 0.5
NAME = "x"
TWICE = 1
TWICE = 2


@ct.kernel
def one(a, T: ct.Constant[int]):
    pass


@kernel(occupancy=2, num_ctas=ct.ByTarget(sm_100=2))
def two(a):
    pass


def entry(a, *, stages=3, fast=True):
    TILE_M = 1
    return a
"""


def knobs(source: bytes = SOURCE) -> Knobs:
    return Knobs({"task/kernel.py": source, "notes.txt": b"TILE_Z = 1"}, "task/kernel.py", "entry")


def test_knobs_are_what_the_source_gives_a_literal() -> None:
    found = knobs()
    assert found.constants == {
        "TILE_M": 128, "TILE_N": 64, "TILE_K": 32, "GROUP": -1, "SCALE": 0.5, "NAME": "x", "stages": 3, "fast": True,
    }  # fmt: skip
    assert [(kernel.name, kernel.hints) for kernel in found.kernels] == [("one", {}), ("two", {"occupancy": 2})]
    assert found.original(["TILE_M", "occupancy", "num_ctas"]) == {"TILE_M": 128}


def test_a_variant_is_the_source_with_these_values_and_nothing_else() -> None:
    made = knobs().variant(
        {"TILE_M": 64, "TILE_K": 16, "GROUP": 8, "fast": False, "occupancy": 4, "num_worker_warps": 8}
    )
    text = made["task/kernel.py"].decode()
    assert list(made) == ["task/kernel.py"]
    expected = (
        SOURCE.decode()
        .replace("= 128, 64", "= 64, 64")
        .replace("int = 32", "int = 16")
        .replace("GROUP = -1", "GROUP = 8")
        .replace("fast=True", "fast=False")
        .replace("@ct.kernel\n", "@ct.kernel(occupancy=4, num_worker_warps=8)\n")
        .replace(
            "(occupancy=2, num_ctas=ct.ByTarget(sm_100=2))",
            "(occupancy=4, num_ctas=ct.ByTarget(sm_100=2), num_worker_warps=8)",
        )
    )
    assert text == expected
    assert knobs().variant({}) == {}


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("TILE_Q", [1], "no tunable parameter 'TILE_Q'"),
        ("TWICE", [1], "no tunable parameter 'TWICE'"),
        ("TILE_M", ["64"], "type int"),
        ("fast", [1], "type bool"),
        ("occupancy", [33], "1 to 32"),
        ("num_ctas", [3], "1, 2, 4, 8 or 16"),
        ("num_worker_warps", [True], "4 or 8"),
    ],
)
def test_values_that_a_knob_cannot_have_are_refused(name: str, values: list[Any], words: str) -> None:
    with pytest.raises(SpaceError, match=words):
        declared(knobs(), {name: values})


def test_a_declared_space_is_the_product_after_the_original() -> None:
    space = declared(knobs(), parse_values(["TILE_M=64,128", "occupancy=1,2", "TILE_M=64"]))
    assert space.configs[0] == {}
    assert {"TILE_M": 64, "occupancy": 1} in space.configs
    assert len(space.configs) == 5
    assert space.why == "declared"
    with pytest.raises(SpaceError, match="more than a search takes"):
        declared(knobs(), {"TILE_M": list(range(1, 30)), "TILE_N": list(range(1, 30))})
    with pytest.raises(SpaceError, match="NAME=1,2,4"):
        parse_values(["TILE_M"])


def test_a_hint_may_be_left_to_the_compiler() -> None:
    plain = knobs(SCALE_KERNEL.encode())
    space = declared(plain, parse_values(["TILE=32,64", "occupancy=none,2"]))
    assert space.configs == [{}, {"TILE": 32}, {"TILE": 32, "occupancy": 2}, {"TILE": 64, "occupancy": 2}]
    hinted = knobs(SCALE_KERNEL.replace("@ct.kernel", "@ct.kernel(occupancy=4)").encode())
    with pytest.raises(SpaceError, match="not 'none'; a search also takes none, where no kernel has it"):
        declared(hinted, parse_values(["occupancy=none,2"]))
    assert declared(plain, parse_values(["occupancy=None,2"])).configs == [{}, {"occupancy": 2}]
    named = knobs(SCALE_KERNEL.replace("@ct.kernel", "@ct.kernel(occupancy=TILE // 16)").encode())
    with pytest.raises(SpaceError, match="not 'none'"):
        declared(named, parse_values(["occupancy=none,2"]))
    with pytest.raises(SpaceError, match="type int"):
        declared(plain, parse_values(["TILE=none"]))


def test_the_original_is_not_tried_twice() -> None:
    space = declared(knobs(SCALE_KERNEL.encode()), {"TILE": [32, 64]})
    assert space.configs == [{}, {"TILE": 32}]


@pytest.mark.parametrize("kind", list(Kind))
def test_a_proposed_space_is_small_and_knows_its_kernel(kind: Kind) -> None:
    space = proposed(knobs(), kind, "sm_90")
    assert space.configs[0] == {}
    assert 4 <= len(space.configs) <= 30
    assert all(
        set(config) <= {"TILE_M", "TILE_N", "TILE_K", "occupancy", "num_ctas", "num_worker_warps"}
        for config in space.configs
    )
    tiled = any("TILE_M" in config and "TILE_N" in config for config in space.configs)
    assert tiled == (kind is not Kind.ROWS)
    assert not any("num_ctas" in config for config in proposed(knobs(), kind, "sm_80").configs)
    for config in space.configs:
        knobs().variant(config)


def test_nothing_to_search_is_said() -> None:
    with pytest.raises(SpaceError, match="nothing to search"):
        proposed(knobs(b"def entry(x):\n    return x\n"), Kind.ROWS, "sm_90")


@pytest.mark.parametrize(
    ("example", "kind"),
    [("01_rmsnorm_occupancy_only", Kind.ROWS), ("02_matmul_full_search", Kind.MATMUL)],
)
def test_a_kernel_is_taken_for_what_its_source_shows(example: str, kind: Kind) -> None:
    assert kind_of({"k.py": (examples() / example / "fixed_launch.py").read_bytes()}) is kind


def test_attention_has_two_products_and_exponentials() -> None:
    products = b"s = ct.mma(q, k, s)\nout = ct.mma(p, v, out)\n"
    assert kind_of({"k.py": products + b"p = ct.exp2(s)\n"}) is Kind.ATTENTION
    assert kind_of({"k.py": products}) is Kind.MATMUL
    assert kind_of({"k.py": b"acc = tl.dot(a, b, acc)\nout = acc * tl.exp(-acc)\n"}) is Kind.MATMUL
    assert kind_of({"k.py": b"x = ct.exp(x)\n", "notes.md": products}) is Kind.ROWS


def test_the_mean_of_cases_is_geometric() -> None:
    mean = mean_of([Ratio(speedup=2.0, low=1.8, high=2.2), Ratio(speedup=0.5, low=0.45, high=0.55)])
    assert mean.speedup == pytest.approx(1.0)
    assert 0.8 < mean.low < 1.0 < mean.high < 1.2


@pytest.mark.parametrize(
    ("status", "message", "next"),
    [
        (Status.VOID, "no worker", "call autotune again"),
        (Status.NOT_REPLAYED, "it waits for the host", "one by one with run_benchmark"),
        (Status.TIMEOUT, "no answer within 45 s", "need not be the candidate's fault"),
        (Status.OUT_OF_BOUNDS, "the candidate fails as it is: out of bounds", REMEDY),
    ],
)
def test_a_search_that_ended_early_says_whose_fault_it_is(status: Status, message: str, next: str) -> None:
    told = message.removeprefix("the candidate fails as it is: ")
    report = _report(SearchResult(status=status, message=told, task="t", backend="cuda"), {}, "")
    assert report.message == message
    assert next in report.next


def test_hints_are_given_to_the_kernels_that_the_entry_point_may_launch() -> None:
    source = b"""
import cuda.tile as ct
import helpers

@ct.kernel
def near(a): pass

@ct.kernel
def far(a): pass

@ct.kernel
def other(a): pass

KERNELS = {"far": far}

def launch(a):
    ct.launch(0, (1,), KERNELS["far"], (a,))

def entry(a):
    ct.launch(0, (1,), near, (a,))
    launch(a)

def another(a):
    ct.launch(0, (1,), other, (a,))
"""
    found = knobs(source)
    assert [kernel.name for kernel in found.kernels] == ["near", "far"], "the third is launched by another function"
    made = found.variant({"occupancy": 4})["task/kernel.py"].decode()
    assert made.count("@ct.kernel(occupancy=4)") == 2
    assert "@ct.kernel\ndef other" in made


@pytest.mark.parametrize(
    "way",
    [
        "try:\n    def run(a):\n        ct.launch(0, (1,), far, (a,))\nexcept ImportError:\n    run = None",
        "if True:\n    from kernels import far as run",
        "run = {}\nrun['x'] = far",
        "class run:\n    pass\n\nrun.kernel = far",
        "@torch.library.custom_op('my::half', mutates_args=())\ndef half(a):\n    ct.launch(0, (1,), far, (a,))\n\n"
        "run = torch.ops",
        "def half(a):\n    ct.launch(0, (1,), far, (a,))\n\nregister('far', half)\nrun = registered",
    ],
)
def test_a_kernel_that_is_reached_by_a_detour_is_not_left_out(way: str) -> None:
    kernels = "@ct.kernel\ndef near(a): pass\n\n@ct.kernel\ndef far(a): pass\n\n@ct.kernel\ndef other(a): pass\n"
    entry = "def entry(a):\n    near, run\n"
    found = knobs(f"import torch\nimport cuda.tile as ct\n\n{kernels}\n{way}\n\n{entry}".encode())
    assert [kernel.name for kernel in found.kernels] == ["near", "far"]
