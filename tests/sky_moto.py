"""SkyPilot against a moto server: a home of its own, dummy credentials, catalogs placed by hand, nothing of the user's.

moto answers as EC2 does, but no machine stands behind its addresses: nodes reach "running" and their job never starts.
"""

import csv
import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from mlcd.catalog import load_catalog

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venvs" / "skypilot" / "bin" / "python"
REGION = "us-east-1"
REGIONS = {"aws": REGION, "gcp": "us-central1", "azure": "eastus"}
TIMEOUT_SECONDS = 240.0  # after which a test gives up; no assertion depends on it

needs_skypilot = pytest.mark.skipif(
    not PYTHON.exists(), reason=".venvs/skypilot is missing; run: scripts/setup-skypilot"
)


class _Door(BaseHTTPRequestHandler):
    """In front of moto: refuses to start the types in `refused`, as EC2 does when it has no room; lets all else by."""

    server: "_Doorway"
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = parse_qs(body.decode(errors="replace"))
        code = self.server.refused.get(asked.get("InstanceType", [""])[0])
        if asked.get("Action") == ["RunInstances"] and code:
            text = (
                f"<Response><Errors><Error><Code>{code}</Code><Message>refused by the test</Message></Error></Errors>"
            )
            self._answer(400, "text/xml", f"{text}<RequestID>test</RequestID></Response>".encode())
            return
        self._pass_on(body)

    def do_GET(self) -> None:
        self._pass_on(None)

    do_PUT = do_DELETE = do_HEAD = do_POST  # noqa: N815

    def _pass_on(self, body: bytes | None) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("connection",)}
        request = urllib.request.Request(
            self.server.behind + self.path, data=body, headers=headers, method=self.command
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                self._answer(answer.status, answer.headers.get("Content-Type", ""), answer.read())
        except urllib.error.HTTPError as error:
            self._answer(error.code, error.headers.get("Content-Type", ""), error.read())

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


class _Doorway(ThreadingHTTPServer):
    daemon_threads = True
    refused: dict[str, str]
    behind: str


@dataclass
class SkyMoto:
    """A usable cloud: mlcd and SkyPilot must run with `environment`."""

    home: Path
    environment: dict[str, str]
    image: str = ""
    refused: dict[str, str] = field(default_factory=dict)
    clients: dict[str, Any] = field(default_factory=dict)

    def ask(self, script: str, **given: object) -> Any:
        """`answer` of a script run by SkyPilot's Python."""
        text = f"import json\ngiven = json.loads({json.dumps(given)!r})\n{script}\nprint(json.dumps(answer))"
        done = subprocess.run(
            [str(PYTHON), "-c", text], env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def aws(self, service: str) -> Any:
        """boto3's client of a service here, whatever this process's own variables say."""
        if service not in self.clients:
            import boto3

            self.clients[service] = boto3.client(
                service,
                region_name=REGION,
                endpoint_url=self.environment["AWS_ENDPOINT_URL"],
                aws_access_key_id="testing",
                aws_secret_access_key="testing",
            )
        return self.clients[service]

    def instances(self, cluster: str = "") -> list[dict[str, Any]]:
        """Instances that are not terminated, in EC2's eyes; of one cluster by its tag."""
        pages = self.aws("ec2").get_paginator("describe_instances").paginate()
        found = [
            {
                "id": i["InstanceId"],
                "state": i["State"]["Name"],
                "type": i["InstanceType"],
                "tags": {t["Key"]: t["Value"] for t in i.get("Tags", [])},
                "spot": i.get("InstanceLifecycle") == "spot",
            }
            for page in pages
            for reservation in page["Reservations"]
            for i in reservation["Instances"]
            if i["State"]["Name"] not in ("terminated", "shutting-down")
        ]
        return [i for i in found if not cluster or i["tags"].get("mlcd") == cluster]

    def put_metrics(self, ids: list[str], values: dict[str, float]) -> None:
        """As CloudWatch's agent would."""
        data = [
            {
                "MetricName": name,
                "Dimensions": [{"Name": "InstanceId", "Value": instance}],
                "Value": value,
                "Timestamp": datetime.now(UTC),
            }
            for instance in ids
            for name, value in values.items()
        ]
        self.aws("cloudwatch").put_metric_data(Namespace="AWS/EC2", MetricData=data)

    def prepare(self) -> None:
        """What an account has and moto lacks: a way out of the network, and the role that SkyPilot gives its nodes."""
        ec2, iam = self.aws("ec2"), self.aws("iam")
        vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
        gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
        for table in ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"]:
            ec2.create_route(RouteTableId=table["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
        # What SkyPilot makes at its first launch: moto refuses the role's policy, for it has no version.
        iam.create_instance_profile(InstanceProfileName="skypilot-v1")
        iam.create_role(RoleName="skypilot-v1", AssumeRolePolicyDocument="{}")
        iam.add_role_to_instance_profile(InstanceProfileName="skypilot-v1", RoleName="skypilot-v1")
        self.image = next(i["ImageId"] for i in ec2.describe_images()["Images"] if "ubuntu" in i["Name"])

    def sky(self, *words: str) -> None:
        """The user's own command line."""
        subprocess.run([str(PYTHON.with_name("sky")), *words], env=self.environment, capture_output=True, check=False)

    def servers(self) -> list[int]:
        """Living processes of SkyPilot's API server here, found by its port."""
        mark = f"--port={self.environment['SKYPILOT_API_SERVER_LOCAL_PORT']}"
        return [pid for pid in _pids() if mark in _read(f"/proc/{pid}/cmdline").split("\0")]

    def processes(self) -> list[int]:
        """Everything alive whose home is this one."""
        return [pid for pid in _pids() if f"HOME={self.home}" in _read(f"/proc/{pid}/environ").split("\0")]


def wait_for(condition: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < give_up, f"waited in vain: {what}"
        time.sleep(0.5)


@contextmanager
def sky_moto(home: Path) -> Iterator[SkyMoto]:
    """Starts moto; SkyPilot's server is started by whoever needs it first. Everything is stopped at the end."""
    behind = free_port()
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "SKYPILOT_", "KUBE", "GOOGLE_", "MLCD_"))},
        "HOME": str(home),
        "SKYPILOT_API_SERVER_LOCAL_PORT": str(sky_port()),
        "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "MLCD_SKY_PYTHON": str(PYTHON),
    }
    place_catalogs(home)
    place_credentials(home)
    moto = subprocess.Popen(
        [str(PYTHON.with_name("moto_server")), "-H", "127.0.0.1", "-p", str(behind)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    door = _Doorway(("127.0.0.1", 0), _Door)
    door.behind = f"http://127.0.0.1:{behind}"
    environment["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{door.server_address[1]}"
    here = SkyMoto(home, environment)
    door.refused = here.refused
    threading.Thread(target=door.serve_forever, daemon=True).start()
    try:
        wait_for(lambda: _answers(behind), "moto's first answer")
        here.prepare()
        yield here
    finally:
        if here.servers():
            here.sky("api", "stop")
        moto.terminate()
        moto.wait()
        door.shutdown()
        door.server_close()
        for pid in here.processes():
            os.kill(pid, signal.SIGKILL)


def place_credentials(home: Path) -> None:
    (home / ".aws").mkdir(parents=True, exist_ok=True)
    (home / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = testing\naws_secret_access_key = testing\n"
    )
    (home / ".aws" / "config").write_text(f"[default]\nregion = {REGION}\n")


def place_catalogs(home: Path) -> None:
    """SkyPilot's catalogs, which it would download: made from mlcd's own, two zones a region."""
    header = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,Arch"
    zones = {"aws": ("use1-az1", "use1-az2"), "gcp": ("us-central1-a", "us-central1-b"), "azure": ("V2",)}
    for cloud, region in REGIONS.items():
        folder = home / ".sky" / "catalogs" / "v8" / cloud
        folder.mkdir(parents=True)
        with (folder / "vms.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*header.split(","), "Generation" if cloud == "azure" else "AvailabilityZone"])
            for i in load_catalog().for_cloud(cloud).values():
                spot = "" if i.spot_usd_per_hour is None else i.spot_usd_per_hour.dollars
                row = [i.name, i.accelerator or "", i.accelerators or "", i.vcpus, i.memory_gib, ""]
                row += [i.usd_per_hour.dollars, spot, region, "x86_64"]
                writer.writerows([*row, zone] for zone in zones[cloud])
        (folder / "images.csv").write_text("Tag,Region,OS,OSVersion,ImageId,CreationDate,BaseImageId\n")
    (home / ".sky/catalogs/v8/aws/instance_quota_mapping.csv").write_text(
        "InstanceType,SpotInstanceCode,OnDemandInstanceCode\n"
    )
    (home / ".sky/catalogs/v8/gcp/accelerator_quota_mapping.csv").write_text("Accelerator,OnDemand,Spot\n")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def sky_port() -> int:
    """A port for SkyPilot's API server such that the second one that it takes, for its queue, is free and stays so.

    The second is a function of the first (sky/server/requests/queues/mp_queue.py of 0.14), and always among those that
    the system gives to whoever connects: even ones where the range of these begins with an even number, and each for a
    minute after the connection has ended. A server that finds it taken exits. `free_port` gives odd ones, to which
    belong even second ones: so it is looked for below that range, with a second one of the other kind.
    """
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(20_000, 30_000), 10_000):
        queue = 50_000 + (port - 46_569) % 10_000
        if queue % 2 != first % 2 and _is_free(port) and _is_free(queue):
            return port
    raise AssertionError("no two ports are free for SkyPilot's API server")


def _is_free(port: int) -> bool:
    """As SkyPilot asks it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if int(path.name) != os.getpid()]


def _read(file: str) -> str:
    try:
        return Path(file).read_text(errors="replace")
    except OSError:  # it ended just now
        return ""
