"""Facts of a Python script, from its syntax tree."""

import ast
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from mlcd.scripts.script import NEWLINES, python_lines

KNOWN_SIZES = {
    "MNIST": 60_000,
    "FashionMNIST": 60_000,
    "KMNIST": 60_000,
    "CIFAR10": 50_000,
    "CIFAR100": 50_000,
    "SVHN": 73_257,
    "ImageNet": 1_281_167,
    "STL10": 5_000,
}
"""Training samples of torchvision's datasets, by class (the datasets' own pages, 2026-08)."""
MOST_COUNTED = 10**12
"""A larger number is no batch, no epochs and no samples."""
MADE = ("randn", "rand", "zeros", "ones", "randint")
"""Functions of PyTorch and NumPy whose first argument is the number of samples."""
MOST_DEPTH = 16
"""A number that is defined by a longer chain of names and sums than this is not read."""
_OPERATORS: "dict[type[ast.operator], Callable[[float, float], float]]" = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_DIVISIONS = (ast.Div, ast.FloorDiv)


@dataclass(frozen=True)
class Source:
    """A script's text and tree."""

    text: str
    tree: ast.Module = field(repr=False)

    @cached_property
    def lines(self) -> list[str]:
        """Its lines, without ends."""
        return [line.rstrip(NEWLINES) for line in python_lines(self.text)]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node, parents first."""
        return list(ast.walk(self.tree))

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The node around each node."""
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    @cached_property
    def imported(self) -> frozenset[str]:
        """The top-level packages that it imports anywhere."""
        found = set()
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
        return frozenset(found)

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """Calls of functions with one of these last names: `DataLoader(...)`, `data.DataLoader(...)`."""
        return (node for node in self.nodes if isinstance(node, ast.Call) and last_name(node.func) in names)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, innermost first."""
        while (found := self.parents.get(node)) is not None:
            yield found
            node = found

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that a node is in."""
        return next(each for each in (node, *self.around(node)) if isinstance(each, ast.stmt))

    def segment(self, node: ast.AST) -> str:
        """The text of a node."""
        return ast.get_source_segment(self.text, node) or ast.unparse(node)

    def indent(self, statement: ast.stmt) -> str:
        """The white space before a statement."""
        line = self.lines[statement.lineno - 1]
        return line[: len(line) - len(line.lstrip())]

    def sees(self, place: ast.AST, expression: ast.expr) -> bool:
        """Whether every name in the expression is defined where `place` is: in the same function, or at the top."""
        inside = next((node for node in self.around(place) if isinstance(node, ast.FunctionDef)), None)
        for name in {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}:
            stores = [
                n for n in self.nodes if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
            ]
            homes = {next((n for n in self.around(s) if isinstance(n, ast.FunctionDef)), None) for s in stores}
            arguments = [] if inside is None else [arg.arg for arg in (*inside.args.args, *inside.args.kwonlyargs)]
            if name not in arguments and inside not in homes and None not in homes:
                return False
        return True

    def assigned(self, name: str) -> ast.expr | None:
        """The value of the first assignment to a name."""
        for node in self.nodes:
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
                return node.value
        return None

    @cached_property
    def _values(self) -> "dict[tuple[str, ast.AST | None], list[ast.expr]]":
        """(name, function) -> each value that the name gets in the function, None: at the top of the script."""
        found: dict[tuple[str, ast.AST | None], list[ast.expr]] = {}
        for node in self.nodes:
            home = self._home(node) if isinstance(node, ast.Assign | ast.AnnAssign | ast.With | ast.AsyncWith) else None
            if isinstance(home, ast.ClassDef):
                continue
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                pairs = [(target, node.value) for target in targets]
            elif isinstance(node, ast.With | ast.AsyncWith):
                pairs = [(item.optional_vars, item.context_expr) for item in node.items if item.optional_vars]
            else:
                continue
            for target, value in pairs:
                if isinstance(target, ast.Name):
                    found.setdefault((target.id, home), []).append(value)
        return found

    def values(self, name: str, function: "ast.AST | None") -> "list[ast.expr]":
        """Each value that a name gets in a function, by `=` or `with ... as`; at the top of the script for None."""
        return self._values.get((name, function), [])

    def _home(self, node: ast.AST) -> ast.AST | None:
        inner = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        return next((each for each in self.around(node) if isinstance(each, inner)), None)

    @cached_property
    def _attributes(self) -> "dict[str, list[ast.expr]]":
        found: dict[str, list[ast.expr]] = {}
        for node in self.nodes:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            in_class = isinstance(self._home(node), ast.ClassDef)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Attribute):
                    found.setdefault(target.attr, []).append(node.value)
                elif isinstance(target, ast.Name) and in_class:
                    found.setdefault(target.id, []).append(node.value)
        for call in self.calls("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "Namespace"):
            for each in call.keywords:
                if each.arg:
                    found.setdefault(each.arg, []).append(each.value)
        return found

    def attribute_values(self, name: str) -> "list[ast.expr]":
        """Each value that an attribute of any object gets: `self.NAME = ...`, or NAME in the body of a class."""
        return self._attributes.get(name, [])

    def number(self, node: ast.expr | None, depth: int = 0) -> int | None:
        """The whole number that an expression plainly is: a constant, a name of one, an argument's default, a sum."""
        found = self.value(node, depth)
        return found if isinstance(found, int) and 0 < found <= MOST_COUNTED else None

    def value(self, node: ast.expr | None, depth: int = 0) -> int | float | None:
        """The number that an expression plainly is, at most MOST_COUNTED either way."""
        if node is None or depth > MOST_DEPTH:
            return None
        if node not in self._numbers:
            self._numbers[node] = None  # what is defined by itself has no number
            found = self._computed(node, depth)
            self._numbers[node] = found if found is not None and abs(found) <= MOST_COUNTED else None  # no nan either
        return self._numbers[node]

    @cached_property
    def _numbers(self) -> dict[ast.expr, int | float | None]:
        """The number of each expression that was asked for, so that each is computed once."""
        return {}

    def _computed(self, node: ast.expr, depth: int) -> int | float | None:
        found: int | float | None = None
        if isinstance(node, ast.Constant):
            found = node.value if isinstance(node.value, int | float) and not isinstance(node.value, bool) else None
        elif isinstance(node, ast.Name):
            found = self.value(self.assigned(node.id), depth + 1)
        elif isinstance(node, ast.Attribute):
            found = self.value(self._argument_default(node.attr), depth + 1)
        elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            left, right = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
            if left is not None and right is not None and not (right == 0 and type(node.op) in _DIVISIONS):
                found = _OPERATORS[type(node.op)](left, right)
        elif isinstance(node, ast.Call) and node.args:
            name = last_name(node.func)
            if name == "len":
                found = self.size(node.args[0], depth + 1)
            elif name in ("share_of_batch", "int"):
                inner = self.value(node.args[0], depth + 1)
                found = None if inner is None else int(inner)
        return found

    def _argument_default(self, name: str) -> ast.expr | None:
        """The default of argparse's option for `options.NAME`."""
        for call in self.calls("add_argument"):
            options = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            if name in {option.lstrip("-").replace("-", "_") for option in options}:
                return keyword(call, "default")
        return None

    def size(self, node: ast.expr | None, depth: int = 0) -> int | None:
        """The number of samples of a dataset, where the text says it."""
        if node is None or depth > MOST_DEPTH:
            return None
        if isinstance(node, ast.Name):
            return self._part(node.id, depth + 1) or self.size(self.assigned(node.id), depth + 1)
        if isinstance(node, ast.Call):
            name = last_name(node.func)
            if name == "len" and node.args:
                return self.size(node.args[0], depth + 1)
            if name in KNOWN_SIZES:
                return KNOWN_SIZES[name]
            if name in MADE and node.args:
                first = node.args[0]
                count = first.elts[0] if isinstance(first, ast.Tuple) and first.elts else first
                return self.number(count, depth + 1)
            inner = node.args[0] if node.args else node.func.value if isinstance(node.func, ast.Attribute) else None
            return self.size(inner, depth + 1)
        return None

    def _part(self, name: str, depth: int) -> int | None:
        """The samples of one part of a dataset: of `train` after `train, test = random_split(dataset, [800, 200])`."""
        for call in self.calls("random_split"):
            statement = self.statement(call)
            targets = statement.targets[0] if isinstance(statement, ast.Assign) else None
            parts = keyword(call, "lengths") or (call.args[1] if len(call.args) > 1 else None)
            if not isinstance(targets, ast.Tuple | ast.List) or not isinstance(parts, ast.Tuple | ast.List):
                continue
            for target, part in zip(targets.elts, parts.elts, strict=False):
                if isinstance(target, ast.Name) and target.id == name:
                    share = self.value(part, depth + 1)
                    if isinstance(share, int):
                        return share if share > 0 else None
                    whole = self.size(call.args[0], depth + 1)
                    return int(share * whole) if share is not None and whole is not None and 0 < share <= 1 else None
        return None


def last_name(node: ast.expr) -> str:
    """`c` of `a.b.c`; "" for what is no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword argument."""
    return next((each.value for each in call.keywords if each.arg == name), None)


def text_constant(node: ast.expr | None) -> str | None:
    """The text that an expression is, if it is a constant."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
