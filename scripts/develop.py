"""``cdui check`` and ``cdui test``; run by the installation's own Python."""

import sys

from cdui_develop.main import main

sys.exit(main())
