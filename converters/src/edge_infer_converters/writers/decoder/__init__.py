"""Weight files of decoders: tensors in blocks of 4 and 8 bits, in halves and in floats."""
