"""The HTML pages: templates of this room, filled with what is stored, and with the pictures of mlcd.report."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, FunctionLoader, TemplateNotFound
from markupsafe import Markup
from starlette.requests import Request

from mlcd.errors import BadInput
from mlcd.kinds import kind_of
from mlcd.report.page import drawn, environment
from mlcd.report.result_types import result_json
from mlcd.report.sparkline import sparkline
from mlcd.report.svg import embedded
from mlcd.run.kind import Kind
from mlcd.run.run import Run
from mlcd.store.summary import RunFilter
from mlcd.trial.outcome import Status
from mlcd.units import Usd, format_seconds
from mlcd.untrusted import whole_number
from mlcd.version import __version__
from mlcd.web.answer import tiles
from mlcd.web.api import catalog, templates
from mlcd.web.api_types import BenchesJson, RunNowJson
from mlcd.web.comparison import compared, training_taken, verdict
from mlcd.web.records import Records
from mlcd.web.run_page import WIDTHS, RunPage
from mlcd.web.serving_what_if import limit_sliders, serving_what_if_json
from mlcd.web.what_if import what_if_json
from mlcd.web.why_not import caveats, failure, reason, subjects
from mlcd.web.why_not import compared as compared_with

PAGE_RUNS = 50
"""Runs on one page of the list."""
MOST_OFFSET = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An entry of the navigation."""

    path: str
    name: str


LINKS = (
    Link(path="/", name="Runs"),
    Link(path="/new", name="New run"),
    Link(path="/bench", name="Bench"),
    Link(path="/catalog", name="Catalog"),
)
MOST_COMPARED = 8


class Pages:
    """The pages of one home."""

    def __init__(self, records: Records, *, allow_spend: bool = False, benches: BenchesJson) -> None:
        self._records, self._allow_spend, self._benches = records, allow_spend, benches

    @property
    def routes(self) -> dict[str, Callable[[Request], str]]:
        """The pages by path."""
        return {
            "/": self.runs,
            "/runs/{run_id}": self.run,
            "/runs/{run_id}/live": self.live,
            "/runs/{run_id}/tables/{picture}": self.table,
            "/runs/{run_id}/what-if": self.what_if,
            "/runs/{run_id}/report": self.report,
            "/compare": self.compare,
            "/new": self.new,
            "/bench": self.bench,
            "/catalog": self.catalog,
        }

    # ---- pages

    def runs(self, request: Request) -> str:
        """The list of runs."""
        given = request.query_params
        kind, status = given.get("kind", ""), given.get("status", "")
        offset = min(whole_number(given.get("offset", "")) or 0, MOST_OFFSET)
        wanted = RunFilter(
            words=tuple(given.get("search", "")[:255].split()[:10]),
            kind=Kind(kind) if kind in tuple(Kind) else None,
            status=Status(status) if status in tuple(Status) else None,
        )
        found = self._records.list(wanted, limit=PAGE_RUNS, offset=offset)
        return self._render(
            "runs.html.j2",
            "Runs",
            found=found,
            search=given.get("search", ""),
            kind=kind,
            status=status,
            kinds=tuple(map(str, Kind)),
            statuses=tuple(map(str, Status)),
            page_runs=PAGE_RUNS,
        )

    def run(self, request: Request) -> str:
        """A run; it stays up to date by itself."""
        run_id = request.path_params["run_id"]
        values = self._run_values(run_id, [], self._records.now(run_id))
        return self._render("run.html.j2", run_id, is_page=True, **values)  # its buttons wait for the page's script

    def live(self, request: Request) -> str:
        """The numbers of a run, and the parts of its page that the browser asks for: those that the reader sees."""
        asked = []
        for each in filter(None, request.query_params.get("parts", "").split(",")):
            name, _, width = each.partition(":")
            if width not in WIDTHS:
                raise BadInput(f"parts: write NAME:WIDTH; allowed widths: {', '.join(WIDTHS)}")
            asked.append((name, width))
        run_id = request.path_params["run_id"]

        def rendered(_: Run[Any], now: RunNowJson) -> str:
            return self._render("run_live.html.j2", "", is_page=False, **self._run_values(run_id, asked, now))

        return self._records.made_now(run_id, f"live {asked}", rendered)

    def table(self, request: Request) -> str:
        """The table of a picture."""
        return self._run_page.table(request.path_params["run_id"], request.path_params["picture"])

    def what_if(self, request: Request) -> str:
        """Other limits, and what would have been decided under them."""
        run_id = request.path_params["run_id"]
        run = self._records.run(run_id)
        if run.kind is Kind.SERVERLESS:
            raise BadInput(
                f"{run_id} is a training on functions: each epoch was chosen for the money and time that remained then,"
                " and other limits would have led to epochs that nobody measured; its page says what more budget would"
                " bring"
            )
        return self._serving_what_if(run) if run.kind is Kind.SERVE else self._training_what_if(run)

    def _serving_what_if(self, run: Run[Any]) -> str:
        goal = run.problem.goal
        found = serving_what_if_json(self._records, run.run_id, rate=goal.rate, limits=None)
        return self._render(
            "serving_what_if.html.j2",
            f"What if - {run.run_id}",
            run=run,
            goal=goal.serving_text,
            found=found,
            limits=limit_sliders(run, found),
            most_rate=max((each.requests_per_second for each in found.options), default=0.0),
        )

    def _training_what_if(self, run: Run[Any]) -> str:
        run_id = run.run_id
        found = what_if_json(
            self._records,
            run_id,
            budget_usd=None if run.problem.goal.budget is None else run.problem.goal.budget.dollars,
            deadline_seconds=run.problem.goal.deadline_seconds,
            time_weight=None,
            next_trial=False,
        )
        return self._render(
            "what_if.html.j2",
            f"What if - {run_id}",
            run=run,
            goal=str(run.problem.goal),
            found=found,
            paid=training_taken(run),
            types=list(dict.fromkeys(config.instance for config in run.problem.space)),
            most_usd=max([found.spent_usd.dollars + each.worst_usd.dollars for each in found.options], default=0.0),
            most_seconds=max([found.spent_seconds + each.worst_seconds for each in found.options], default=0.0),
        )

    def report(self, request: Request) -> str:
        """The report of a run, as `mlcd report` writes it."""
        return self._records.made(request.path_params["run_id"], "report", lambda run: kind_of(run.kind).html(run))

    def compare(self, request: Request) -> str:
        """Runs side by side."""
        names = list(dict.fromkeys(request.query_params.getlist("run")))[:MOST_COMPARED]
        if len(names) < 2:
            raise BadInput("choose two runs or more to compare, on the page of all runs")
        found = [self._records.run(name) for name in names]
        now = [self._records.now(name) for name in names]
        figures = [
            (name, first) for name in names if (first := next(iter(self._run_page.outline(name).pictures), None))
        ]
        return self._render(
            "compare.html.j2",
            "Compare",
            runs=found,
            verdict=verdict(found, now),
            rows=compared(found, now),
            figures=figures,
        )

    def new(self, _: Request) -> str:
        """A new run from a template or a pasted job file."""
        return self._render("new.html.j2", "New run", section="New run", templates=templates().templates)

    def bench(self, _: Request) -> str:
        """Strategies compared."""
        return self._render("bench.html.j2", "Bench", section="Bench", results=self._benches.results)

    def catalog(self, _: Request) -> str:
        """Instance types and prices."""
        return self._render("catalog.html.j2", "Catalog", section="Catalog", catalog=catalog())

    def problem(self, status: int, text: str) -> str:
        """A page that says what is wrong."""
        return self._render("problem.html.j2", "Problem", status=status, text=text)

    # ---- parts

    def _run_values(self, run_id: str, asked: list[tuple[str, str]], now: RunNowJson) -> dict[str, Any]:
        outline = self._run_page.outline(run_id)
        return {
            "outline": outline,
            "tiles": tiles(outline.run, now, outline.goal),
            "content": self._run_page.content(run_id, asked),
            "now": now,
            "now_json": result_json(now),
            "why": reason(outline.run),
            "caveats": caveats(outline.run),
            "compared": compared_with(outline.run),
            "failure": failure(outline.run),
            "more_budget": self._more_budget(outline.run),
            "subjects": self._records.made(run_id, "subjects", subjects),
        }

    def _more_budget(self, run: Run[Any]) -> str:
        """What more budget would bring, where the search has ended; "" before."""
        from mlcd.findings.more_budget import more_budget_text  # noqa: PLC0415 - imported once the page is there

        return self._records.made(run.run_id, "more budget", more_budget_text)

    def _render(self, template: str, title: str, *, section: str = "Runs", **values: object) -> str:
        page = {
            "title": title,
            "section": section,
            "links": LINKS,
            "version": __version__,
            "allow_spend": self._allow_spend,
        }
        return self._environment.get_template(template).render(page=page, **values)

    @cached_property
    def _run_page(self) -> RunPage:
        return RunPage(self._records, self._environment)

    @cached_property
    def _environment(self) -> Environment:
        shared = environment()
        own = shared.overlay(loader=ChoiceLoader([FunctionLoader(_template), shared.loader]))  # type: ignore[list-item]
        own.filters |= {"usd": _usd, "duration": _duration, "spark": _spark}
        return own


def _template(name: str) -> str:
    found = files("mlcd.web") / "templates" / name
    if not found.is_file():
        raise TemplateNotFound(name)
    return found.read_text(encoding="utf-8")


def _usd(value: Usd | None) -> str:
    return "no limit" if value is None else str(value)


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else format_seconds(seconds)


def _spark(values: tuple[Usd, ...]) -> Markup:
    """What was spent, step by step, as a small line."""
    return drawn(embedded(sparkline([usd.dollars for usd in values], title="spending, step by step")))
