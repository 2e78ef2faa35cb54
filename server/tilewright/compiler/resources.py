"""What a compiled kernel occupies, as data: light enough for processes that never compile."""

from __future__ import annotations

from pydantic import Field

from tilewright.wire.record import Record

FIRST_TMA_ARCH = 90


def has_tma(arch: str) -> bool:
    """Whether an architecture such as `sm_90` has the tensor memory accelerator."""
    return int(arch.removeprefix("sm_")) >= FIRST_TMA_ARCH


class Resources(Record):
    """What one CTA of a compiled kernel occupies, and which special instructions it contains."""

    registers: int = Field(description="per thread")
    spill_bytes: int = Field(description="bytes that each thread's instructions store for want of registers")
    spill_load_bytes: int = Field(0, description="bytes that they load back")
    stack_bytes: int = Field(0, description="stack frame per thread; spilled registers live there")
    shared_bytes: int = Field(description="shared memory per CTA, the system's own 1 KiB left out")
    threads: int = Field(description="per CTA")
    barriers: int = 0
    cluster_ctas: int = 1
    setmaxnreg: list[int] = Field([], description="register counts that groups of warps switch to, highest first")
    ctas_per_sm: int | None = Field(description="CTAs that fit on one SM by registers, shared memory and threads")
    limited_by: str = Field(description="what keeps a further CTA off the SM")
    max_threads_per_sm: int | None = None
    instructions: int = 0
    tensor_core: dict[str, int] = Field({}, description="tensor-core instructions by mnemonic")
    tma: dict[str, int] = Field({}, description="bulk tensor copies by mnemonic")
    waited_loads: int = Field(0, description="bulk loads that are waited for before the next one (SYNCS.CCTL.IV)")
    async_copies: int = Field(0, description="copies from global to shared memory by threads, cp.async (LDGSTS)")
    plain_loads: int = Field(0, description="loads from global memory that are not bulk copies (LDG)")
    plain_stores: int = Field(0, description="stores to global memory that are not bulk copies (STG)")
    local_memory: int = Field(0, description="local loads and stores, as spills make them")
    code: str = Field("", description="digest of the machine code, the same for the same instructions and constants")

    @property
    def warps_per_sm(self) -> int | None:
        """Warps that one SM holds of this kernel, or None where the architecture's limits are not known."""
        return None if self.ctas_per_sm is None else self.ctas_per_sm * self.threads // 32

    @property
    def max_warps_per_sm(self) -> int:
        return (self.max_threads_per_sm or 0) // 32

    def headline(self, has_products: bool, arch: str = "") -> str:
        """Spills, tensor cores, TMA and occupancy in one line. `has_products`: whether the kernel has any `mma`."""
        parts = [f"spills {self.spill_bytes} bytes a thread" if self.spill_bytes else "no spills"]
        if has_products or self.tensor_core:
            parts.append(f"tensor cores ({', '.join(self.tensor_core)})" if self.tensor_core else "no tensor cores")
        parts.append(self._memory(arch))
        if self.ctas_per_sm is None:
            parts.append("occupancy not known for this architecture")
        else:
            ctas = f"{self.ctas_per_sm} CTA{'s' if self.ctas_per_sm != 1 else ''}"
            warps = f"{self.warps_per_sm} of {self.max_warps_per_sm} warps"
            parts.append(f"{ctas} ({warps}) per SM, limited by {self.limited_by}")
        return "; ".join(parts)

    def _memory(self, arch: str) -> str:
        other = [
            f"{count} {name}{'' if count == 1 else 's'}"
            for count, name in ((self.plain_loads, "plain load"), (self.async_copies, "cp.async"))
            if count
        ]
        loads = ", ".join(other)
        if "UTMALDG" in self.tma or "UBLKCP" in self.tma:
            tma = "TMA, each load waited for before the next" if self.waited_loads else "TMA"
            return f"{tma}, and {loads}" if other else tma
        if self.tma:
            return f"TMA stores only, {loads or 'no loads'}"
        missing = f"no TMA ({arch} has none)" if arch and not has_tma(arch) else "no TMA"
        return f"{missing}, {loads or '0 plain loads'}"
