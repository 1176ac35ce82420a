"""What one optimizer step computes: losses and gradients, over all ranks, and the update."""
