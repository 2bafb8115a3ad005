"""Clocks that tests set: time passes, somebody sets the wall clock, the machine is restarted or replaced."""

from dataclasses import dataclass

from mlcd.run.moment import Moment


@dataclass
class FakeClocks:
    """The clocks of one machine; called, it reads them (`Engine.moments`)."""

    wall_seconds: float = 1_000_000.0
    boot_seconds: float = 5_000.0
    starts: int = 1
    machine: str = "machine-1"

    def __call__(self) -> Moment:
        return Moment(
            wall_seconds=self.wall_seconds,
            boot_seconds=self.boot_seconds,
            boot=f"{self.machine} start {self.starts}",
            machine=self.machine,
        )

    def wait(self, seconds: float) -> None:
        """Time passes, suspended or not."""
        self.wall_seconds += seconds
        self.boot_seconds += seconds

    def set_wall(self, by_seconds: float) -> None:
        """Somebody sets the wall clock."""
        self.wall_seconds += by_seconds

    def restart(self, *, down_seconds: float = 30.0) -> None:
        """The machine is restarted; its wall clock goes on."""
        self.wall_seconds += down_seconds
        self.boot_seconds = 0.0
        self.starts += 1

    def replace_machine(self, name: str = "machine-2", *, uptime_seconds: float = 1e6) -> None:
        """Another machine with the same home continues; it was up for longer than the run exists."""
        self.machine, self.boot_seconds, self.starts = name, uptime_seconds, 1
