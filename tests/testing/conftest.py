import sys
from pathlib import Path

# `bad_worlds:bad/Hanging-v0` names a module, so the module must be importable.
sys.path.append(str(Path(__file__).parent))
