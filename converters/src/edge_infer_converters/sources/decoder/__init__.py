"""Hugging Face folders of models that generate text: read without torch and without transformers."""
