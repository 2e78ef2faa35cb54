"""The languages of kernels: `protocol` says what one has to answer, and each has a folder."""
