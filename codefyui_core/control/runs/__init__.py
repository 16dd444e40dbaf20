"""Runs at the control plane: submitting, placing, folding what is reported, ending."""
