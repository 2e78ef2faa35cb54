"""`tilewright init` before it runs anything: what a repository holds, and what is noted of its tests' calls."""

from __future__ import annotations

import functools
import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.attach import called, capture, function
from tilewright.attach.finding import kernels_of, likeliest_test, read_sources
from tilewright.attach.function import shapes_of
from tilewright.attach.inputs import Call, Tensor, inputs_of
from tilewright.attach.repository import Wishes, chosen
from tilewright.attach.trials import Limits, need_no_gpu
from tilewright.attach.writing import frozen_copy
from tilewright.errors import UsageError
from tilewright.repository import Files
from tilewright.task import Backend

FIXTURES = Path(__file__).parents[1] / "repositories"
LIBRARY = {
    "lib/__init__.py": "",
    "lib/ops/__init__.py": "from lib.ops import gelu, rms_norm\n",
    "lib/ops/gelu.py": "import triton\n\n@triton.autotune([])\n@triton.jit\ndef kernel(): ...\n\ndef gelu(x): ...\n",
    "lib/ops/rms_norm.py": "import cuda.tile as ct\n\n@ct.kernel(occupancy=2)\ndef k(): ...\n\ndef rms_norm(x): ...\n",
    "lib/util.py": "def kernel(): ...\n",
    "tests/test_gelu.py": "import lib.ops\n\ndef test_gelu(): lib.ops.gelu(1)\n",
    "tests/test_rms_norm.py": "from lib.ops.rms_norm import rms_norm\n\ndef test_it(): ...\n\ndef test_perf(): ...\n",
    "tests/test_other.py": "import lib.util\n\ndef test_other(): ...\n",
    "benchmarks/bench_gelu.py": "from lib import ops\n\ndef test_bench(): ops.gelu(1)\n",
    "broken.py": "def (:\n",
}


def files(**_: str) -> Files:
    return {name: text.encode() for name, text in LIBRARY.items()}


def test_kernels_are_found_with_what_exercises_them() -> None:
    sources = read_sources(files())
    gelu, norm = sorted(kernels_of(sources), key=lambda one: one.path)
    assert (gelu.module, norm.path) == ("lib.ops.gelu", "lib/ops/rms_norm.py")
    assert likeliest_test(gelu, sources) is sources["tests/test_gelu.py"]
    assert likeliest_test(norm, sources) is sources["tests/test_rms_norm.py"]
    assert sources["tests/test_rms_norm.py"].perf_functions == ("test_perf",)


def test_modules_below_src_are_named_as_they_are_imported() -> None:
    root = FIXTURES / "minigym"
    held = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*.py")}
    sources = read_sources(held)
    [kernel] = kernels_of(sources)
    assert kernel.module == "minigym.ops.cutile.layer_norm"
    assert likeliest_test(kernel, sources) is sources["tests/ops/test_layer_norm.py"]


def test_a_choice_that_is_the_users_is_left_to_them() -> None:
    with pytest.raises(
        UsageError,
        match=r"2 files hold kernels.*\n  --kernel lib/ops/gelu.py, with .*\n  --kernel lib/ops/rms_norm.py, with ",
    ):
        chosen(files(), Wishes())
    assert chosen(files(), Wishes(kernel="lib/ops/gelu.py"))[1].path == "tests/test_gelu.py"
    assert chosen(files(), Wishes(kernel="lib/util.py"))[1].path == "tests/test_other.py"
    with pytest.raises(UsageError, match="found no test that names it; name it with --test"):
        chosen(files() | {"lib/util.py": b"import triton\n"}, Wishes(kernel="lib/__init__.py"))
    with pytest.raises(UsageError, match=r"--kernel nowhere\.py: no such Python file is committed"):
        chosen(files(), Wishes(kernel="nowhere.py"))


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("E  AssertionError: Torch not compiled with CUDA enabled\n1 failed", "E  AssertionError: Torch not compiled"),
        ("RuntimeError: Found no NVIDIA driver", "Found no NVIDIA driver"),
        (
            "AttributeError: module 'torch._C' has no attribute '_cuda_resetPeakMemoryStats'",
            "_cuda_resetPeakMemoryStats",
        ),
        ("requires CUDA", "requires CUDA"),
        ("1 failed", ""),
    ],
)
def test_a_run_that_wants_a_gpu_says_so(said: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.attach.trials.backend_here", lambda: Backend.CPU)
    if not shown:
        need_no_gpu("test_it", said)
        return
    with pytest.raises(UsageError, match="test_it needs a GPU, and this machine has none: ") as raised:
        need_no_gpu("test_it", said)
    assert shown in str(raised.value)


def test_the_file_of_tests_with_the_kernels_own_name_comes_first() -> None:
    texts = {
        "pkg/attention.py": "@ct.kernel\ndef attention(): ...\n",
        "tests/experimental/test_attention_backward.py": "from pkg.attention import attention\n",
        "tests/test_attention.py": "registry.dispatch(1)\n",
    }
    sources = read_sources({path: text.encode() for path, text in texts.items()})
    assert likeliest_test(sources["pkg/attention.py"], sources) is sources["tests/test_attention.py"]


def test_a_call_is_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import inspect

    import torch

    from tilewright.attach import capture

    def function(x: object, y: object = None, eps: float = 1e-6, **more: object) -> None: ...

    noted: dict[str, Any] = {}
    monkeypatch.setattr(capture, "_calls", noted)
    signature = inspect.signature(function)
    for _ in range(2):
        capture.note(signature, (torch.ones(2, 3, dtype=torch.float16),), {"eps": 0.5}, "test_it")
    capture.note(signature, ([1, (2.5, torch.ones(4))], torch.float32), {})
    capture.note(signature, ({},), {})
    capture.note(signature, ({},), {"more": 1, "sizes": (2,)})
    capture.note(signature, (), {"y": 1})
    tensor, listed, other, more = noted.values()
    assert (tensor["tensors"]["x"]["shape"], tensor["tensors"]["x"]["dtype"]) == ([2, 3], "float16")
    assert (tensor["values"], tensor["others"], tensor["packed"]) == ({"eps": 0.5}, {}, {})
    assert tensor["test"] == "test_it"
    assert listed["packed"] == {"x": "[x_0, (x_1_0, x_1_1)]", "y": "getattr(torch, y)"}
    assert listed["values"] == {"x_0": 1, "x_1_0": 2.5, "y": "float32"}
    assert listed["tensors"]["x_1_1"]["shape"] == [4]
    assert other["others"] == {"x": "dict"}
    assert (more["values"], more["packed"]) == ({"more": 1, "sizes_0": 2}, {"sizes": "(sizes_0,)"})


def test_a_function_is_replaced_wherever_it_is_held() -> None:
    from tilewright.attach.capture import replace

    def original() -> str:
        return "original"

    registry, listed = {"op": {"cutile": original}}, [original]

    def through_a_closure(held: Callable[[], str] = original) -> Callable[[], str]:
        return lambda: held()

    inner = through_a_closure()

    @functools.wraps(original)
    def wrapper() -> str:
        return f"noted {original()}"

    replace(original, wrapper)
    assert {registry["op"]["cutile"](), listed[0](), inner()} == {"noted original"}


def test_a_function_that_kernels_call_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler reads its source."""
    (tmp_path / "module_of_kernels.py").write_text(
        "import cuda.tile as ct\n\n\ndef twice(x): return 2 * x\n\n\ndef body(x): return (lambda y: twice(y))(x)\n\n\n"
        "@ct.kernel\ndef kernel(x): ct.store(x, (0,), body(ct.load(x, (0,), (8,))))\n\n\ndef load(x): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert capture.called_by_kernels(importlib.import_module("module_of_kernels")) == {"body", "twice"}


def test_calls_are_noted_until_their_integers_take_too_much_room(monkeypatch: pytest.MonkeyPatch) -> None:
    import inspect

    import torch

    from tilewright.attach import capture

    noted: dict[str, Any] = {}
    monkeypatch.setattr(capture, "_calls", noted)
    monkeypatch.setattr(capture, "RECORDED_TEXT", 2000)
    signature = inspect.signature(lambda x: None)
    for size in (500, 501, 502):
        capture.note(signature, (torch.randint(256, (size,), dtype=torch.uint8),), {})
    capture.note(signature, (torch.ones(9),), {})
    assert [one["tensors"]["x"]["shape"] for one in noted.values()] == [[500], [501], [9]]


def noted_in(folder: Path, calls_of: str) -> list[dict[str, Any]]:
    options = ["--tilewright-calls-of", calls_of, "--tilewright-calls-into", "calls"]
    words = [sys.executable, "-m", "pytest", "-q", "-p", "tilewright.attach.capture", *options]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads((folder / "calls").read_text())
    return found


def test_calls_are_noted_where_tests_are_shared_out(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -n 2 --dist loadfile\n")
    (tmp_path / "ops.py").write_text("def same(x):\n    return x\n")
    (tmp_path / "test_ops.py").write_text("import ops, torch\n\n\ndef test_it():\n    ops.same(torch.ones(3))\n")
    assert [one["test"] for one in noted_in(tmp_path, "ops:same")] == ["test_ops.py::test_it"]


OPS = """
def double(x, out):
    out.copy_(2 * x)
    return out


def count(x, seen):
    seen += 1
    return x + 1


def told(x, seen):
    seen += 1
    return {"out": x + 1}
"""
CALLS = """
import ops, pytest, torch


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("backend", ["none", "torch"])
def test_both(backend, size):
    if backend == "none":
        pytest.skip("not here")
    x = torch.ones(size)
    out = torch.empty_like(x)
    ops.double(x, out)
    ops.double(x, out)
    ops.count(x, torch.zeros(1))
    ops.told(x, torch.zeros(1))
    assert size == 2, "the other sizes end with their last call"
"""


def test_the_first_parameters_of_a_test_run_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(OPS)
    (tmp_path / "test_ops.py").write_text(CALLS)
    noted = noted_in(tmp_path, "ops:")
    assert [(one["function"], one["tensors"]["x"]["shape"], one["written"]) for one in noted] == [
        ("double", [2], ["out"]), ("count", [2], []), ("told", [2], []),
        ("double", [3], ["out"]), ("count", [3], []), ("told", [3], None),
    ]  # fmt: skip


def test_a_folder_of_tests_runs_without_those_that_measure() -> None:
    held = {"tests/test_a.py": b"def test_a(): ...\n", "tests/ops/test_b.py": b"def test_b_perf(): ...\n", "t.py": b""}
    tail = ["--junitxml={junit}"]
    assert called.tests_command("tests", "a or b", held)[3:] == ["tests", "-k", "not test_b_perf and (a or b)", *tail]
    assert called.tests_command("./tests/test_a.py::test_a", "", held)[3:] == ["./tests/test_a.py::test_a", *tail]


@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_integers_are_those_of_the_tests_only_beside_what_is_drawn(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(called, "need_passing", lambda *_: None)
    tensors = {
        "x": Tensor([8], dtype, values={"low": 0, "high": 5}, content="" if dtype == "float32" else "eJwDAAAAAAE=")
    }
    tensors["at"] = Tensor([8], "int32", values={"low": 0, "high": 5}, content="eJwDAAAAAAE=")
    head = {"name": "a", "entry": "a:a", "editable": ["../../a.py"], "frontend": "triton"}
    made = called.by_baseline({}, head, [Call(tensors, {})], ["pytest"], {}, print)
    assert ("calls.json" in dict(made.beside)) is (dtype == "float32")


def test_hidden_calls_are_small_where_kernels_are_interpreted() -> None:
    small, large = {"N": 64, "call": 2000}, {"N": 2**20, "call": 1}
    tables = called._hidden([large, small])
    assert [(table["N"]["choices"], table.get("backend")) for table in tables] == [
        ([2**20], None), ([64], None), ([64], "cpu")
    ]  # fmt: skip
    assert [table["backend"] for table in called._hidden([large])] == ["cuda"]


def test_a_frozen_copy_imports_by_full_names() -> None:
    source = b"from . import a\nfrom .b import (\n    c,\n)\nfrom ..util import d\nimport torch\n"
    assert frozen_copy(source, "src/pkg/ops/gelu.py", "pkg.ops.gelu").splitlines()[1:] == [
        "from pkg.ops import a", "from pkg.ops.b import (", "    c,", ")", "from pkg.util import d", "import torch",
    ]  # fmt: skip
    assert "from pkg.ops.b import c" in frozen_copy(b"from .b import c\n", "pkg/ops/__init__.py", "pkg.ops")


def test_a_shape_is_that_of_all_tensors_or_of_one() -> None:
    assert shapes_of(["4096x8192"])[0] == {"": [4096, 8192]}
    assert shapes_of(["x=4096x8192", "weight=8192"]) == ({"x": [4096, 8192], "weight": [8192]}, {})
    assert shapes_of(["größe=3"])[0] == {"größe": [3]}
    assert shapes_of(["i=3:int64"]) == ({"i": [3]}, {"i": "int64"})
    for wrong in ("4096x", "x=", "0x3", "a-b=3", "3.5", "[3]", "", "x=3=4"):
        with pytest.raises(UsageError, match="a shape is written 4096x8192"):
            shapes_of([wrong])
    with pytest.raises(UsageError, match="x has a shape already"):
        shapes_of(["x=3", "x=4"])


@pytest.mark.parametrize(("frontend", "then"), [("triton", "check"), ("torch", "session start")])
def test_the_next_command_is_one_that_works_without_a_gpu(
    frontend: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(called, "need_passing", lambda *given: None)
    monkeypatch.setattr(called, "backend_here", lambda: Backend.CPU)
    head = {"name": "a", "entry": "a:a", "editable": ["a.py"], "frontend": frontend}
    inputs = inputs_of([Call({"x": Tensor([4, 8], "float32")}, {})])
    monkeypatch.setattr(function, "tried_out", lambda *given: Limits(inputs.cases, [], {}, []))
    proposal = function.completed({}, head, inputs, [], {}, [], print)
    assert proposal.then == then
