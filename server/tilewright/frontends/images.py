"""Images by the driver's handles: what the runtimes of cuTile and Triton note down as they load."""

from __future__ import annotations

from collections.abc import Collection


class LoadedImages:
    """An `ImageSource`. A handle that was freed is forgotten, since the driver may give it to another image."""

    def __init__(self) -> None:
        self._by_handle: dict[int, bytes] = {}
        self._derived: dict[int, list[int]] = {}
        self._all: dict[bytes, bytes] = {}

    def of(self, handle: int) -> bytes | None:
        return self._by_handle.get(handle)

    def images(self) -> Collection[bytes]:
        return self._all.keys()

    def loaded(self, handle: int, image: bytes) -> None:
        """Note that the driver gave `handle` for an image. An empty image is one that could not be read."""
        self.forget(handle)
        if image:
            self._by_handle[handle] = self._all.setdefault(image, image)

    def derived(self, handle: int, parent: int) -> None:
        """Note that the driver gave `handle` for a part of what `parent` stands for."""
        if image := self.of(parent):
            self._by_handle[handle] = image
            self._derived.setdefault(parent, []).append(handle)
        else:
            self.forget(handle)

    def forget(self, handle: int) -> None:
        """Note that `handle`, and with it all that was derived from it, was freed."""
        self._by_handle.pop(handle, None)
        for part in self._derived.pop(handle, ()):
            self.forget(part)
