"""The writers: one file or folder for each format."""
