"""What changed between two compilations: resources side by side, and IR without the names that mean nothing.

An operand is written as the operation that made it, so that an added line changes no line but its own.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter

from tilewright.compiler.compilation import Compilation
from tilewright.compiler.resources import Resources

CONTEXT_LINES = 1
_BRACES = re.compile(r"(?<=[\w$])\{[^{}]*\}")
_CUTILE_NAME = re.compile(r"(?<![\w$.])[A-Za-z_$][\w$]*(?:\.\d+)*(?![\w$]|\s*=(?!=))")
_CUTILE_DEFINED = re.compile(r"(?<![\w$.])([A-Za-z_$][\w$]*(?:\.\d+)*): (?:const )?[A-Z]\w*")
_CUTILE_RESULT = re.compile(r"^(\s*)([A-Za-z_$][\w$.]*: .*?) = (\w+)(.*)$")
_CUTILE_LOOP = re.compile(r"\bfor ([\w$.]+) in ")
_TILE_NAME = re.compile(r"%[\w$.-]+(?:#\d+)?")
_TILE_RESULT = re.compile(r"^(\s*)(%[^=]*?) = ([\w.]+)(.*)$")
_TILE_ARGUMENTS = re.compile(r"(%[\w$.-]+): ")
_TILE_BLOCK_ARGUMENTS = re.compile(r"(%loopIdx\w*|%iterArg\w*)")
_CONSTANT = re.compile(r"(?:value=([^,)]+)\)|<\w+: ([^>]+)>)")
_VIEWS = re.compile(r"assume|view|load|gather")
_SYMBOL = re.compile(r"@[\w$]+")
_LOCATION = re.compile(r"\s*loc\((?:[^()]|\([^()]*\))*\)|^#loc.*$")
_MNEMONIC = re.compile(
    r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T0-9]+\s+)?([A-Z][A-Z0-9_.a-z]*)|^\s*(?:@!?%p\d+\s+)?([a-z][\w.:]*)"
)


def normalised(text: str) -> list[str]:
    """The lines of cuTile IR or Tile IR text without SSA names, symbols and positions."""
    tile_ir = "%" in text
    lines = [_LOCATION.sub("", line.rstrip()) for line in text.splitlines()]
    lines = [line for line in lines if line.strip()]
    return _tile_ir(lines) if tile_ir else _cutile_ir(lines)


def ir_difference(before: str, after: str) -> list[str]:
    """What differs between two texts of the same IR, as the lines of a unified diff; empty where only names do."""
    old, new = normalised(before), normalised(after)
    return list(difflib.unified_diff(old, new, n=CONTEXT_LINES, lineterm=""))[2:]


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


def _label(operation: str, rest: str, labels: dict[str, str], names: list[str]) -> str:
    """How an operand is written: a constant as its value, a view or load with the argument that it comes from."""
    if "const" in operation and (value := _CONSTANT.search(rest)):
        return str(value[1] or value[2]).strip()
    if axis := re.search(r"axis=(\d+)\)$", rest):
        operation = f"{operation}[{axis[1]}]"
    if _VIEWS.search(operation) and names and (source := labels.get(names[0], "")):
        return f"{operation}<{source.rpartition('<')[2].rstrip('>')}>"
    return operation


def _results(names: list[str], label: str) -> dict[str, str]:
    """How each of an operation's results is written; the first, which is mostly the only one, bears no number."""
    return {name: f"{label}.{place}" if place else label for place, name in enumerate(names)}


def _carry(names: list[str], labels: dict[str, str]) -> None:
    """Name what a loop or a block takes in by its place."""
    labels |= {name: f"carried{place}" for place, name in enumerate(dict.fromkeys(names))}


def _cutile_ir(lines: list[str]) -> list[str]:
    lines = [_BRACES.sub("", line) for line in lines]
    labels: dict[str, str] = {}
    if lines:
        labels = {name: f"arg{place}" for place, name in enumerate(_CUTILE_DEFINED.findall(lines[0]))}
    found = []
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        result = _CUTILE_RESULT.match(line)
        own: list[str] = []
        if result:
            own = _CUTILE_DEFINED.findall(result[2])
            operation, rest = result[3], result[4]
            used = [name for name in _CUTILE_NAME.findall(rest) if name in labels]
            if operation == "for" and (loop := _CUTILE_LOOP.search(operation + rest)):
                labels[loop[1]] = "index"
            _carry(_CUTILE_DEFINED.findall(rest), labels)
            label = _label(operation, rest, labels, used)
            types = re.sub(r"(?<![\w$.])[A-Za-z_$][\w$]*(?:\.\d+)*: ", "", result[2])
            shown = f"{indent}{types} = {operation}{_renamed(rest, labels, _CUTILE_NAME)}"
            labels |= _results(own, label)
            if "const" in operation:
                continue  # it stands where it is used
        else:
            _carry([name for name in _CUTILE_DEFINED.findall(line) if name not in labels], labels)
            shown = _renamed(line, labels, _CUTILE_NAME)
        found.append(shown)
    return found


def _tile_ir(lines: list[str]) -> list[str]:
    labels: dict[str, str] = {}
    found = []
    for line in lines:
        line = _SYMBOL.sub("@kernel", line)
        if "entry @" in line:
            labels = {name: f"arg{place}" for place, name in enumerate(_TILE_ARGUMENTS.findall(line))}
        fresh = [name for name in _TILE_BLOCK_ARGUMENTS.findall(line) if name not in labels]
        labels |= {name: "index" for name in fresh if name.startswith("%loopIdx")}
        _carry([name for name in fresh if name not in labels], labels)
        result = _TILE_RESULT.match(line)
        if not result:
            found.append(_renamed(line, labels, _TILE_NAME))
            continue
        indent, own, operation, rest = result[1], result[2], result[3], result[4]
        label = _label(operation, rest, labels, _TILE_NAME.findall(rest))
        shown = f"{indent}{operation}{_renamed(rest, labels, _TILE_NAME)}"
        listed = re.findall(r"(%[\w$.-]+)(?::(\d+))?", own)
        packed = listed[0][0] if len(listed) == 1 and listed[0][1] else ""
        names = [f"{packed}#{place}" for place in range(int(listed[0][1]))] if packed else [name for name, _ in listed]
        labels |= _results(names, label)
        if operation != "constant":
            found.append(shown)
    return found


def _renamed(text: str, labels: dict[str, str], pattern: re.Pattern[str]) -> str:
    return pattern.sub(lambda match: labels.get(match[0], match[0]), text)
