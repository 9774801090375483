"""Chains: bundles that feed one another, run and swapped as one."""
