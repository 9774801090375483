"""Where models come from: one file for each origin."""
