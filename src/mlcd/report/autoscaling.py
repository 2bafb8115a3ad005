"""Replicas by the hour as settings of autoscalers: KEDA by the clock, HPA and SkyServe by the traffic."""

import math
from collections.abc import Mapping
from typing import Any

from mlcd.run.findings import DayPlan

_HOURS_OF_A_DAY, _HOURS_OF_A_WEEK = 24, 168
_DOWN_SECONDS = 600
"""Traffic that falls is waited for so long before a replica goes: as long as a replay looks at a change."""
_UP_SECONDS = 20
"""SkyServe decides every 20 s, so that nothing less has an effect."""


def on_schedule(label: str, target: Mapping[str, str], day: DayPlan) -> dict[str, Any] | None:
    """A ScaledObject of KEDA with cron triggers: replicas start as early as they need to.

    None for profiles that are neither a day nor a week: cron knows no other periods. A week begins on Monday.
    """
    hours = len(day.replicas)
    if hours not in (_HOURS_OF_A_DAY, _HOURS_OF_A_WEEK):
        return None
    least = min(day.replicas)
    ahead = math.ceil(day.start_seconds / 60)
    triggers = [
        {
            "type": "cron",
            "metadata": {
                "timezone": "Etc/UTC",
                "start": _cron(first * 60 - ahead, hours),
                "end": _cron(last * 60, hours),
                "desiredReplicas": str(count),
            },
        }
        for first, last, count in _spans(day, least)
    ]
    if not triggers:
        return None
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": label},
        "spec": {
            "scaleTargetRef": dict(target),
            "minReplicaCount": least,
            "maxReplicaCount": max(day.replicas),
            "triggers": triggers,
        },
    }


def follows(label: str, target: Mapping[str, str], day: DayPlan) -> dict[str, Any]:
    """A HorizontalPodAutoscaler by `requests_per_second` of each pod, a metric that the cluster's adapter must have."""
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": label},
        "spec": {
            "scaleTargetRef": dict(target),
            "minReplicas": min(day.replicas),
            "maxReplicas": max(day.replicas),
            "metrics": [
                {
                    "type": "Pods",
                    "pods": {
                        "metric": {"name": "requests_per_second"},
                        "target": {"type": "AverageValue", "averageValue": f"{_milli(day)}m"},
                    },
                }
            ],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": _DOWN_SECONDS}},
        },
    }


def serve_policy(day: DayPlan) -> dict[str, Any]:
    """`replica_policy` of SkyServe, by requests a second."""
    low, high = min(day.replicas), max(day.replicas)
    if low == high:
        return {"min_replicas": low}
    return {
        "min_replicas": low,
        "max_replicas": high,
        "target_qps_per_replica": _milli(day) / 1000,
        "upscale_delay_seconds": _UP_SECONDS,
        "downscale_delay_seconds": _DOWN_SECONDS,
    }


def _milli(day: DayPlan) -> int:
    """What one replica holds, in thousandths of a request a second, rounded down."""
    return max(math.floor(day.replica_requests_per_second * 1000), 1)


def _spans(day: DayPlan, least: int) -> list[tuple[int, int, int]]:
    """(first hour, hour after the last, replicas) of hours with as many, where these are more than the least."""
    found: list[tuple[int, int, int]] = []
    for hour, count in enumerate(day.replicas):
        if found and found[-1][2] == count and found[-1][1] == hour:
            found[-1] = (found[-1][0], hour + 1, count)
        elif count > least:
            found.append((hour, hour + 1, count))
    return found


def _cron(minutes: int, hours: int) -> str:
    """`30 7 * * *`: minutes after the profile's beginning as a line of cron."""
    minutes %= hours * 60
    hour, minute = divmod(minutes, 60)
    if hours == _HOURS_OF_A_DAY:
        return f"{minute} {hour} * * *"
    return f"{minute} {hour % 24} * * {(hour // 24 + 1) % 7}"
