"""Feedback: what people say of answers that the server gave, kept in files for `--eval`."""
