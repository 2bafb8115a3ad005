"""Where the home is, and how folders and files are made in it: for the owner only, whatever the umask.

A job's environment variables may hold keys, and its logs may print them. The home and its folders are 0700, files that
mlcd writes are 0600. What jobs write keeps the modes that they give it, behind a folder that only the owner can enter.
"""

import contextlib
import os
import secrets
import stat
import sys
from pathlib import Path

from mlcd.errors import StoreError

FOLDER_MODE = 0o700
FILE_MODE = 0o600
_OTHERS = 0o077
_STORE = "mlcd.sqlite3"
_OWN_NAMES = (
    _STORE, "work", "locks", "leases", "functions", "quantised", "skypilot", "envs", "backups", "prices", "ui",
)  # fmt: skip
"""What mlcd makes in a home; its other files begin with one of these names and a dot or a hyphen."""
DEFAULT_NAME = ".mlcd"
_RECORDS = ("MLCD_HOME", "MLCD_STORE")


def home() -> Path:
    """$MLCD_HOME, by default ~/.mlcd. Raises StoreError where it names the folder of an unknown user."""
    try:
        return Path(os.environ.get("MLCD_HOME") or Path.home() / DEFAULT_NAME).expanduser()
    except RuntimeError as error:
        given = os.environ.get("MLCD_HOME", "")
        raise StoreError(f"MLCD_HOME={given}: there is no such user's folder; set MLCD_HOME to a folder") from error


def job_environment() -> dict[str, str]:
    """This process's variables, without where mlcd keeps its records: no job is told, and an address has a password."""
    return {name: value for name, value in os.environ.items() if name not in _RECORDS}


def private_folder(folder: Path) -> Path:
    """`folder`, made with its missing parents so that only the owner can enter them. Raises OSError."""
    missing = []
    path = folder
    while not path.exists() and path != path.parent:
        missing.append(path)
        path = path.parent
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was faster
            path.mkdir(mode=FOLDER_MODE)
            path.chmod(FOLDER_MODE)
    folder.mkdir(exist_ok=True)  # says so where something else is in its place
    return folder


def private_file(path: Path) -> None:
    """Make an empty file that only the owner can read, unless there is one. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        try:
            _set_mode(descriptor)
        finally:
            os.close(descriptor)


def write_private(path: Path, data: str | bytes) -> None:
    """Write a file that only the owner can read: completely, on disk, or not at all. Raises OSError."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(3)}.part")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - of a descriptor
            _set_mode(file.fileno())
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def close_to_others(folder: Path) -> None:
    """Take away what others may do with a home: with the folder, and with each file and folder that mlcd made in it.

    Changes nothing that belongs to somebody else, and never fails: a home on a read-only disk keeps its modes. A folder
    that also holds things that mlcd did not make (MLCD_HOME=/tmp) keeps its own mode, and so does what bears a name
    there that others use, too: `work` may be the user's own. Only the store is closed then.
    """
    with contextlib.suppress(OSError):
        entries = list(os.scandir(folder))
        is_own = folder.name == DEFAULT_NAME or all(_is_own(entry.name) for entry in entries)
        for entry in entries:
            if _is_own(entry.name) and (is_own or entry.name.startswith(_STORE)):
                _close(Path(entry.path), entry.stat(follow_symlinks=False))
        if is_own:
            _close(folder, folder.stat())


def close_tree(folder: Path) -> None:
    """The same for everything below `folder`; links are not followed. Never fails."""
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(OSError):
                _close(Path(root) / name, (Path(root) / name).lstat())


def is_within(path: Path, folder: Path) -> bool:
    """Whether `path` is in `folder`, after links."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):
        return False


def write_text(path: Path, text: str) -> None:
    """Write a text for the user, as `write_bytes` does."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file for the user: as the umask says, but for the owner only where it is in the home. Raises OSError."""
    if is_within(path, home()):
        private_file(path)
    path.write_bytes(content)


def _is_own(name: str) -> bool:
    return any(name == own or name.startswith((f"{own}.", f"{own}-", f".{own}")) for own in _OWN_NAMES)


def _close(path: Path, found: os.stat_result) -> None:
    mode = stat.S_IMODE(found.st_mode)
    is_plain = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    if is_plain and mode & _OTHERS and found.st_uid == os.geteuid():
        with contextlib.suppress(OSError):
            path.chmod(mode & ~_OTHERS)


def _set_mode(descriptor: int) -> None:
    """The umask may have taken bits away from the owner, too."""
    if sys.platform != "win32":
        os.fchmod(descriptor, FILE_MODE)
