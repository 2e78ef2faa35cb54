"""A process of its own in which cuTile launches a kernel, with a driver that is none: it asks for one only once."""

from __future__ import annotations

import gc

import cuda.tile as ct
from cuda.tile._cext import default_tile_context

from tests.unit.frontends import driver
from tilewright.frontends.cutile import CUTILE
from tilewright.programs.images import kernels


@ct.kernel
def shout(number):  # type: ignore[no-untyped-def]
    ct.printf("%d", number)


def main() -> None:
    default_tile_context.config.cache_dir = None
    stand_in = driver.installed()
    images = CUTILE.runtime().watch_images()
    passing = ct.kernel(shout._pyfunc)
    with CUTILE.runtime().capturing() as kept:
        ct.launch(0, (1,), passing, (3,))
    assert kept == [passing] and stand_in.launched == 1
    (image,) = images.images()
    (symbol,) = kernels(image)
    assert symbol.startswith("shout")
    assert list(images.own()) == [symbol]
    library, kernel = 0x1000, 0x1010
    assert images.of(library) == images.of(kernel) == image  # cuTile launches the kernel, without a function
    del passing
    gc.collect()
    assert images.of(kernel) == image
    kept.clear()
    gc.collect()
    assert stand_in.unloaded == [library]
    assert images.of(library) is images.of(kernel) is None
    ct.launch(0, (1,), shout, (3,))  # it is unloaded while Python ends


if __name__ == "__main__":
    main()
