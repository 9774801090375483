"""Files: what a page fetches: itself, bundles, engines, and Python packages, packed as its browser likes them."""
