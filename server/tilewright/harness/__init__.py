"""A repository's own tests and benchmarks, run on clean checkouts of candidate and incumbent."""
