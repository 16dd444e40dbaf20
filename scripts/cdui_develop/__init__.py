"""What contributors run: the gates, and all tests with what they need."""
