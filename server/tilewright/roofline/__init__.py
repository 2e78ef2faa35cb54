"""Bounds on latency from work and rates, and a model of latency where there is no GPU to measure on."""
