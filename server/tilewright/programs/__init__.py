"""Device programs: what one call of an entry point does on a GPU, as data that any process can read."""
