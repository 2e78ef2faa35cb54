"""The clock: a process with a driver and without torch, which replays device programs in turns."""
