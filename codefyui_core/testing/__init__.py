"""What authors of plugins test with: fixtures, conformance suites, doubles. Imported by tests only."""
