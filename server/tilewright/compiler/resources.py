"""What a compiled kernel occupies, as data: light enough for processes that never compile."""

from __future__ import annotations

from pydantic import Field

from tilewright.records import Record


class Resources(Record):
    """What one CTA of a compiled kernel occupies, and which special instructions it contains."""

    registers: int = Field(description="per thread")
    spill_bytes: int = Field(description="stack frame per thread in bytes; spilled registers live there")
    shared_bytes: int = Field(description="static shared memory per CTA in bytes")
    threads: int = Field(description="per CTA")
    barriers: int = 0
    cluster_ctas: int = 1
    ctas_per_sm: int | None = Field(description="CTAs that fit on one SM by registers, shared memory and threads")
    limited_by: str = Field(description="what keeps a further CTA off the SM")
    max_threads_per_sm: int | None = None
    instructions: int = 0
    tensor_core: dict[str, int] = Field({}, description="tensor-core instructions by mnemonic")
    tma: dict[str, int] = Field({}, description="bulk tensor copies by mnemonic")
    plain_loads: int = Field(0, description="loads from global memory that are not bulk copies (LDG)")
    local_memory: int = Field(0, description="local loads and stores, as spills make them")

    def headline(self, has_products: bool) -> str:
        """Spills, tensor cores, TMA and occupancy in one line. `has_products`: whether the kernel has any `mma`."""
        parts = [f"spills {self.spill_bytes} bytes a thread" if self.spill_bytes else "no spills"]
        if has_products or self.tensor_core:
            parts.append(f"tensor cores ({', '.join(self.tensor_core)})" if self.tensor_core else "no tensor cores")
        bulk = "UTMALDG" in self.tma or "UBLKCP" in self.tma
        if self.tma:
            loads = "TMA" if not self.plain_loads else f"TMA, and {self.plain_loads} plain loads"
            parts.append(loads if bulk else f"TMA stores only, {self.plain_loads} plain loads")
        else:
            parts.append(f"no TMA, {self.plain_loads} plain loads")
        if self.ctas_per_sm is None:
            parts.append("occupancy not known for this architecture")
        else:
            ctas = f"{self.ctas_per_sm} CTA{'s' if self.ctas_per_sm != 1 else ''}"
            warps, most = self.ctas_per_sm * self.threads // 32, (self.max_threads_per_sm or 0) // 32
            parts.append(f"{ctas} ({warps} of {most} warps) per SM, limited by {self.limited_by}")
        return "; ".join(parts)
