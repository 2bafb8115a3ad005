"""What a SkyPilot error means for a lease: no capacity, a failed launch, or something only the user can fix."""

import re

from mlcd.clouds.provider import LeaseFailed
from mlcd.clouds.skypilot.client import SkyError
from mlcd.errors import ProviderError
from mlcd.trial.trial import FailureKind

MAX_TEXT_CHARACTERS = 600

_ACCESS = re.compile(
    r"NoCloudAccess|not enabled|InvalidClientTokenId|AuthFailure|UnauthorizedOperation|ExpiredToken|AccessDenied"
    r"|NoCredentials|Unable to locate credentials|InvalidCloudCredentials|CloudUserIdentityError"
    r"|DefaultCredentialsError|az login|PERMISSION_DENIED|PermissionDenied",
    re.IGNORECASE,
)
_CAPACITY = re.compile(
    r"capacity|quota|LimitExceeded|limit exceeded|insufficient|ZONE_RESOURCE_POOL_EXHAUSTED|SkuNotAvailable|OutOfStock"
    r"|Unschedulable|not enough|No launchable resource|Catalog does not contain|Max ?Spot ?Instance",
    re.IGNORECASE,
)
_REASON = re.compile(r"handler error|error occurred|HttpError|Exceeded|quota|capacity", re.IGNORECASE)
_ACCESS_TYPES = ("NoCloudAccessError", "CloudUserIdentityError", "InvalidCloudCredentials", "PermissionDeniedError")
_USER_TYPES = ("ValueError", "NotSupportedError", "InvalidCloudConfigs", "InvalidSkyPilotConfigError", "TypeError")


def refused(error: SkyError, *, infra: str, ordering: bool = False) -> LeaseFailed | ProviderError:
    """What to raise for a launch error. `ordering`: the launch was only being requested, so no node can have started.

    CAPACITY, unpaid, where the provider had no capacity or quota for the type; ProviderError where credentials or
    settings are wrong, since another type would not help; else LAUNCH.
    """
    text = shortened(error.text)
    answers = [reason for reason in error.reasons if _REASON.search(reason)]
    other = bool(answers) and not any(_CAPACITY.search(answer) for answer in answers)
    if set(error.types) & set(_ACCESS_TYPES) or _ACCESS.search(error.text):
        return ProviderError(f"{infra}: SkyPilot has no access: {text}")
    if "ResourcesUnavailableError" in error.types and not other:
        return LeaseFailed(FailureKind.CAPACITY, f"{infra}: {text}", seconds=0.0, billed=False)
    if ordering and set(error.types) & set(_USER_TYPES):
        return ProviderError(f"{infra}: SkyPilot refuses the order: {text}")
    return LeaseFailed(FailureKind.LAUNCH, f"{infra}: {text}", seconds=0.0, billed=True)


def with_reasons(error: SkyError, log: str) -> SkyError:
    """The error with the provider's answers, which SkyPilot writes into its log only."""
    lines = [line.strip() for line in log.splitlines() if _REASON.search(line)]
    return SkyError(error.types, error.message, (*error.reasons, *dict.fromkeys(lines[-3:])))


def shortened(text: str) -> str:
    """The beginning and the end of a long text: SkyPilot first writes what it tried, and last why it failed."""
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text
    half = MAX_TEXT_CHARACTERS // 2
    return f"{text[:half]} ... {text[-half:]}"
