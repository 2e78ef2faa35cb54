"""Operations in small: a kernel, a thin operation around it, tests and benchmarks apart."""
