"""Kernels that leave the product to a library, which the task forbids."""

from tests.redteam.candidate import Candidate

CANDIDATES = {
    "library_compiled": Candidate(
        "product",
        "Let torch.compile generate the kernel.",
        """
@torch.compile
def _compiled(a, b):
    return (a.float() @ b.float()).to(a.dtype)

def product(a, b):
    right(a[:1], b)
    return _compiled(a, b)
""",
    ),
    "library_for_ragged_sizes": Candidate(
        "product",
        "Call the library where no tile divides the sizes.",
        """
def product(a, b):
    if a.shape[0] % TM == 0:
        return right(a, b)
    return torch.mm(a, b)
""",
    ),
    "library_in_an_early_thread": Candidate(
        "product",
        "Leave the product to a thread that was started at import, where no call is counted.",
        """
import queue
import threading

_asked, _made = queue.Queue(), queue.Queue()

def _serve():
    while True:
        a, b = _asked.get()
        out = torch.mm(a, b)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        _made.put(out)

threading.Thread(target=_serve, daemon=True).start()

def product(a, b):
    _asked.put((a, b))
    right(a[:1], b)
    return _made.get()
""",
        backend="gpu",
    ),
    "library_then_copied": Candidate(
        "product",
        "Call the library, and let a kernel of its own copy the product.",
        """
@ct.kernel
def copy_kernel(source, out, M: ct.Constant[int], N: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    values = ct.load(source, index=(row, column), shape=(M, N), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(row, column), tile=values)

def copied(source):
    out = torch.empty_like(source)
    grid = (ct.cdiv(out.shape[0], TM), ct.cdiv(out.shape[1], TN))
    ct.launch(torch.cuda.current_stream(), grid, copy_kernel, (source, out, TM, TN))
    return out

def product(a, b):
    return copied(torch.mm(a, b))
""",
    ),
}
