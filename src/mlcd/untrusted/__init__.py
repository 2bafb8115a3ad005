"""Everything that comes from a job, a node, a disk, a cloud or a client is read here: with limits, into checked values.

files.py    bytes, lines and JSON of a file that somebody else wrote
values.py   JSON within limits, and its fields as numbers, texts and mappings
paths.py    paths that a user wrote, and the files they name
tables.py   CSV files of numbers
copying.py  files and folders, copied and deleted without following links out of them
pickles.py  files of PyTorch, without the code that they may hold
onnx_weights.py  the files that an ONNX model names for its weights, none of them out of its folder
text.py     texts that are shown on a terminal

Whatever is not as it should be raises `Malformed`, which names the file and what is wrong with it. Standard library
only: nodes use it too.
"""

from mlcd.untrusted.copying import check_tree, check_way, copy_tree, delete_tree, inside
from mlcd.untrusted.files import Tail, last_line, last_lines, read_bytes, read_json
from mlcd.untrusted.onnx_weights import weights_beside
from mlcd.untrusted.paths import expanded, read_named
from mlcd.untrusted.pickles import entries, only_weights
from mlcd.untrusted.tables import Column, lines_of, read_table
from mlcd.untrusted.text import hidden, is_utf8, on_one_line, printable, whole_number
from mlcd.untrusted.values import Fields, Malformed, NotJson, TooLarge, parse_json

__all__ = [
    "Column",
    "Fields",
    "Malformed",
    "NotJson",
    "Tail",
    "TooLarge",
    "check_tree",
    "check_way",
    "copy_tree",
    "delete_tree",
    "entries",
    "expanded",
    "hidden",
    "inside",
    "is_utf8",
    "last_line",
    "last_lines",
    "lines_of",
    "on_one_line",
    "only_weights",
    "parse_json",
    "printable",
    "read_bytes",
    "read_json",
    "read_named",
    "read_table",
    "weights_beside",
    "whole_number",
]
