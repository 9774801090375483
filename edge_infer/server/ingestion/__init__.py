"""Ingestion: from bytes on a connection to checked tensors."""
