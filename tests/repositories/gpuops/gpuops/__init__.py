"""Operations in small, for GPUs: a kernel, a thin operation around it, tests and benchmarks apart."""
