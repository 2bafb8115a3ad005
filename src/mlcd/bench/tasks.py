"""Independent tasks of a benchmark: sequential, or in several processes."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar, TypeVarTuple

from mlcd.errors import BadInput, MissingExtra
from mlcd.extras import missing_text

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


def run_tasks(
    function: Callable[[*Arguments], Result], tasks: Iterable[tuple[*Arguments]], *, jobs: int
) -> list[Result]:
    """`function` of every task's arguments, in the order of the tasks; `jobs` and errors as in task_results."""
    return list(task_results(function, tasks, jobs=jobs))


def task_results(
    function: Callable[[*Arguments], Result], tasks: Iterable[tuple[*Arguments]], *, jobs: int
) -> Iterator[Result]:
    """The same one by one: each as soon as it and those before it are known.

    jobs  processes, through joblib; 1 runs the tasks in this process and needs no joblib; -1 is one process per core

    Raises BadInput for 0, MissingExtra where joblib is needed and not installed.
    """
    if jobs == 0:
        raise BadInput("--jobs: must be the number of processes, or -1 for one per core (got 0)")
    if jobs == 1:
        yield from (function(*task) for task in tasks)
        return
    try:
        from joblib import Parallel, delayed  # noqa: PLC0415
        from joblib.parallel import get_active_backend  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra(f"{missing_text('bench', f'--jobs {jobs}')}; --jobs 1 does not need it") from error
    backend, _ = get_active_backend()
    is_lazy = getattr(backend, "supports_return_generator", False)  # Ray's is not
    found = Parallel(n_jobs=jobs, return_as="generator" if is_lazy else "list")
    yield from found(delayed(function)(*task) for task in tasks)
