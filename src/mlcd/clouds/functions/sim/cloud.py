"""The simulated cloud of functions: an epoch returns at once, and repeats exactly for the same order."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mlcd.clouds.chance import generator, share
from mlcd.clouds.functions.provider import EpochFailed, EpochOrder
from mlcd.clouds.functions.sim.laws import LOSS_MEMORY_EPOCHS, FunctionLaws
from mlcd.functions import FunctionProblem
from mlcd.trial.epoch import Epoch, Fleet, Phase
from mlcd.units import Usd

OUT_OF_MEMORY_SECONDS = 20.0
"""How long a call with too little memory runs before it dies; that time is paid for."""


@dataclass(frozen=True, slots=True)
class _State:
    """The state after an epoch: the training's progress, which containers are warm, how far the loss deviates.

    deviation  of the measured loss, in standard deviations
    """

    progress: float = 0.0
    warm: Fleet | None = None
    deviation: float = 0.0


class SimFunctionCloud:
    """`sim/lambda`; see mlcd.clouds.functions.provider for the contract.

    run_laws  the laws with this run's own speed, which schedulers can only learn

    Random draws are keyed by (seed, epoch, purpose): two schedulers see the same conditions in the same epoch, and an
    epoch that is run again from the same parameters has the same outcome.
    """

    name = "sim/lambda"
    simulated = True

    def __init__(self, *, problem: FunctionProblem, laws: FunctionLaws, seed: int = 0) -> None:
        self.problem, self.laws, self.seed = problem, laws, seed
        self._states: dict[tuple[str, int], _State] = {}
        deviation = laws.chance.run
        factor = math.exp(deviation * generator("run", seed).gauss() - deviation**2 / 2)
        self.run_laws = replace(
            laws, work_seconds=laws.work_seconds * factor, round_seconds=laws.round_seconds * factor
        )

    def restore(self, run_id: str, epochs: Sequence[Epoch]) -> None:
        """Continue a run of an earlier process: recomputes its progress exactly, epoch by epoch."""
        state = _State()
        for epoch in epochs:
            state = self._after(state, epoch.number, epoch.fleet)
            self._states[run_id, epoch.number] = state

    def progress_after(self, epochs: Sequence[Epoch]) -> float:
        """The true progress after `epochs` of a run, which no measured loss shows."""
        state = _State()
        for epoch in epochs:
            state = self._after(state, epoch.number, epoch.fleet)
        return state.progress

    def run_epoch(self, order: EpochOrder) -> Epoch:
        """Raises EpochFailed when the epoch exceeds its authorisation, runs out of memory, or too many calls fail."""
        laws, problem, fleet = self.laws, self.problem, order.fleet
        before = self._before(order)
        if fleet.memory_mb < laws.working_set_mb:
            seconds = min(OUT_OF_MEMORY_SECONDS, order.seconds)
            message = f"functions of {fleet.memory_mb} MB ran out of memory"
            raise EpochFailed(message, seconds=seconds, usd=self._charge(fleet, seconds, 0))
        cold = self._cold(before.warm, fleet)
        failed = self._failed(order)
        seconds = self._seconds(order, cold, failed)
        if failed > problem.repeats(fleet.functions):
            message = f"{failed} of {fleet.functions} calls failed, more than may be repeated"
            raise EpochFailed(message, seconds=min(seconds, order.seconds), usd=self._at_most(order, seconds, failed))
        if seconds > order.seconds:
            message = f"the epoch would have taken {seconds:.0f} s and was ended after {order.seconds:.0f} s"
            raise EpochFailed(message, seconds=order.seconds, usd=self._at_most(order, seconds, failed))
        after = self._after(before, order.number, fleet)
        self._states[order.run_id, order.number] = after
        return self._epoch(order, seconds, after, cold=cold, failed=failed)

    def _after(self, before: _State, number: int, fleet: Fleet) -> _State:
        """The state after epoch `number`; chance depends on the seed and the number only."""
        progress = self._progress(before.progress, number, fleet)
        if not self.laws.chance.loss:
            return _State(progress, fleet)
        kept = math.exp((before.progress - progress) / LOSS_MEMORY_EPOCHS) if number > 1 else 0.0
        drawn = generator("loss", self.seed, number).gauss()
        return _State(progress, fleet, kept * before.deviation + math.sqrt(1 - kept**2) * drawn)

    def _loss(self, state: _State) -> float:
        """The measured loss: the true one, whose height above the floor deviates."""
        true, noise = self.laws.loss(state.progress), self.laws.chance.loss
        return true + (true - self.laws.floor_loss) * math.expm1(noise * state.deviation) if noise else true

    def _progress(self, before: float, number: int, fleet: Fleet) -> float:
        """The progress after epoch `number`; chance depends on the seed and the number only."""
        drawn = generator("progress", self.seed, number).gauss()
        deviation = self.laws.chance.progress / math.sqrt(fleet.share)  # chance averages out over an epoch
        factor = math.exp(deviation * drawn - deviation**2 / 2)
        return before + fleet.share * self.laws.gain(fleet.functions, before) * factor

    def _before(self, order: EpochOrder) -> _State:
        if order.number == 1:
            return _State()
        key = order.run_id, order.number - 1
        if key not in self._states:
            raise ValueError(f"epoch {order.number} was ordered before epoch {order.number - 1} was run or restored")
        return self._states[key]

    def _cold(self, warm: Fleet | None, fleet: Fleet) -> int:
        """The number of new containers; a change of memory size makes all of them new."""
        if warm is None or warm.memory_mb != fleet.memory_mb:
            return fleet.functions
        return max(0, fleet.functions - warm.functions)

    def _failed(self, order: EpochOrder) -> int:
        """The number of calls that die: binomial, by its normal approximation where the mean is large."""
        chance, functions = self.laws.chance.failure, order.fleet.functions
        if chance == 0:
            return 0
        random = generator("failed", self.seed, order.number, order.fleet)
        mean = functions * chance
        if mean > 20:
            return max(0, round(random.gauss(mean, math.sqrt(mean * (1 - chance)))))
        # Geometric gaps between failures: one draw per failure instead of one per function.
        at, count = 0.0, 0
        while True:
            at += math.floor(math.log(1 - random.random()) / math.log1p(-chance)) + 1
            if at > functions:
                return count
            count += 1

    def _seconds(self, order: EpochOrder, cold: int, failed: int) -> float:
        laws, fleet, chance = self.run_laws, order.fleet, self.laws.chance
        n, m = fleet.functions, fleet.memory_mb
        weather = generator("weather", self.seed, order.number).gauss()
        tail = (chance.slowness - 1) * laws.round_seconds / laws.speed(m)
        any_slow = 1 - (1 - chance.straggler) ** n
        is_slow = share("straggler", self.seed, order.number, fleet) < any_slow
        # The laws' seconds are the mean, so the expected delay of stragglers is subtracted.
        usual = (
            laws.part_seconds(n, m, fleet.share) * math.exp(chance.weather * weather - chance.weather**2 / 2)
            - any_slow * tail
        )
        redone = failed / n / 2
        return max(usual, 0.0) * (1 + redone) + is_slow * tail + chance.cold_seconds * cold / n

    def _charge(self, fleet: Fleet, seconds: float, failed: int) -> Usd:
        """Every function is charged until the barrier, in calls of at most the limit, with its requests and storage."""
        problem, n = self.problem, fleet.functions
        full, rest = divmod(seconds, problem.limit_seconds)
        calls = [(problem.limit_seconds, int(full) * n), (rest, n)]
        return problem.prices.charge_alike(
            memory_mb=fleet.memory_mb,
            calls=calls,
            puts=math.ceil(problem.puts_per_function * fleet.share) * n,
            gets=math.ceil(problem.gets_per_function * fleet.share) * n,
            requests=(int(full) + 1) * n + failed,
        )

    def _at_most(self, order: EpochOrder, seconds: float, failed: int) -> Usd:
        repeats = min(failed, self.problem.repeats(order.fleet.functions))
        return min(order.usd, self._charge(order.fleet, min(seconds, order.seconds), repeats))

    def _epoch(self, order: EpochOrder, seconds: float, after: _State, *, cold: int, failed: int) -> Epoch:
        laws, fleet = self.run_laws, order.fleet
        n, m = fleet.functions, fleet.memory_mb
        parallel, update = laws.parallel_seconds(n, m) * fleet.share, laws.update_seconds(n, m) * fleet.share
        fetched = laws.fetch_seconds(n, m) * fleet.share
        stretch = seconds / laws.part_seconds(n, m, fleet.share)
        fetch, compute = fetched * stretch, (parallel - fetched) * stretch
        spread = 1 + 0.02 * math.sqrt(2 * math.log(max(n, 2)))
        return Epoch(
            number=order.number,
            fleet=fleet,
            loss=self._loss(after),
            seconds=seconds,
            usd=self._charge(fleet, seconds - laws.waiting_seconds(n) * stretch, failed),
            fetch=Phase(mean_seconds=fetch, max_seconds=fetch * spread),
            compute=Phase(mean_seconds=compute, max_seconds=compute * spread),
            update=Phase(mean_seconds=update * stretch, max_seconds=update * stretch * spread),
            calls=n * (int(seconds // self.problem.limit_seconds) + 1) + failed,
            failed=failed,
            cold_starts=cold,
            memory_share=laws.working_set_mb / m,
            cpu_share=compute / seconds if seconds > 0 else 0.0,
        )
