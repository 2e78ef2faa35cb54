"""The process that runs a candidate: untrusted from the moment that it has imported one."""
