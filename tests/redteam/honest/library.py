"""Library calls, where the task allows them."""

from tests.redteam.candidate import Candidate

CANDIDATES = {
    "matmul_torch": Candidate(
        "matmul",
        "Torch's own product, far faster than the incumbent.",
        """
def matmul(a, b):
    return torch.matmul(a, b)
""",
        backend="gpu",
    ),
    "rowsum_torch_product": Candidate(
        "rowsum",
        "Torch's product with a vector of ones, which is made once.",
        """
_ones = {}

def rowsum(x):
    key = (x.shape[1], x.device)
    if key not in _ones:
        _ones[key] = torch.ones(x.shape[1], dtype=x.dtype, device=x.device)
    return torch.mv(x, _ones[key])
""",
        backend="gpu",
    ),
    "scale_torch_out": Candidate(
        "scale",
        "Torch's multiplication into an output of its own.",
        """
def scale(x, factor):
    out = torch.empty_like(x)
    torch.mul(x, factor, out=out)
    return out
""",
        backend="gpu",
    ),
    "scattersum_bincount": Candidate(
        "scattersum",
        "The library's weighted histogram.",
        """
def scattersum(values, keys, count):
    return torch.bincount(keys, weights=values, minlength=count).to(values.dtype)
""",
        backend="gpu",
    ),
    "standardize_compiled": Candidate(
        "standardize",
        "The same operations, compiled by torch.",
        """
@torch.compile(dynamic=True)
def _compiled(x, weight):
    variance, mean = torch.var_mean(x, dim=1, keepdim=True, correction=0)
    return (x - mean) * torch.rsqrt(variance + 1e-5) * weight

def standardize(x, weight):
    return _compiled(x, weight)
""",
    ),
    "standardize_layer_norm": Candidate(
        "standardize",
        "The library's own normalisation, weight and all.",
        """
def standardize(x, weight):
    return torch.nn.functional.layer_norm(x, x.shape[1:], weight, eps=1e-5)
""",
    ),
    "standardize_module_kept": Candidate(
        "standardize",
        "A layer that is made once for each length and given the weight in each call.",
        """
import functools

@functools.lru_cache(maxsize=8)
def _layer(columns):
    return torch.nn.LayerNorm(columns, eps=1e-5, elementwise_affine=False)

def standardize(x, weight):
    with torch.no_grad():
        return _layer(x.shape[1])(x) * weight
""",
    ),
}
