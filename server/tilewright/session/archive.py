"""What an archive of a session holds beside its folder, and how one is told that was unpacked here."""

from __future__ import annotations

from pathlib import Path

BUNDLE = "repository.bundle"


def carried(folder: Path) -> list[str]:
    """A note for a session in a folder that came out of an archive; none where it was begun here."""
    if not (folder / BUNDLE).is_file():
        return []
    return [f"imported: this session was carried here in an archive ({folder.name}/{BUNDLE}), and not begun here"]
