"""The device side that needs no kernel: data sheets, presence, lease, telemetry, shared device memory."""
