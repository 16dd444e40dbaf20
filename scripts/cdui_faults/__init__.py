"""What ``cdui faults`` does: a seeded schedule of faults over real processes, and what must hold afterwards."""
