"""`python -m rtagent`."""

from __future__ import annotations

import sys

from rtagent.cli import main

if __name__ == "__main__":
    sys.exit(main())
