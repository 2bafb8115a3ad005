"""mlcd's engine survives every hostile cloud."""

from mlcd.testing import HostileCloudContract


class TestEngine(HostileCloudContract):
    pass
