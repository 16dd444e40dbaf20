"""An exhaustive model of a run between control plane and agent.

``world`` is what there is, ``plane`` and ``agent`` are what each side may do next, ``faults`` what may go wrong,
``checks`` what must hold, ``search`` goes through every order. What is decided is decided by the project's own
code: ``ledger`` runs the control plane's decisions over values instead of a database, ``held`` the agent's
attempt over a list instead of a disk. ``rules`` names what may be switched off, to see that it's needed.

``python -m model`` in ``tests/runs`` searches with budgets of one's own.
"""
