"""The formats that are written: one file or folder for each."""
