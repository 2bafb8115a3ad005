"""A run whose global batch was chosen: its pictures over (K, B), and its noise in words."""

from mlcd.problem import Problem
from mlcd.report.batch_picture import batch_picture, batch_table
from mlcd.report.origin import origin_word
from mlcd.report.picture import Picture
from mlcd.run.findings import BatchFindings, TargetState
from mlcd.run.run import SearchRun

BLACK_BOX = (
    "The job reports no SGD noise, so only its parallel performance was modelled: the statistics of its batches are"
    " a black box (docs/progress.md says how to report it)."
)


def batches(record: SearchRun) -> Picture | None:
    """Time against cost at the prices of this run: one curve per batch over K, predicted and measured."""
    text = (
        "What the whole training takes on K nodes with a global batch B: lines and hollow marks are predictions, full"
        " marks are measurements. The ring is the choice."
    )
    notes = " ".join(batch_notes(record))
    return _picture(record, name="batches", title="Nodes and batches", description=f"{text} {notes}".strip())


def repriced(record: SearchRun) -> Picture | None:
    """The same under the other price policy, by memory or by node; the ring is its own knee."""
    text = (
        "The same with nodes priced by the memory that their share of the batch needs instead of a fixed price, or the"
        " other way round. The ring is the knee."
    )
    title = "The same under other prices"
    return _picture(record, name="batches-repriced", title=title, description=text, is_repriced=True)


def batch_notes(record: SearchRun) -> list[str]:
    """What the search found about noise, the worth of samples and the target: one sentence each."""
    found = record.train_findings.batches
    return [] if found is None else [*_noise_notes(found), *_target_notes(record, found)]


def work_text(problem: Problem) -> str:
    """`75,000 samples`, or the target that ends the training."""
    samples = f"{problem.work_samples:,.0f} samples"
    if problem.target is None:
        return samples
    return f"until {problem.target}, at most {samples}" if problem.work_known else f"until {problem.target}"


def _noise_notes(found: BatchFindings) -> list[str]:
    notes = (
        [_noise_note(found.noise_scale, found.expected_noise_scale)] if found.noise_scale is not None else [BLACK_BOX]
    )
    if any(abs(worth - 1) > 0.005 for _, worth in found.worths):
        why = "By its learning-rate rule" if found.by_learning_rate_rule else "By this noise"
        parts = " and ".join(f"at {size:,} for {worth:.0%}" for size, worth in found.worths if abs(worth - 1) > 0.005)
        notes.append(f"{why} a sample counts {parts} of one at a batch of {found.reference:,}.")
    return notes


def _noise_note(measured: float, expected: float | None) -> str:
    meaning = "up to this size a larger batch saves steps in proportion, far beyond it hardly any"
    if expected is None:  # a run of an earlier version
        return f"The gradients' noise scale is about {_samples(measured)}: {meaning}."
    return (
        f"The gradients' noise scale was about {_samples(measured)} in the trials, and {_samples(expected)} are"
        f" expected over the rest: {meaning}."
    )


def _samples(count: float) -> str:
    return "1 sample" if round(count) == 1 else f"{count:,.0f} samples"


def _target_notes(record: SearchRun, found: BatchFindings) -> list[str]:
    aim, whole = str(record.problem.target), found.target_samples or 0.0
    if found.target is TargetState.UNKNOWN:
        return [f"The trials could not predict when {aim} will be met, so the time of the whole training is unknown."]
    if found.target is TargetState.MET:
        return [f"{aim} was met in a trial."]
    if found.target is TargetState.ALLOWED:
        return [f"Assumes the {whole:,.0f} samples that job.epochs allows to reach {aim}."]
    if found.target is TargetState.EXPECTED:
        return [f"After the trials {aim} was expected at about {whole:,.0f} samples at a batch of {found.reference:,}."]
    return []


def _picture(
    record: SearchRun, *, name: str, title: str, description: str, is_repriced: bool = False
) -> Picture | None:
    found = record.train_findings.batches
    if found is None:
        return None
    tradeoff = found.repriced if is_repriced else found.as_paid
    what = "Time of a million samples" if found.per_million else "Training time"
    priced = "priced by memory" if found.paid_by_memory != is_repriced else "a fixed price per node"
    heading = f"{what} against cost on {found.instance}, one curve per global batch over K nodes, {priced}"

    def draw(width: float) -> str:
        return batch_picture(tradeoff, title=heading, origin=origin_word(record), width=width)

    return Picture(name=name, title=title, description=description, table=batch_table(tradeoff), draw=draw)
