"""What the core brings through the same hooks as any plugin. No room imports it by name."""
