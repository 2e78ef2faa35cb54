"""Runs cuTile kernels without a GPU: walks the compiler's final cuTile IR with torch on the CPU."""
