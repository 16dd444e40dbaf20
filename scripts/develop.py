"""``cdui check``, ``cdui test`` and ``cdui faults``; run by the installation's own Python."""

import signal
import sys

from cdui_develop.main import main

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what tests started is stopped
    sys.exit(main())
