"""torch in the process that runs candidates.

Kernels of torch.compile fail with Triton's errors. Libraries stay loaded, and Inductor keeps its kernels as long as the
function that it compiled; none of them is a function of the candidate. Inductor takes its configs from the compiler.
"""

from __future__ import annotations

from tilewright.frontends.images import LoadedImages
from tilewright.frontends.protocol import FRONTENDS, ImageSource, MissingPackage, Runtime


class TorchRuntime(Runtime):
    def watch_images(self) -> ImageSource:
        """What torch.compile makes, which Triton loads. Kernels of libraries have no loader that could be watched."""
        try:
            return FRONTENDS["triton"].runtime().watch_images()
        except MissingPackage:
            return LoadedImages()


RUNTIME = TorchRuntime()
