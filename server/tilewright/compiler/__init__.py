"""What the compiler makes of a kernel: IR, machine code and resources, for any architecture, without a GPU."""
