"""Models, losses, optimizers and the loop that trains."""
