"""Text: `tokenizer.json` of Hugging Face read, and text encoded and decoded by it, with the standard library alone."""
