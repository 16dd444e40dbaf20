"""How long an absent worker is waited for: one timer a run, on the attentive clock. Nothing of it is durable."""

from collections.abc import Callable

from codefyui_core.clocks import AfterPause, AttentiveClock, Timer


class Graces:
    """Starts and stops the timers; ``over`` is told which run's time is up."""

    def __init__(self, clock: AttentiveClock, grace_s: float, over: Callable[[str, int], None]) -> None:
        self._clock = clock
        self._over = over
        self._timers: dict[tuple[str, int], Timer] = {}
        self.grace_s = grace_s

    def start(self, run_id: str, attempt: int) -> None:
        """In full, also when it runs already."""
        self.stop(run_id, attempt)
        key = (run_id, attempt)
        self._timers[key] = self._clock.timer(
            self.grace_s, lambda: self._fire(key), after_pause=AfterPause.RESTART
        )

    def stop(self, run_id: str, attempt: int) -> None:
        timer = self._timers.pop((run_id, attempt), None)
        if timer is not None:
            timer.cancel()

    def stop_all(self) -> None:
        for key in list(self._timers):
            self.stop(*key)

    def __contains__(self, key: tuple[str, int]) -> bool:
        return key in self._timers

    def _fire(self, key: tuple[str, int]) -> None:
        self._timers.pop(key, None)
        self._over(*key)
