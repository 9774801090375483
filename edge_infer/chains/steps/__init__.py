"""What the steps of chains do: one file for each word of `edge_infer.chains.kinds.WORKS`."""
