"""A user's training script: which library trains, where its loop is, and which lines mlcd needs in it.

Scripts are read, never run.
"""

from mlcd.scripts.find import find_scripts, read_script
from mlcd.scripts.script import Edit, Framework, TrainingScript

__all__ = ["Edit", "Framework", "TrainingScript", "find_scripts", "read_script"]
