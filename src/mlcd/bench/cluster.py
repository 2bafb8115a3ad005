"""A cluster that takes the tasks of a benchmark, through joblib: Dask's or Ray's."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from mlcd.errors import BadInput, MissingExtra, ProviderError
from mlcd.extras import missing_text

KINDS = ("dask", "ray")
CONNECT_SECONDS = 20
_EXAMPLES = "dask:tcp://HOST:8786, ray:auto or ray:HOST:6379"


@contextmanager
def on_cluster(text: str) -> Iterator[None]:
    """joblib uses the cluster at KIND:ADDRESS until this ends; its processes need the same mlcd.

    Raises BadInput for other texts, MissingExtra where the cluster's own package is not installed, ProviderError where
    it does not answer.
    """
    kind, _, address = text.partition(":")
    if kind not in KINDS or not address:
        raise BadInput(f"--cluster: must be KIND:ADDRESS (got {text!r}); allowed: {_EXAMPLES}")
    with ExitStack() as leaving:
        try:
            from joblib import parallel_config  # noqa: PLC0415

            (_connect_dask if kind == "dask" else _connect_ray)(address, leaving)
        except ImportError as error:
            extra = "bench" if error.name == "joblib" else kind
            raise MissingExtra(missing_text(extra, f"--cluster {kind}")) from error
        except (OSError, ValueError, RuntimeError) as error:
            why = str(error).partition("\n")[0]
            raise ProviderError(f"--cluster: the {kind} cluster at {address} does not answer: {why}") from error
        leaving.enter_context(parallel_config(backend=kind, n_jobs=-1))
        yield


def _connect_dask(address: str, leaving: ExitStack) -> None:
    from distributed import Client  # noqa: PLC0415

    leaving.enter_context(Client(address, timeout=CONNECT_SECONDS, set_as_default=True))


def _connect_ray(address: str, leaving: ExitStack) -> None:
    import ray  # noqa: PLC0415
    from ray.util.joblib import register_ray  # noqa: PLC0415

    ray.init(address=address, log_to_driver=False, logging_level="error")
    leaving.callback(ray.shutdown)
    register_ray()
