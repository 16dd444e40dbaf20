"""``python -m codefyui_core.control`` starts the server in the foreground."""

import sys

from .serve import main

sys.exit(main())
