"""Data types, tensors, arrays of other libraries."""
