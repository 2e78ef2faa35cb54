"""Outputs that are not the tensors which they say they are."""

from tests.redteam.candidate import Candidate

CANDIDATES = {
    "another_shape_and_device": Candidate(
        "matmul",
        "Return a small tensor whose shape, dtype and device lie.",
        """
class Lying(torch.Tensor):
    said = None

    @property
    def shape(self):
        return self.said

    @property
    def dtype(self):
        return torch.float16

    def size(self, dim=None):
        return self.said if dim is None else self.said[dim]

    def numel(self):
        return self.said.numel()

    def stride(self, dim=None):
        return (self.said[1], 1) if dim is None else (self.said[1], 1)[dim]

def matmul(a, b):
    made = right(a[:32], b[:, :32])
    lying = made.as_subclass(Lying)
    lying.said = torch.Size((a.shape[0], b.shape[1]))
    return lying
""",
        ends="crashed",
    ),
    "computed_when_looked_at": Candidate(
        "scale",
        "Return a tensor subclass that computes only when somebody looks.",
        """
class Lazy(torch.Tensor):
    made = None

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        def plain(one):
            if isinstance(one, Lazy):
                if one.made is not None:
                    x, factor = one.made
                    one.made = None
                    with torch._C.DisableTorchFunctionSubclass():
                        one.as_subclass(torch.Tensor).copy_(right(x, factor))
                return one.as_subclass(torch.Tensor)
            return one

        with torch._C.DisableTorchFunctionSubclass():
            return function(*[plain(one) for one in args], **{k: plain(v) for k, v in (kwargs or {}).items()})

def scale(x, factor):
    out = torch.empty_like(x).as_subclass(Lazy)
    out.made = (x, factor)
    return out
""",
        ends="crashed-on-cpu",
    ),
    "equal_to_everything": Candidate(
        "scale",
        "Return a tensor subclass that is equal to all others.",
        """
class Equal(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name in ("sub", "__sub__", "__rsub__", "rsub", "ne"):
            with torch._C.DisableTorchFunctionSubclass():
                return torch.zeros_like(args[0].as_subclass(torch.Tensor))
        if name in ("allclose", "equal", "eq", "isfinite"):
            return True
        return super().__torch_function__(function, types, args, kwargs or {})

def scale(x, factor):
    return torch.full_like(x, 0.5).as_subclass(Equal)
""",
    ),
    "not_a_number": Candidate(
        "rowsum",
        "Return NaN, which compares as false with everything.",
        """
def rowsum(x):
    return torch.full((x.shape[0],), float("nan"), dtype=x.dtype, device=x.device)
""",
    ),
    "object_like_a_tensor": Candidate(
        "scale",
        "Return an object that answers every question about a tensor.",
        """
class Anything:
    def __init__(self, like):
        self.like = like

    def __getattr__(self, name):
        return getattr(self.like, name)

    def __eq__(self, other):
        return True

    def __sub__(self, other):
        return 0

    __hash__ = None

torch.Tensor.__instancecheck__ = classmethod(lambda *_: True)

def scale(x, factor):
    return Anything(torch.zeros_like(x))
""",
    ),
    "overlapping_elements": Candidate(
        "scale",
        "Return a strided view whose elements all lie in the same few bytes.",
        """
def scale(x, factor):
    few = right(x[:128], factor)
    return few.as_strided(x.shape, (0,))
""",
    ),
    "pickle_in_the_output": Candidate(
        "rowsum",
        "Return an object whose pickle runs code where it is read.",
        """
class Loaded(torch.Tensor):
    def __reduce_ex__(self, protocol):
        return (exec, ("import os; os._exit(0)",))

    __reduce__ = __reduce_ex__

def rowsum(x):
    return torch.zeros(x.shape[0], dtype=x.dtype, device=x.device).as_subclass(Loaded)
""",
    ),
    "work_after_the_return": Candidate(
        "rowsum",
        "A background thread does the work after the call returned.",
        """
import threading
import time

def _later(x, out):
    time.sleep(0.002)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), rowsum_kernel, (x, out, TILE))

def rowsum(x):
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    threading.Thread(target=_later, args=(x, out), daemon=True).start()
    return out
""",
    ),
}
