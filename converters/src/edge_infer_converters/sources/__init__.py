"""The sources of a conversion: one file for each format or library."""
