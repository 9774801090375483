"""The studio as a static folder: pages, modules, engines and bundles, for any host of files."""
