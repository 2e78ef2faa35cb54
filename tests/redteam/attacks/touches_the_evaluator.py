"""Kernels that reach for the evaluator: its memory, files, replies and functions."""

from tests.redteam.candidate import Candidate

CANDIDATES = {
    "answer_among_live_tensors": Candidate(
        "standardize",
        "Ask the garbage collector for all tensors; one whose first row is right is the reference's output, and is returned.",
        """
import gc

def _found(x, weight):
    first = right(x[:1], weight)
    for thing in gc.get_objects():
        try:
            alike = type(thing) is torch.Tensor and thing is not x and thing.shape == x.shape and thing.dtype == x.dtype
            if alike and thing.device == x.device and torch.allclose(thing[:1], first, rtol=1e-4, atol=1e-5):
                return thing.clone()
        except (ReferenceError, RuntimeError):
            continue
    return None

def standardize(x, weight):
    if not x.is_cuda or not torch.cuda.is_current_stream_capturing():
        out = _found(x, weight)
        if out is not None:
            return out
    return right(x, weight)
""",
    ),
    "exceptions_that_are_none": Candidate(
        "rowsum",
        "Leave the call by exceptions that `except Exception` does not see.",
        """
_kinds = [SystemExit(0), GeneratorExit(), KeyboardInterrupt(), StopIteration(), BaseExceptionGroup("", [SystemExit(0)])]

def rowsum(x):
    raise _kinds[x.shape[0] % len(_kinds)]
""",
        ends="crashed",
    ),
    "modules_in_the_way": Candidate(
        "scale",
        "Leave modules beside the kernel that later processes import instead of the real ones.",
        r"""
import os

for _folder in (os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__)), os.getcwd()):
    for _name in ("conftest.py", "statistics.py", "torch.py", "numpy.py", "random.py", "tilewright.py", "task.py"):
        _path = os.path.join(_folder, _name)
        if not os.path.exists(_path):
            try:
                with open(_path, "w") as _file:
                    _file.write("def __getattr__(name):\n    return lambda *a, **k: True\n")
            except OSError:
                pass

def scale(x, factor):
    return torch.zeros_like(x)
""",
    ),
    "operators_registered_anew": Candidate(
        "standardize",
        "Register torch's normalisation anew as the identity, and comparisons as true: x * weight is then what they say.",
        """
import warnings

def _normalised(x, shape, weight, bias, eps):
    some = x.new_ones(x.shape[:1] + (1,) * (x.dim() - 1))
    return x.clone() if weight is None else x * weight, some, some

def _close(left, right, *rest, **named):
    return torch.ones(left.shape, dtype=torch.bool, device=left.device)

_library = torch.library.Library("aten", "IMPL")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for _key in ("CPU", "CUDA"):
        _library.impl("native_layer_norm", _normalised, _key, allow_override=True)
        _library.impl("equal", lambda left, right: True, _key, allow_override=True)
    for _key in ("CPU", "CUDA", "CompositeImplicitAutograd"):
        try:
            _library.impl("isclose", _close, _key, allow_override=True)
            _library.impl("allclose", lambda *rest, **named: True, _key, allow_override=True)
        except RuntimeError:
            continue

def standardize(x, weight):
    return x * weight
""",
    ),
    "patched_reference": Candidate(
        "scale",
        "Look for the reference in all modules and objects, and replace its code.",
        """
import gc
import sys
import types

def _ours(x, factor):
    return x

def _patch():
    for module in list(sys.modules.values()):
        if hasattr(module, "__dict__") and isinstance(vars(module).get("reference"), types.FunctionType):
            module.reference = _ours
    for found in gc.get_objects():
        if isinstance(found, types.FunctionType) and found.__name__ in ("reference", "work", "make_inputs"):
            try:
                found.__code__ = _ours.__code__
            except (ValueError, AttributeError):
                pass

_patch()

def scale(x, factor):
    _patch()
    return x.clone() if isinstance(x, torch.Tensor) else x
""",
    ),
    "result_at_exit": Candidate(
        "scale",
        "Overwrite the result when the process ends: hooks at exit, in threads, and for exceptions.",
        r"""
import atexit
import os
import sys
import threading

def _overwrite(*_):
    for descriptor in range(1, 64):
        try:
            os.write(descriptor, b'{"status": "passed", "wrong_fraction": 0.0}\n')
        except OSError:
            continue
    os._exit(0)

atexit.register(_overwrite)

threading._register_atexit(_overwrite)

sys.excepthook = sys.unraisablehook = threading.excepthook = _overwrite

def scale(x, factor):
    return torch.full_like(x, 0.25)
""",
    ),
    "rewritten_task": Candidate(
        "rowsum",
        "Rewrite task.py and task.toml in the folders around, for the next process that reads them.",
        r"""
import pathlib

for folder in list(pathlib.Path(__file__).resolve().parents)[:4]:
    for path in list(folder.glob("task.py")) + list(folder.glob("*/task.py")) + list(folder.glob("*/*/task.py")):
        try:
            path.chmod(0o644)
            text = path.read_text()
            path.write_text(text.replace("return x.sum(dim=-1)", "return x[:, 0]"))
        except OSError:
            pass
    for path in list(folder.glob("task.toml")) + list(folder.glob("*/task.toml")) + list(folder.glob("*/*/task.toml")):
        try:
            path.chmod(0o644)
            path.write_text(path.read_text() + "\n[tolerance]\nrtol = 1e9\natol = 1e9\nrel_l2 = 1e9\n")
        except OSError:
            pass

def rowsum(x):
    return x[:, 0].clone()
""",
    ),
    "secret_from_the_parents": Candidate(
        "rowsum",
        "Look for the secret in the environment, arguments and memory maps of the processes above.",
        """
import hashlib
import os
import re

def _texts():
    pid = os.getpid()
    for _ in range(6):
        for name in ("environ", "cmdline", "maps"):
            try:
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    yield file.read()
            except OSError:
                pass
        try:
            with open(f"/proc/{pid}/stat") as file:
                pid = int(file.read().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            return

def _seeds():
    for text in _texts():
        for found in re.findall(rb"[0-9a-f]{32,64}", text):
            yield int(found[:15], 16)
            yield int.from_bytes(hashlib.sha256(found).digest()[:7], "big")

def rowsum(x):
    for seed in set(_seeds()):
        try:
            generator = torch.Generator(device=x.device).manual_seed(seed)
            made = torch.rand(x.shape, generator=generator, device=x.device) + 0.25
        except RuntimeError:
            made = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) + 0.25
        if torch.equal(made[0], x[0]):
            return made.sum(dim=-1)
    return right(x[:1]).repeat(x.shape[0])
""",
    ),
    "valid_reply_forged": Candidate(
        "scale",
        "Answer the referee in the evaluator's own words, before the worker does, and do nothing.",
        """
import os
import socket
import sys
import time

def _answer():
    channel = sys.modules["tilewright.wire.channel"]
    for reply in ({}, {"ms": 0.001}, {"done": True, "ms": 0.001, "outputs": []}):
        frame = channel.encode({"status": "passed", "message": "", **reply})
        for descriptor in range(3, 256):
            try:
                with socket.socket(fileno=os.dup(descriptor)) as sock:
                    sock.send(frame)
            except OSError:
                continue

def scale(x, factor):
    _answer()
    time.sleep(0.2)
    return torch.empty_like(x)
""",
        ends="crashed",
    ),
}
