"""Installs CodefyUI into .venv. Run by the system's Python, so all of it is standard library."""

import sys

from cdui_setup.main import main

sys.exit(main())
