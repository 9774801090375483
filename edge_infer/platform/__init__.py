"""The differences between a page, a device and a desktop: HTTP, threads, CPUs, files, caches."""
