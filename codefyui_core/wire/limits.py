"""How large and how many: the limits of the line, in bytes, counts and seconds."""

KIB = 1024
MIB = 1024 * KIB

FRAME_BYTES = 1 * MIB
"""The largest frame in either direction; a larger message travels in parts."""
MESSAGE_BYTES = 17 * MIB
"""The largest message, put together from parts: a graph of 16 MiB, and what is around it."""
BATCH_BYTES = 256 * KIB
BATCH_ITEMS = 500
BATCH_WAIT_S = 0.05
EVENT_BYTES = 512 * KIB
"""The largest item; the agent replaces a larger one."""
WINDOW_BYTES = 1 * MIB
"""Sent and not yet acknowledged, for a session."""
READ_BYTES = 256 * KIB
"""The largest part of an answer to ``read``."""
READS = 4
"""Under way at once on a connection."""
QUEUE_BYTES = 64 * MIB
"""Outgoing frames that wait for a slow reader."""

BEAT_S = 5.0
AGENT_BEAT_S = 10.0
SILENCE_S = 30.0
"""Without a frame for so long, the control plane takes the line for dead."""
AGENT_SILENCE_S = 20.0
HANDSHAKE_S = 10.0
PROBE_S = 3.0
