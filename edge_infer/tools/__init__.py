"""What only a host runs: bench, browser, device, doctor, slim."""
