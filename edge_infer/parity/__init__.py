"""Compare arrays: error measures, verdicts, quantization steps."""
