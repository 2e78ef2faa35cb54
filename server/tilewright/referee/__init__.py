"""The referee: it asks workers and the replayer, and decides."""
