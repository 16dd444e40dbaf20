"""``/metrics`` in Prometheus' text format."""

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from codefyui_core.plugin.http import Auth, Caller, Route

if TYPE_CHECKING:
    from codefyui_core.control.plane import ControlPlane


class PlaneCollector(Collector):
    """Reads what the plane knows at the moment of a scrape."""

    def __init__(self, plane: "ControlPlane") -> None:
        self._plane = plane
        self.workers: dict[str, int] = {}
        """By status, read just before a scrape."""

    def collect(self) -> Iterator[Metric]:
        runs = GaugeMetricFamily("codefyui_runs", "Runs that are queued or executing", labels=["status"])
        for status, number in self._plane.runs.numbers.counts().items():
            runs.add_metric([status], number)
        yield runs
        waiting = GaugeMetricFamily("codefyui_queue_waiting", "Waiting runs by line", labels=["queue_key"])
        for key, number in self._plane.runs.numbers.waiting().items():
            waiting.add_metric([key], number)
        yield waiting
        slots = GaugeMetricFamily("codefyui_slots", "Slots by device", labels=["worker", "device", "state"])
        for (worker, device), (used, total) in self._plane.runs.numbers.slots().items():
            slots.add_metric([worker, device, "used"], used)
            slots.add_metric([worker, device, "free"], max(total - used, 0))
        yield slots
        workers = GaugeMetricFamily("codefyui_workers", "Workers by status", labels=["status"])
        for status, number in self.workers.items():
            workers.add_metric([status], number)
        yield workers
        events = CounterMetricFamily("codefyui_events", "Events committed since the start")
        committed, seconds, commits = self._plane.runs.committed()
        events.add_metric([], committed)
        yield events
        took = CounterMetricFamily("codefyui_event_commit_seconds", "Time spent in commits of events")
        took.add_metric([], seconds)
        yield took
        count = CounterMetricFamily("codefyui_event_commits", "Commits of events")
        count.add_metric([], commits)
        yield count
        window = GaugeMetricFamily(
            "codefyui_link_unacknowledged_bytes", "Bytes that agents sent and that aren't committed yet"
        )
        window.add_metric([], self._plane.workers.unacknowledged_bytes())
        yield window


class HttpMetrics:
    """Counts answers by route and status."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "codefyui_http_requests", "Answered requests", ["route", "status"], registry=self.registry
        )

    def middleware(self) -> Any:
        Next = Callable[[web.Request], Awaitable[web.StreamResponse]]

        @web.middleware
        async def count(request: web.Request, handler: Next) -> web.StreamResponse:
            response = await handler(request)
            resource = request.match_info.route.resource
            route = resource.canonical if resource is not None else "none"
            self.requests.labels(route, str(response.status)).inc()
            return response

        return count


def routes(plane: "ControlPlane") -> list[Route]:
    collector = PlaneCollector(plane)
    plane.http_metrics.registry.register(collector)

    async def metrics(request: web.Request, caller: Caller) -> web.StreamResponse:
        collector.workers = await plane.workers.counts()
        body = generate_latest(plane.http_metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    return [
        Route(
            method="GET",
            path="/metrics",
            handler=metrics,
            auth=Auth.OPEN,
            answers="text/plain",
            summary="Counters and gauges for Prometheus",
        )
    ]
