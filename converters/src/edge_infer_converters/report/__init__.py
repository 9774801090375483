"""Reports of a conversion: terminal, HTML, charts."""
