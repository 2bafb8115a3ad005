"""$MLCD_HOME: where it is, and the one way to make folders and files in it.

folder.py  folders and files for the owner only, on old homes too
envs.py    values of a job's environment variables, kept until the run has ended
"""

from mlcd.home.folder import (
    close_to_others,
    close_tree,
    home,
    job_environment,
    private_file,
    private_folder,
    write_bytes,
    write_private,
    write_text,
)

__all__ = [
    "close_to_others",
    "close_tree",
    "home",
    "job_environment",
    "private_file",
    "private_folder",
    "write_bytes",
    "write_private",
    "write_text",
]
