"""Other Python around the launch."""

from tests.redteam.candidate import Candidate

CANDIDATES = {
    "scale_cached_config": Candidate(
        "scale",
        "A launch configuration that is computed once for each size.",
        """
import functools

@functools.cache
def _tile(length):
    return 4096 if length > 100000 else 256

def scale(x, factor):
    out, tile = torch.empty_like(x), _tile(x.shape[0])
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], tile),), scale_kernel, (x, out, factor, tile))
    return out
""",
    ),
    "scale_callable_object": Candidate(
        "scale",
        "An entry point that is an object with a call method.",
        """
class Scale:
    def __init__(self, tile):
        self.tile = tile
        self.calls = 0

    def __call__(self, x, factor):
        self.calls += 1
        out = torch.empty_like(x)
        grid = (ct.cdiv(x.shape[0], self.tile),)
        ct.launch(torch.cuda.current_stream(), grid, scale_kernel, (x, out, factor, self.tile))
        return out

scale = Scale(1024)
""",
    ),
    "scale_decorated": Candidate(
        "scale",
        "An entry point under no_grad and inference_mode decorators.",
        """
TILE = 1024

@torch.no_grad()
def _inner(x, factor):
    return right(x, factor)

@torch.inference_mode()
def scale(x, factor):
    return _inner(x, factor)
""",
    ),
    "scale_helper_functions": Candidate(
        "scale",
        "A kernel that calls functions of its own, with arithmetic in two steps.",
        """
def _times(values, factor):
    return values * factor

@ct.function
def _read(x, block, T: ct.Constant[int]):
    return ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
""",
        edits={
            "TILE = 128": "TILE = 1024",
            "ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)": "_read(x, block, T)",
            "values * factor": "_times(values, factor)",
        },
    ),
    "scale_lazy_imports": Candidate(
        "scale",
        "Modules that are imported in the first call.",
        """
def scale(x, factor):
    import importlib

    import cuda.tile as ct

    json, math = importlib.import_module("json"), importlib.import_module("math")
    tile = json.loads("1024")
    if "kernel" not in globals():

        @ct.kernel
        def kernel(x, out, factor, T: ct.Constant[int]):
            values = ct.load(x, index=(ct.bid(0),), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
            ct.store(out, index=(ct.bid(0),), tile=values * factor)

        globals()["kernel"] = kernel
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (math.ceil(x.shape[0] / tile),), globals()["kernel"], (x, out, factor, tile))
    return out
""",
    ),
    "scale_partial": Candidate(
        "scale",
        "An entry point that is a partial application, with keyword arguments.",
        """
import functools

def _scale(x, factor, *, tile):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], tile),), scale_kernel, (x, out, factor, tile))
    return out

scale = functools.partial(_scale, tile=1024)
""",
    ),
    "scale_prints": Candidate(
        "scale",
        "A wrapper that prints and logs in its first calls.",
        """
import logging
import sys
import warnings

TILE = 1024

_calls = [0]

def scale(x, factor):
    _calls[0] += 1
    if _calls[0] < 4:
        print("scale", tuple(x.shape), factor, x.dtype, flush=True)
        print("status: passed", file=sys.stderr)
        logging.getLogger("scale").warning("call %d", _calls[0])
        warnings.warn("first calls compile", stacklevel=1)
    return right(x, factor)
""",
    ),
    "scale_thread_joined": Candidate(
        "scale",
        "A launch from a thread that is joined before the call returns.",
        """
import threading

TILE = 1024

def scale(x, factor):
    made, stream = [], torch.cuda.current_stream()

    def work():
        with torch.cuda.stream(stream):
            made.append(right(x, factor))

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    return made[0]
""",
    ),
}
