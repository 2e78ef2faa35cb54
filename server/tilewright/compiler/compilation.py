"""What the compiler made of one kernel under one signature, with its hints, for one architecture; as data."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from tilewright.compiler.remarks import Remark
from tilewright.compiler.resources import Resources
from tilewright.compiler.sass import LineMix
from tilewright.compiler.texts import TEXT_LIMIT
from tilewright.wire.record import Record

ERROR_LIMIT = 2000


class Compilation(Record):
    """A kernel, compiled. `error` is the compiler's complaint, with whatever it had produced before."""

    kernel: str
    arch: str
    frontend: Literal["cutile", "triton"] = "cutile"
    symbol: str = Field("", description="the mangled name, which holds the signature")
    hints: dict[str, int] = Field(default_factory=dict, description="those that apply to this architecture")
    cutile_ir: str = ""
    tile_ir: str = ""
    ttir: str = Field("", description="Triton's IR, of a Triton kernel; the two above are empty then")
    ttgir: str = ""
    ptx: str = Field("", description="of a Triton kernel")
    sass: str = ""
    resources: Resources | None = None
    mix: list[LineMix] = Field(default_factory=list)
    remarks: list[Remark] = Field(default_factory=list)
    seconds: float = Field(0.0, description="time that the compiler took")
    error: str = ""
    timed_out: bool = False

    @property
    def has_products(self) -> bool:
        """Whether the kernel multiplies matrices."""
        return "tile_mma" in self.cutile_ir or "tt.dot" in self.ttir

    @property
    def is_triton(self) -> bool:
        return self.frontend == "triton"

    @property
    def product_dtypes(self) -> set[str]:
        """The dtypes of the operands of the kernel's matrix products, by the IR."""
        if self.is_triton:
            return set(re.findall(r"tt\.dot[^\n]*: tensor<[\dx]*x(\w+)> \*", self.ttir))
        types = dict(re.findall(r"([\w$.]+)(?:\{[^}]*\})?: (?:const )?Tile\[(\w+),", self.cutile_ir))
        operands = re.findall(r"tile_mma\w*\(x=([\w$.]+)", self.cutile_ir)
        return {types[name] for name in operands if name in types}

    @property
    def headline(self) -> str:
        """The line that answers: spills, tensor cores, TMA, occupancy; or why there is nothing to answer of."""
        if self.resources is not None:
            return self.resources.headline(self.has_products, self.arch)
        return self.error.strip().splitlines()[0] if self.error.strip() else "nothing was compiled"


@dataclass(frozen=True)
class Lowered:
    """A kernel as the front end hands it on, for one architecture. `hints` are those that apply to it.

    `bytecode` is cuTile's for tileiras, or the text of the TTIR where `frontend` is triton; `options` are Triton's.
    """

    kernel: str
    arch: str
    opt_level: int
    symbol: str = ""
    hints: dict[str, int] = field(default_factory=dict, hash=False)
    cutile_ir: str = ""
    bytecode: bytes = b""
    error: str = ""
    frontend: Literal["cutile", "triton"] = "cutile"
    options: dict[str, int | bool] = field(default_factory=dict, hash=False)

    def compiled(self, error: str = "", **found: object) -> Compilation:
        """This kernel with what the compiler `found`, or its complaint."""
        known = {"kernel": self.kernel, "arch": self.arch, "symbol": self.symbol, "hints": self.hints}
        known |= {"frontend": self.frontend, "cutile_ir": self.cutile_ir[:TEXT_LIMIT], "error": error[:ERROR_LIMIT]}
        return Compilation.model_validate(known | found)
