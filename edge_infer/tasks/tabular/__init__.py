"""Tables: columns by name and type, from rows or whole batches to the one input of a model."""
