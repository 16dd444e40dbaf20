"""Asks one plugin's hooks. Each plugin has a manager of its own, so an answer is known to be its own and a
plugin that is half registered touches no other.
"""

from types import ModuleType
from typing import Any

import pluggy

from ..plugin import hookspecs
from ..plugin.markers import PROJECT
from .answers import WrongAnswer


class Hooks:
    """The hook implementations of one plugin.

    Raises: pluggy.PluginValidationError for a hook that doesn't exist, or one with other arguments; WrongAnswer
    for wrappers, a hook that is implemented twice, and a plugin without any.
    """

    def __init__(self, plugin: ModuleType | object) -> None:
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._manager.register(plugin)
        self._manager.check_pending()
        callers = self._manager.get_hookcallers(plugin) or []
        for caller in callers:
            _check(caller)
        if not callers:
            raise WrongAnswer("it implements no hook; decorate its functions with @hookimpl")
        self.names = tuple(sorted(caller.name for caller in callers))
        self.modules = tuple(
            sorted({hook.function.__module__ for one in callers for hook in one.get_hookimpls()})
        )
        """Those that the implementations are in."""

    def ask(self, hook: str, **arguments: Any) -> Any:
        """The implementation's own answer, None included, which pluggy would drop."""
        caller = getattr(self._manager.hook, hook)
        (impl,) = caller.get_hookimpls()
        return impl.function(*(arguments[name] for name in impl.argnames))


def _check(caller: pluggy.HookCaller) -> None:
    implementations = caller.get_hookimpls()
    if len(implementations) > 1:
        raise WrongAnswer(f"it implements {caller.name} twice; answer everything from one function")
    if any(one.hookwrapper or one.wrapper for one in implementations):
        raise WrongAnswer(f"{caller.name} is a hook wrapper; plain implementations alone are asked")
