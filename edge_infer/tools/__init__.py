"""Programs for a host: benchmarks, the headless browser, the device service, checks of a machine, slim folders."""
