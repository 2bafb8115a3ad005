"""CloudWatch metrics of a cluster's instances. Run by the SkyPilot worker, whose Python has boto3; imports no mlcd.

EC2 sends metrics every 5 minutes unless detailed monitoring is on, so a trial of a few minutes may have none yet.
"""

# mypy: disable-error-code="import-not-found, import-untyped"

import math
from datetime import UTC, datetime
from typing import Any

METRICS = {"CPUUtilization": "Average", "NetworkIn": "Sum", "NetworkOut": "Sum"}
"""Metric -> statistic, in percent of CPU and in bytes per period."""
CLUSTER_TAG = "skypilot-cluster-name"
"""The tag SkyPilot puts on the instances of a cluster."""
PERIOD_SECONDS = 60
"""The shortest period of a point; longer leases have a multiple of it."""
MOST_POINTS = 1440
"""Of one metric of one instance."""


def metrics(*, cluster_on_cloud: str, region: str, begin: float, end: float) -> dict[str, Any]:
    """The metrics of the cluster's instances between two times (seconds since 1970).

    {"region", "begin", "end", "period_seconds", "instances": {id: {metric: [[seconds, value], ...]}}}; an instance
    without data has empty lists. Raises what boto3 raises.
    """
    import boto3  # noqa: PLC0415

    period = PERIOD_SECONDS * max(math.ceil((end - begin) / (PERIOD_SECONDS * MOST_POINTS)), 1)
    found: dict[str, dict[str, list[list[float]]]] = {
        instance: {metric: [] for metric in METRICS} for instance in _instances(boto3, cluster_on_cloud, region)
    }
    names = {f"m{n}": key for n, key in enumerate((i, m) for i in found for m in METRICS)}
    queries = [
        {
            "Id": name,
            "MetricStat": {
                "Metric": {
                    "Namespace": "AWS/EC2",
                    "MetricName": metric,
                    "Dimensions": [{"Name": "InstanceId", "Value": instance}],
                },
                "Period": period,
                "Stat": METRICS[metric],
            },
        }
        for name, (instance, metric) in names.items()
    ]
    client = boto3.client("cloudwatch", region_name=region)
    for first in range(0, len(queries), 500):  # the service accepts at most 500 at once
        pages = client.get_paginator("get_metric_data").paginate(
            MetricDataQueries=queries[first : first + 500],
            StartTime=datetime.fromtimestamp(begin, UTC),
            EndTime=datetime.fromtimestamp(end, UTC),
            ScanBy="TimestampAscending",
        )
        for page in pages:
            for result in page["MetricDataResults"]:
                instance, metric = names[result["Id"]]
                pairs = zip(result["Timestamps"], result["Values"], strict=True)
                found[instance][metric] += [[at.timestamp(), float(value)] for at, value in pairs]
    return {"region": region, "begin": begin, "end": end, "period_seconds": period, "instances": found}


def _instances(boto3: Any, cluster_on_cloud: str, region: str) -> list[str]:
    """The cluster's instances, including those terminated recently."""
    pages = (
        boto3.client("ec2", region_name=region)
        .get_paginator("describe_instances")
        .paginate(Filters=[{"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster_on_cloud]}])
    )
    reservations = [reservation for page in pages for reservation in page["Reservations"]]
    return sorted(instance["InstanceId"] for reservation in reservations for instance in reservation["Instances"])
