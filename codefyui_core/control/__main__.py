"""``python -m codefyui_core.control`` starts the server in the foreground."""

import gc
import sys

gc.disable()  # nothing that is imported is garbage; serve turns it on

from .serve import main  # noqa: E402  # imports are most of a start

sys.exit(main())
