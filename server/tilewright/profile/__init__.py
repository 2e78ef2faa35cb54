"""What bounds a kernel: a diagnosis from its latency, its launches, its compiled code, and the model."""
