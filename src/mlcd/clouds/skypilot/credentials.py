"""What a cloud still needs before SkyPilot can use it, found by reading files; SkyPilot is not started."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from mlcd.clouds.skypilot.client import sky_python
from mlcd.errors import ProviderError


@dataclass(frozen=True, slots=True)
class _Account:
    """Where a cloud's credentials are: any of these variables or files (below the home); `command` creates them."""

    extra: str
    variables: tuple[str, ...]
    files: tuple[str, ...]
    command: str


SUPPORTED = "==0.14.*"
"""The versions of SkyPilot that mlcd is tested with, as the extra `skypilot` has them."""
ACCOUNTS = {
    "aws": _Account(
        "aws",
        ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SHARED_CREDENTIALS_FILE"),
        (".aws/credentials", ".aws/sso/cache"),
        "aws configure",
    ),
    "gcp": _Account(
        "gcp",
        ("GOOGLE_APPLICATION_CREDENTIALS",),
        (".config/gcloud/application_default_credentials.json",),
        "gcloud auth application-default login",
    ),
    "azure": _Account("azure", (), (".azure/msal_token_cache.json", ".azure/msal_token_cache.bin"), "az login"),
    "kubernetes": _Account("kubernetes", ("KUBECONFIG",), (".kube/config",), "kubectl config use-context NAME"),
    "slurm": _Account(
        "slurm",
        (),
        (".slurm/config",),
        "sky check slurm, once ~/.slurm/config names the login nodes as an ssh config does",
    ),
    "ssh": _Account("ssh", (), (".sky/ssh_node_pools.yaml",), "sky ssh up --file ssh_node_pools.yaml"),
}
"""The clouds whose credentials mlcd can check; for any other, use `sky check`."""


def cloud_of(infra: str) -> str:
    """The cloud of `aws/us-east-1`, `k8s/context`, `sky/slurm/CLUSTER`, as SkyPilot calls it."""
    name = infra.removeprefix("sky/").partition("/")[0].lower()
    return "kubernetes" if name == "k8s" else name


def missing(infra: str) -> str | None:
    """What is missing for `infra`, with the command that fixes it; None where the files show nothing missing."""
    cloud = cloud_of(infra)
    account = ACCOUNTS.get(cloud)
    try:
        require_sky(infra)
    except ProviderError as error:
        return str(error)
    for program, package in (("rsync", "rsync"), ("ssh", "openssh-client")):
        if shutil.which(program) is None:
            return f"SkyPilot needs {program}; run: apt-get install {package}"
    if account is None:
        return None
    home = Path.home()
    if any(os.environ.get(name) for name in account.variables) or any((home / file).exists() for file in account.files):
        return None
    return f"no credentials for {cloud} were found; run: {account.command}"


def require(infra: str) -> None:
    """Raises ProviderError with what is missing for `infra`, if anything is."""
    if (lack := missing(infra)) is not None:
        raise ProviderError(f"{infra}: {lack}")


def require_sky(infra: str) -> Path:
    """The Python that has SkyPilot. Raises ProviderError with the command that installs it."""
    if (python := sky_python()) is not None:
        return python
    cloud = cloud_of(infra)
    package = (f"skypilot[{ACCOUNTS[cloud].extra}]" if cloud in ACCOUNTS else "skypilot") + SUPPORTED
    raise ProviderError(f"SkyPilot is not installed; run: pip install '{package}' (or scripts/setup-skypilot)")


def sky_was_used() -> bool:
    """Whether SkyPilot can know of any cluster: it has state on this machine, or a remote server is configured."""
    home = Path(os.environ.get("SKY_RUNTIME_DIR") or Path.home()) / ".sky"
    files = (home / "state.db", home / "config.yaml")
    return bool(os.environ.get("SKYPILOT_API_SERVER_ENDPOINT")) or any(file.exists() for file in files)
