"""What a check keeps of an output that is wrong as a whole."""
