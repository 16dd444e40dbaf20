"""Data sets, tables, and what prepares them."""
