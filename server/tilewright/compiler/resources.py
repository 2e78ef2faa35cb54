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
    ctas_per_sm: int = Field(description="CTAs that fit on one SM by registers, shared memory and threads")
    limited_by: str = Field(description="what keeps a further CTA off the SM")
    instructions: int = 0
    tensor_core: dict[str, int] = Field({}, description="tensor-core instructions by mnemonic")
    tma: dict[str, int] = Field({}, description="bulk tensor copies by mnemonic")
    local_memory: int = Field(0, description="local loads and stores, as spills make them")

    def headline(self) -> str:
        """Spills, tensor cores, TMA and occupancy in one line."""
        spills = f"spills {self.spill_bytes} bytes a thread" if self.spill_bytes else "no spills"
        cores = f"tensor cores ({', '.join(self.tensor_core)})" if self.tensor_core else "no tensor cores"
        copies = "TMA" if self.tma else "no TMA"
        ctas = f"{self.ctas_per_sm} CTA{'s' if self.ctas_per_sm != 1 else ''} per SM, limited by {self.limited_by}"
        return f"{spills}; {cores}; {copies}; {ctas}"
