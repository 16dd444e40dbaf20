"""Layers, shapes and drawings that belong to no other family."""
