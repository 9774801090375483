"""Files of tables, read and written in parts so that their size does not matter: Parquet, Arrow, CSV, JSON lines."""
