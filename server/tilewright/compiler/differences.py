"""What changed between two compilations: resources side by side, and IR without the names of values."""

from __future__ import annotations

import difflib
import re
from collections import Counter

from tilewright.compiler.compilation import Compilation
from tilewright.compiler.resources import Resources

_NUMBERED = re.compile(r"(?P<name>%|\$)[\w$.-]+(?:[#:]\d+)?(?:\{[^{}]*\})?|\b(?P<variable>[A-Za-z_]\w*)\.\d+\b")
_LOCATION = re.compile(r"\s*loc\((?:[^()]|\([^()]*\))*\)|^#loc.*$")
_MNEMONIC = re.compile(
    r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T0-9]+\s+)?([A-Z][A-Z0-9_.a-z]*)|^\s*(?:@!?%p\d+\s+)?([a-z][\w.:]*)"
)


def ir_difference(before: str, after: str) -> list[str]:
    """What differs between two texts of the same IR, without its positions and the compiler's own names of values, as
    the lines of a unified diff."""
    old, new = ([line for row in text.splitlines() if (line := _without_names(row))] for text in (before, after))
    return list(difflib.unified_diff(old, new, n=1, lineterm=""))[2:]


def _without_names(line: str) -> str:
    return _NUMBERED.sub(lambda match: match["name"] or match["variable"], _LOCATION.sub("", line)).rstrip()


def opcode_difference(before: str, after: str) -> list[str]:
    """What differs between two machine texts (PTX or SASS), as counts of instructions; their order is left out."""
    old, new = _opcodes(before), _opcodes(after)
    changed = [name for name in {*old, *new} if old[name] != new[name]]
    changed.sort(key=lambda name: (-abs(old[name] - new[name]), name))
    return [f"{name}  {old[name]} -> {new[name]}" for name in changed]


def changes(before: Compilation, after: Compilation) -> dict[str, str]:
    """The resources, hints and times that differ, each as `old -> new`."""
    found = {}
    for name in sorted({*before.hints, *after.hints}):
        old, new = before.hints.get(name, "unset"), after.hints.get(name, "unset")
        if old != new:
            found[name] = f"{old} -> {new}"
    if before.error != after.error:
        found["error"] = f"{before.error[:100] or 'none'} -> {after.error[:100] or 'none'}"
    if before.resources is None or after.resources is None:
        return found
    for field in Resources.model_fields:
        old, new = (_shown(getattr(one.resources, field)) for one in (before, after))
        if old != new:
            found[field] = f"{old} -> {new}"
    return found


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name} {count}" for name, count in value.items()) or "none"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return "unknown" if value is None else str(value)


def _opcodes(text: str) -> Counter[str]:
    return Counter(found[1] or found[2] for line in text.splitlines() if (found := _MNEMONIC.match(line)))
