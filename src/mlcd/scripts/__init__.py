"""A user's training script: which library trains, where its loop is, and which lines mlcd needs in it.

Scripts are read, never run.
"""

from mlcd.scripts.find import find_scripts, read_saves, read_script
from mlcd.scripts.script import Edit, Framework, Save, TrainingScript

__all__ = ["Edit", "Framework", "Save", "TrainingScript", "find_scripts", "read_saves", "read_script"]
