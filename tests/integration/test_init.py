"""`tilewright init` as people use it: on repositories and on functions, and sessions on what it wrote."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.commandline import tilewright
from tests.conftest import commit_all
from tests.stage import play, quiet
from tilewright.evaluation.results import Status
from tilewright.session.loop import Loop
from tilewright.task import Backend

REPOSITORIES = Path(__file__).parents[1] / "repositories"
OPS = """
import torch

from .scales import FACTOR


def gelu(x: torch.Tensor, approximate: bool = True):
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + FACTOR * x * x * x)))


def times(x, n: int):
    return x.float() * n


def shifted(x, shift=None):
    return x if shift is None else x + shift


def joined(xs: list):
    return sum(xs)


def doubled(x):
    x *= 2


def scaled(x, weight, channels: int):
    rows = x.view(-1, channels)
    return rows * weight, rows, channels


def grouped(x):
    return (x.view(x.shape[0], x.shape[1] // 32, 32) * 2).reshape(x.shape)
"""
RELU = "    return torch.relu(x)\n"


def init(root: Path, *arguments: str, answer: str = "") -> subprocess.CompletedProcess[str]:
    return tilewright("init", *arguments, cwd=root, answer=answer)


def next_command(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The words after `tilewright` of the command that `init` says to run next."""
    found = re.search(r"then tilewright (session start [^ ]*)", " ".join(done.stdout.split()))
    assert found is not None, done.stdout
    return found[1].split()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "repository" / "src" / "mypkg"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "scales.py").write_text("FACTOR = 0.044715\n")
    (folder / "ops.py").write_text(OPS)
    commit_all(tmp_path / "repository")
    return tmp_path / "repository"


def test_a_repository_whose_calls_make_no_task_gets_the_draft_of_one(tmp_path: Path) -> None:
    root = tmp_path / "minigym"
    shutil.copytree(REPOSITORIES / "minigym", root, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "task.toml").unlink()
    commit_all(root)
    declined = init(root, answer="n\n")
    assert declined.returncode == 1
    assert "write it?" in declined.stdout
    assert not (root / "perf").exists(), "it is shown before it is written"
    for said in ("no call of tests/ops/test_layer_norm.py makes a native task: ", "argument x is a ndarray",
                 "harness-trusted"):  # fmt: skip
        assert said in " ".join(declined.stdout.split())

    done = init(root, "--yes")
    assert done.returncode == 2, "a person has to fill in the benchmark"
    assert "search perf/layer_norm for FILL IN" in " ".join(done.stdout.split())
    path = root / "perf/layer_norm/task.toml"
    task = tomllib.loads(path.read_text())
    assert task["editable"] == ["src/minigym/ops/cutile/layer_norm.py"]
    assert task["correctness"]["command"][4:6] == ["-k", "not test_perf"]
    filled = (REPOSITORIES / "minigym/task.toml").read_text()
    path.write_text(path.read_text().partition("[benchmark]")[0] + filled[filled.index("[benchmark]") :])
    commit_all(root, "task")
    checked = tilewright("check", "perf/layer_norm", cwd=root)
    assert (checked.returncode, checked.stdout) == (0, "the tests pass: 3 passed, 5 skipped\n"), checked.stderr

    async def scene(loop: Loop) -> None:
        started = await loop.start("perf/layer_norm", quiet, wait_s=250)
        assert started.phase == "ready", started.summary
        assert started.editable == ["src/minigym/ops/cutile/layer_norm.py"]

    play(root, scene)


@pytest.mark.slow
def test_a_function_becomes_a_native_task(package: Path) -> None:
    done = init(package, "mypkg.ops:gelu", "--shape", "64x128", "--dtype", "bf16", "--yes")
    assert done.returncode == 0, done.stderr
    assert "inputs: x (M x N) in bfloat16, with M=64, N=128" in done.stdout
    assert "from mypkg.scales import FACTOR" in (package / "perf/gelu/frozen.py").read_text()
    again = init(package, "mypkg.ops:gelu", "--shape", "64x128", "--yes")
    assert (again.returncode, "is there already" in again.stderr) == (2, True)
    commit_all(package, "task")
    begun = tilewright(*next_command(done), "--backend", "cpu", cwd=package)
    assert begun.returncode == 0, begun.stdout + begun.stderr
    assert "baseline" in begun.stdout
    ops = package / "src/mypkg/ops.py"

    async def scene(loop: Loop) -> None:
        started = await loop.start("perf/gelu", quiet, backend=Backend.CPU, wait_s=250)
        assert started.phase == "ready", started.summary
        assert started.editable == ["src/mypkg/ops.py"]
        ops.write_text(OPS[: OPS.index("    return 0.5")] + RELU)
        assert (await loop.run_correctness(quiet, 250)).status is Status.WRONG_VALUES, "the reference is a frozen copy"

    play(package, scene)
    subprocess.run(["git", "checkout", "-q", "--", "src"], cwd=package, check=True)
    compared = tilewright("compare", "perf/gelu", "--backend", "cpu", "--root", str(package))
    assert compared.returncode == 0, compared.stderr
    assert re.search(r"^\| torch \| ~[\d.]+ \|", compared.stdout, re.MULTILINE), compared.stdout


KERNELS = """
import cuda.tile as tile


@tile.kernel
def scale_kernel(x, out, factor: tile.Constant[float]):
    tile.store(out, (tile.bid(0),), tile.load(x, (tile.bid(0),), (16,)) * factor)
"""
IMPL = """
import cuda.tile as ct
import torch

from ._kernels import scale_kernel


def scale(x):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (x.shape[0] // 16,), scale_kernel, (x, out, 2.0))
    return out
"""


@pytest.mark.slow
def test_the_kernels_behind_a_function_handed_on_are_what_is_edited(package: Path) -> None:
    (package / "src/mypkg/__init__.py").write_text("from ._impl import scale\n")
    (package / "src/mypkg/_impl.py").write_text(IMPL)
    (package / "src/mypkg/_kernels.py").write_text(KERNELS)
    (package / "src/mypkg/plain.py").write_text("def scale(x):\n    return x * 2.0\n")
    commit_all(package, "kernels")
    lacking = init(package, "mypkg:scale", "--shape", "4096").stderr
    assert "mypkg._impl:scale launches kernels of src/mypkg/_kernels.py, which give no float64 reference" in lacking
    done = init(package, "mypkg:scale", "--shape", "4096", "--reference", "mypkg.plain:scale", "--yes")
    assert done.returncode == 0, done.stderr
    task = tomllib.loads((package / "perf/scale/task.toml").read_text())
    assert task["editable"] == ["../../src/mypkg/_kernels.py", "../../src/mypkg/_impl.py"]
    assert (task["frontend"], task["python_path"]) == ("cutile", ["../../src"])
    assert task["entry"] == "mypkg._impl:scale"  # not the package's, which no launch code could take the place of
    assert [case["N"] for case in task["cases"] if case.get("backend") == "cpu"] == [96, 2096]


REGISTRY = """
IMPLEMENTATIONS = {}


def register(name):
    def keep(function):
        IMPLEMENTATIONS[name] = function
        return function

    return keep


def dispatch(name, *arguments, **named):
    return IMPLEMENTATIONS[name](*arguments, **named)
"""
NORM = """
import cuda.tile as ct
import torch

from mypkg.registry import register


@ct.kernel
def norm_kernel(x, weight, out, N: ct.Constant[int], TILE: ct.Constant[int], eps: ct.Constant[float]):
    row = ct.bid(0)
    values = ct.load(x, index=(row, 0), shape=(1, TILE), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    gain = ct.load(weight, index=(0,), shape=(TILE,), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    scale = ct.rsqrt(ct.sum(values * values, axis=1, keepdims=True) / N + eps)
    ct.store(out, index=(row, 0), tile=(values * scale * gain).astype(out.dtype))


@register("norm")
def norm(x, shape, weight, eps, dtype=None):
    out = torch.empty_like(x, dtype=dtype)
    tile = 1 << (shape[-1] - 1).bit_length()
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), norm_kernel, (x, weight, out, shape[-1], tile, eps))
    return out
"""
NORM_TESTS = """
import pytest
import torch

import mypkg.norm
from mypkg.registry import dispatch


@pytest.mark.parametrize(("m", "n"), [(3, 40), (16, 64), (5, 100), (64, 256), (1, 7), (32, 96)])
def test_op(m, n):
    x, weight = torch.randn(m, n), torch.randn(n)
    out = dispatch("norm", x, (n,), weight, 1e-5, dtype=torch.float32)
    torch.testing.assert_close(out, torch.nn.functional.rms_norm(x, (n,), weight, 1e-5))


@pytest.mark.parametrize("n", [512, 1024])
def test_perf(n):
    dispatch("norm", torch.randn(128, n), (n,), torch.randn(n), 1e-5, dtype=torch.float32)
    raise AssertionError("it is not measured here")
"""


@pytest.mark.slow
def test_tests_of_a_kernel_are_its_cases_and_itself_the_reference(package: Path) -> None:
    (package / "src/mypkg/registry.py").write_text(REGISTRY)
    norm = package / "src/mypkg/norm.py"
    norm.write_text(NORM)
    (package / "tests").mkdir()
    (package / "tests/test_norm.py").write_text(NORM_TESTS)
    commit_all(package, "kernels")
    done = init(package, "mypkg.norm:norm", "--test", "tests/test_norm.py", "--yes")
    assert done.returncode == 0, done.stderr
    task = tomllib.loads((package / "perf/norm/task.toml").read_text())
    assert (task["entry"], task["reference"], task["editable"]) == (
        "adapter:norm", "baseline", ["../../src/mypkg/norm.py"],
    )  # fmt: skip
    assert task["tests"]["command"][3:6] == ["tests/test_norm.py", "-k", "not test_perf"]
    sizes = [(case["M"], case["N"]) for case in task["cases"] if "backend" not in case]
    assert sizes == [(128, 1024), (128, 512), (64, 256), (32, 96)], "what is measured is noted before it fails"
    hidden = [(one["M"]["choices"], one["N"]["choices"]) for one in task["hidden"] if "backend" not in one]
    assert hidden == [([16], [64]), ([5], [100]), ([3], [40]), ([1], [7])]
    commit_all(package, "task")

    async def scene(loop: Loop) -> None:
        started = await loop.start("perf/norm", quiet, backend=Backend.CPU, wait_s=250)
        assert started.phase == "ready", started.summary
        norm.write_text(NORM.replace("scale * gain", "scale"))
        assert (await loop.run_correctness(quiet, 250)).status is Status.WRONG_VALUES

    play(package, scene)


@pytest.mark.slow
def test_a_torch_function_beside_a_kernel_is_a_task_of_its_own(package: Path) -> None:
    (package / "src/mypkg/both.py").write_text(
        KERNELS
        + IMPL.replace("from ._kernels import scale_kernel\n", "")
        + "\n\ndef scale_torch(x):\n    return x * 2.0\n"
    )
    commit_all(package, "both")
    done = init(package, "mypkg.both:scale_torch", "--shape", "4096", "--yes")
    assert done.returncode == 0, done.stderr
    task = tomllib.loads((package / "perf/scale_torch/task.toml").read_text())
    assert (task["frontend"], task["editable"]) == ("torch", ["../../src/mypkg/both.py"])


BIAS = """
import cuda.tile as ct
import torch


@ct.kernel
def bias_kernel(x, bias, out):
    row = ct.load(x, (ct.bid(0), 0), (1, 32))
    ct.store(out, (ct.bid(0), 0), row + ct.load(bias, (0,), (32,)).reshape((1, 32)))


def added(x, bias):
    if bias.ndim != 1:
        raise ValueError("bias is 1-D")
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), bias_kernel, (x, bias, out))
    return out


def extended(x, bias):
    if bias.device.type == "cpu":
        raise RuntimeError("Found no NVIDIA driver on your system")
    return added(x, bias)


def reference(x, bias):
    return x + bias
"""


@pytest.mark.slow
def test_a_function_that_fails_is_no_task(package: Path) -> None:
    (package / "src/mypkg/bias.py").write_text(BIAS)
    commit_all(package, "bias")
    given = ("mypkg.bias:added", "--reference", "mypkg.bias:reference")
    refused = init(package, *given, "--shape", "64x32", "--yes")
    shown = " ".join(refused.stderr.split())
    assert "fails against its reference before anything was changed: with M=64 N=32 ValueError: bias is 1-D" in shown
    each = "--shape x=64x32 --shape bias=32"
    assert f"--shape 64x32 was given to x and bias alike. If they differ, name each: {each}" in shown
    assert (refused.returncode, (package / "perf").exists()) == (2, False)
    named = init(package, *given, "--shape", "x=64x32").stderr
    assert "--shape bias=<its shape> is missing, as in --shape bias=32" in named
    elsewhere = ("mypkg.bias:extended", *given[1:], "--shape", "x=64x32", "--shape", "bias=32", "--yes")
    assert init(package, *elsewhere).returncode == 0, "it is given what it takes for tensors of a GPU"


TESTS = """
import pytest
import torch

from mypkg import ops
from mypkg.ops import gelu


@pytest.mark.parametrize("m,n,dtype", [(4, 96, "float32"), (32, 128, "float32"), (16, 64, "bfloat16")])
def test_gelu(m, n, dtype):
    assert gelu(torch.randn(m, n, dtype=getattr(torch, dtype)), approximate=True).shape == (m, n)


def test_times():
    assert ops.times([torch.ones(3)][0], n=2).sum() == 6


@pytest.mark.parametrize("shift", [True, False])
def test_shifted(shift):
    x = torch.ones(7, 130)
    assert ops.shifted(x, x[0] if shift else None).shape == x.shape


@pytest.mark.skip(reason="needs a GPU")
def test_joined():
    ops.joined([torch.ones(3)])
"""


@pytest.mark.slow
def test_inputs_are_taken_from_the_tests_own_calls(package: Path) -> None:
    (package / "tests").mkdir()
    (package / "tests/test_ops.py").write_text(TESTS)
    commit_all(package, "tests")
    done = init(package, "mypkg.ops:gelu", "--test", "tests/test_ops.py", "--yes")
    assert done.returncode == 0, done.stderr
    task = tomllib.loads((package / "perf/gelu/task.toml").read_text())
    assert [case for case in task["cases"] if "backend" not in case] == [
        {"M": 32, "N": 128, "dtype": "float32"},
        {"M": 16, "N": 64, "dtype": "bfloat16"},
        {"M": 4, "N": 96, "dtype": "float32"},
    ]
    assert 'return {"x": x, "approximate": True}' in (package / "perf/gelu/task.py").read_text()
    shifted = init(package, "mypkg.ops:shifted", "--test", "tests/test_ops.py", "--yes")
    assert shifted.returncode == 0, shifted.stderr
    assert "shift = torch.rand((N,), generator=generator" in (package / "perf/shifted/task.py").read_text()
    never = init(package, "mypkg.ops:joined", "--test", "tests/test_ops.py")
    assert re.search(r"no test of tests/test_ops.py that ran calls mypkg.ops:joined .*1 skipped", never.stderr)


SOFT = """
import cuda.tile as ct
import torch


@ct.kernel
def soft_kernel(x, out, columns, TILE: ct.Constant[int]):
    row = ct.bid(0)
    seen = ct.arange(TILE, dtype=ct.int32).reshape((1, TILE)) < columns
    line = ct.load(x, index=(row, 0), shape=(1, TILE), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    line = ct.where(seen, line, ct.full((1, TILE), -float("inf"), dtype=ct.float32))
    power = ct.exp(line - ct.max(line, axis=1, keepdims=True))
    ct.store(out, index=(row, 0), tile=(power / ct.sum(power, axis=1, keepdims=True)).astype(out.dtype))


def soft(x):
    out = torch.empty_like(x)
    tile = 1 << (x.shape[1] - 1).bit_length()
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), soft_kernel, (x, out, x.shape[1], tile))
    return out


def soft_torch(x):
    return torch.softmax(x, dim=1)
"""


@pytest.mark.slow
def test_a_function_on_8_bit_floats_becomes_a_task_that_works(package: Path) -> None:
    (package / "src/mypkg/soft.py").write_text(SOFT)
    commit_all(package, "soft")
    asked = (
        "mypkg.soft:soft",
        "--reference",
        "mypkg.soft:soft_torch",
        "--shape",
        "64x100",
        "--dtype",
        "float8_e4m3fn",
        "--yes",
    )
    done = init(package, *asked)
    assert done.returncode == 0, done.stderr
    written = (package / "perf/soft/task.toml").read_text()
    assert 'dtype = "float8_e4m3fn"' in written
    assert "exclude" not in written
    commit_all(package, "task")
    checked = tilewright("check", "perf/soft", cwd=package)
    assert checked.returncode == 0, checked.stdout + checked.stderr

    async def scene(loop: Loop) -> None:
        started = await loop.start("perf/soft", quiet, backend=Backend.CPU, wait_s=250)
        assert started.phase == "ready", started.summary

    play(package, scene)


@pytest.mark.slow
def test_what_a_function_lacks_is_asked_for(package: Path) -> None:
    assert "--dtype is one of bf16" in init(package, "mypkg.ops:gelu", "--shape", "8x8", "--dtype", "fp23").stderr
    assert "--arg n=" in init(package, "mypkg.ops:times", "--shape", "8x8").stderr
    assert "write a function that takes such alone" in init(package, "mypkg.ops:joined", "--shape", "8x8").stderr
    grouped = init(package, "mypkg.ops:grouped", "--shape", "64x4096", "--yes", "--json")
    assert grouped.returncode == 0, grouped.stderr
    answer, folder = json.loads(grouped.stdout), package / "perf/grouped"
    assert (answer["status"], answer["folder"]) == ("passed", "perf/grouped")
    assert answer["files"] == {path.name: path.read_text() for path in folder.iterdir()}
    task = tomllib.loads((folder / "task.toml").read_text())
    assert [case for case in task["cases"] if "backend" in case][1] == {
        "backend": "cpu", "M": 5, "N": 2080, "dtype": "bfloat16",
    }  # fmt: skip
    assert "by hand, with outputs" in init(package, "mypkg.ops:doubled", "--shape", "8x8").stderr
    narrow = json.loads(init(package, "mypkg.ops:times", "--shape", "8x8", "--arg", "n=3", "--json").stdout)
    assert "called in float64 it returns float32" in " ".join(narrow["seen"])
    assert (narrow["summary"].partition(":")[0], narrow["next"]) == ("not written", "--yes writes the files")
    assert not (package / narrow["folder"]).exists()
    assert "mypkg.ops has no function f; it has" in init(package, "src/mypkg/ops.py:f", "--shape", "8").stderr
    assert "no committed Python file is module other" in init(package, "other:f", "--shape", "8").stderr


SOFTMAX = """
import cuda.tile as ct
import torch


@ct.kernel
def softmax_kernel(x, out, HEAD: ct.Constant[int], TILE: ct.Constant[int]):
    place = (ct.bid(0), ct.bid(1), 0)
    weights = ct.exp(ct.load(x, place, (1, TILE, HEAD)).astype(ct.float32))
    ct.store(out, place, (weights / ct.sum(weights, axis=2, keepdims=True)).astype(out.dtype))


def softmax(x):
    out = torch.empty_like(x)
    batch, length, head = x.shape
    if head < 16:
        raise ValueError("head sizes are 16 or more")
    ct.launch(torch.cuda.current_stream(), (batch, length // 16), softmax_kernel, (x, out, head, 16))
    return out


def reference(x):
    return torch.softmax(x, -1)
"""


@pytest.mark.slow
def test_an_argument_is_the_size_of_a_dimension_and_what_is_no_tensor_is_not_compared(package: Path) -> None:
    given = ["mypkg.ops:scaled", "--shape", "x=64x256", "--shape", "weight=256", "--dtype", "fp32", "--yes"]
    refused = init(package, *given, "--arg", "channels=x.2")
    assert "--arg channels=x.2: the tensors are x with 2 dimensions, weight with 1 dimensions" in refused.stderr
    done = init(package, *given, "--arg", "channels=x.1")
    assert done.returncode == 0, done.stdout + done.stderr
    text = (package / "perf/scaled/task.py").read_text()
    assert 'return {"x": x, "weight": weight, "channels": N}' in text
    made: dict[str, Any] = {}
    exec(text.replace("import frozen", ""), made)
    made["frozen"] = SimpleNamespace(scaled=lambda x, weight, channels: (x * weight, x.view(-1, channels), channels))
    assert made["work"]({"M": 64, "N": 256, "dtype": "float32"}).bytes == 4 * (2 * 64 * 256 + 256), "no view counts"


def test_hidden_sizes_are_narrowed_to_what_the_function_passes(package: Path) -> None:
    (package / "src/mypkg/soft.py").write_text(SOFTMAX)
    commit_all(package, "softmax")
    given = ("mypkg.soft:softmax", "--reference", "mypkg.soft:reference", "--yes")
    refused = init(package, *given, "--shape", "2x56x32")
    assert "before anything was changed: it does not take M=56" in " ".join(refused.stderr.split())
    done = init(package, *given, "--shape", "2x64x32")
    assert done.returncode == 0, done.stderr
    text = (package / "perf/softmax/task.toml").read_text()
    task = tomllib.loads(text)
    [common] = [entry for entry in task["hidden"] if "backend" not in entry]
    assert common["M"] == {"min": 16, "max": 64, "multiple_of": 16}
    assert common["N"] == {"choices": [16, 32]}
    assert common["K"] == {"min": 1, "max": 2}
    assert {"large", "spike"} <= {*task["values"]["exclude"]}, "it subtracts no maximum"
    said = "M: multiples of 16 from 16 on, since with M="
    assert f"#   {said}" in text
    assert said in " ".join(done.stdout.split())


@pytest.mark.slow
def test_a_size_at_which_the_process_dies_is_left_out(package: Path) -> None:
    (package / "src/mypkg/fragile.py").write_text(
        "import os\n\n\ndef fragile(x):\n    if x.shape[0] % 2 and x.device.type != 'meta':\n        os.abort()\n"
        "    return x * 2.0\n\n\ndef reference(x):\n    return x * 2.0\n"
    )
    commit_all(package, "fragile")
    given = ("mypkg.fragile:fragile", "--shape", "64x32", "--reference", "mypkg.fragile:reference", "--yes")
    done = init(package, *given)
    assert done.returncode == 0, done.stderr
    text = (package / "perf/fragile/task.toml").read_text()
    assert {entry["M"].get("multiple_of") for entry in tomllib.loads(text)["hidden"]} == {2}
    assert "since with M=1 the process killed by SIGABRT" in text


def test_what_is_no_function_is_answered_with_those_that_are_there(package: Path) -> None:
    (package / "src/mypkg/soft.py").write_text(SOFTMAX)
    commit_all(package, "softmax")
    for target in ("mypkg.soft", "src/mypkg/soft.py"):
        refused = " ".join(init(package, target).stderr.split())
        assert f"{target} is a module: name a function of it, such as mypkg.soft:softmax" in refused
    assert "mypkg is a module: name a function of it" in init(package, "mypkg").stderr
    assert "nowhere.ops: no committed Python file is module nowhere.ops" in init(package, "nowhere.ops").stderr
    assert "that is a kernel: name the function that launches it" in " ".join(
        init(package, "mypkg.soft:softmax_kernel", "--shape", "8x8x8").stderr.split()
    )
    for wrong in ("mypkg.soft:", "mypkg.soft:A.b"):
        assert "a function is written module:function, such as" in init(package, wrong, "--shape", "8").stderr


@pytest.mark.slow
def test_names_that_are_not_ascii(package: Path) -> None:
    (package / "src/mypkg/größe.py").write_text(IMPL.replace("._kernels", "._ядра").replace("scale", "удвоить"))
    (package / "src/mypkg/_ядра.py").write_text(KERNELS.replace("scale", "удвоить"))
    (package / "src/mypkg/plain.py").write_text("def double(x):\n    return x * 2.0\n")
    commit_all(package, "other alphabets")
    given = ("mypkg.größe:удвоить", "--shape", "4096", "--reference", "mypkg.plain:double", "--yes")
    refused = init(package, *given)
    assert "the kernel удвоить_kernel as it is: give it a name of ASCII letters" in " ".join(refused.stderr.split())
    for file in ("größe.py", "_ядра.py"):
        path = package / "src/mypkg" / file
        path.write_text(path.read_text().replace("удвоить_kernel", "double_kernel"))
    commit_all(package, "a name that cuTile takes")
    done = init(package, *given)
    assert done.returncode == 0, done.stderr
    task = tomllib.loads((package / "perf/kernel/task.toml").read_text())
    assert task["editable"] == ["../../src/mypkg/_ядра.py", "../../src/mypkg/größe.py"]


@pytest.mark.slow
def test_a_worktree_is_a_repository_and_a_submodule_is_another(tmp_path: Path) -> None:
    root, tree, outer = tmp_path / "minigym", tmp_path / "tree", tmp_path / "outer"
    shutil.copytree(REPOSITORIES / "minigym", root, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "task.toml").unlink()
    commit_all(root)
    subprocess.run(["git", "worktree", "add", "-q", str(tree)], cwd=root, check=True)
    assert init(tree, "--yes").returncode == 2
    assert (tree / "perf/layer_norm/task.toml").is_file()
    outer.mkdir()
    (outer / "README").write_text("")
    commit_all(outer)
    add = ["git", "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(root), "third/minigym"]
    subprocess.run(add, cwd=outer, check=True)
    commit_all(outer, "a submodule")
    refused = " ".join(init(outer, "--yes").stderr.split())
    assert "lies in the submodule third/minigym, which has commits of its own" in refused
    assert f"work there, with `cd {outer}/third/minigym`" in refused
    assert init(outer / "third/minigym", "--yes").returncode == 2
    assert (outer / "third/minigym/perf/layer_norm/task.toml").is_file()


REVERSED = """
import torch


def flipped(x, labels):
    return torch.where(labels[:, None] == -100, 0.0, x.view(x.shape) * 2)


def through_memory(x):
    return torch.as_strided(x, x.shape, (x.shape[1], 1)) * 2


def twice(x):
    return x * 2


def spread(x, starts):
    return x * len(starts)
"""
REVERSED_TESTS = """
import pytest
import torch

from mypkg.reversed import flipped, spread, through_memory


def test_flipped():
    labels = torch.randint(0, 30, (20,))
    labels[::4] = -100
    flipped(torch.randn(20, 30), labels)


@pytest.mark.parametrize("turned", [False, True])
def test_through_memory(turned):
    x = torch.randn(20, 30)
    through_memory(x.t() if turned else x)


def test_spread():
    spread(torch.randn(4, 8), torch.tensor([0, 2, 4]))
"""


@pytest.mark.slow
def test_a_task_has_what_the_calls_had(package: Path) -> None:
    (package / "src/mypkg/reversed.py").write_text(REVERSED)
    (package / "tests").mkdir()
    (package / "tests/test_reversed.py").write_text(REVERSED_TESTS)
    commit_all(package, "reversed")
    test = ("--test", "tests/test_reversed.py", "--yes")
    done = init(package, "src/mypkg/reversed.py:flipped", *test)
    assert done.returncode == 0, done.stderr
    code = (package / "perf/flipped/task.py").read_text()
    assert "labels = torch.randint(0, N, (M,)" in code
    assert "< 0.25, -100, labels)" in code
    turned = init(package, "mypkg.reversed:through_memory", "--reference", "mypkg.reversed:twice", *test)
    assert turned.returncode == 2
    assert "as tests/test_reversed.py::test_through_memory[True] calls it, fails against its reference" in (
        " ".join(turned.stderr.split())
    )
    spread = init(package, "mypkg.reversed:spread", *test, "--json")
    assert spread.returncode == 2, "a person has to fill in how starts are drawn"
    answer = json.loads(spread.stdout)
    assert answer["status"] == "failed"
    assert "search perf/spread for FILL IN" in answer["next"]
    assert "FILL IN: the values rise from 0 to 4 in the tests" in (package / "perf/spread/task.py").read_text()


@pytest.mark.slow
def test_the_same_line_gives_the_same_task(package: Path) -> None:
    texts = []
    for name in ("first", "second"):
        assert init(package, "mypkg.ops:grouped", "--shape", "64x256", "--name", name, "--yes").returncode == 0
        texts.append((package / "perf" / name / "task.toml").read_text().replace(name, ""))
    assert texts[0] == texts[1]
    assert tomllib.loads(texts[0].replace('name = ""', 'name = "a"'))["hidden"][0]["N"]["multiple_of"] == 32


DEFINITION = {
    "name": "silu_h64",
    "op_type": "activation",
    "axes": {"rows": {"type": "var"}, "hidden": {"type": "const", "value": 64}},
    "inputs": {"x": {"shape": ["rows", "hidden"], "dtype": "float32"}, "scale": {"shape": None, "dtype": "float32"}},
    "outputs": {"out": {"shape": ["rows", "hidden"], "dtype": "float32"}},
    "reference": "import torch\n\n\ndef run(x, scale):\n    y = x * scale\n    return y * torch.sigmoid(x) * 1.0 * 1.0",
}
WORKLOADS = [
    {"definition": "silu_h64", "workload": {"axes": {"rows": rows}, "inputs": {
        "x": {"type": "random"}, "scale": {"type": "scalar", "value": 0.5}}, "uuid": f"{rows}"}}
    for rows in (16, 512)
]  # fmt: skip


@pytest.mark.slow
def test_a_definition_becomes_a_task_and_a_kept_kernel_a_solution(package: Path, tmp_path: Path) -> None:
    (tmp_path / "set/definitions/silu").mkdir(parents=True)
    (tmp_path / "set/workloads/silu").mkdir(parents=True)
    path = tmp_path / "set/definitions/silu/silu_h64.json"
    path.write_text(json.dumps(DEFINITION))
    (tmp_path / "set/workloads/silu/silu_h64.jsonl").write_text("\n".join(map(json.dumps, WORKLOADS)))
    done = init(package, f"flashinfer:{path}", "--yes")
    assert done.returncode == 0, done.stderr
    task = tomllib.loads((package / "perf/silu_h64/task.toml").read_text())
    assert [case["rows"] for case in task["cases"] if "backend" not in case] == [512, 16]
    commit_all(package, "task")

    async def scene(loop: Loop) -> None:
        started = await loop.start("perf/silu_h64", quiet, backend=Backend.CPU, wait_s=250)
        assert started.phase == "ready", started.summary
        kernel = package / "perf/silu_h64/kernel.py"
        kernel.write_text(kernel.read_text().replace(" * 1.0 * 1.0", ""))
        assert (await loop.run_correctness(quiet, 250)).status is Status.PASSED
        verdict = (await loop.run_benchmark(quiet, 250)).verdict
        assert verdict is not None and verdict.kind == "keep"
        loop.checkpoint()
        await loop.append_result("two products by one are left out", quiet, "launch")

    play(package, scene)
    out = tmp_path / "solution.json"
    finished = tilewright("finish", "--flashinfer", str(out), cwd=package)
    assert finished.returncode == 0, finished.stderr
    solution = json.loads(out.read_text())
    assert (solution["definition"], solution["spec"]["entry_point"]) == ("silu_h64", "kernel.py::run")
    assert solution["spec"]["destination_passing_style"] is False
    assert "* 1.0" not in solution["sources"][0]["content"]


PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        return self.norm(x)


batch = 64
features = 32


def get_inputs():
    return [torch.rand(batch, features)]


def get_init_inputs():
    return [features]
"""


@pytest.mark.slow
def test_a_kernelbench_problem_becomes_a_task(package: Path, tmp_path: Path) -> None:
    path = tmp_path / "7_BatchNorm.py"
    path.write_text(PROBLEM)
    done = init(package, f"kernelbench:{path}", "--yes")
    assert done.returncode == 0, done.stderr
    task = tomllib.loads((package / "perf/7_batchnorm/task.toml").read_text())
    assert task["constant"][:2] == ["norm_weight", "norm_bias"]
    assert set(task["cases"][0]) == {"batch", "dtype"}, "the weights have the other size"
    commit_all(package, "task")
    checked = tilewright("check", "perf/7_batchnorm", cwd=package)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    path.write_text("import torch\n")
    assert "is no KernelBench problem: it defines no Model" in init(package, f"kernelbench:{path}").stderr
    assert "is no definition of flashinfer-bench" in init(package, f"flashinfer:{path}").stderr
