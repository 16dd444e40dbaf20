"""The life of a run as pure decisions: statuses, options, endings, queue. No clock, no I/O."""
