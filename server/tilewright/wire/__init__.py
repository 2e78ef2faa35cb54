"""What crosses from one process to another: its types, and the frames that carry it."""
