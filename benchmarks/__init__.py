"""How fast and how large CodefyUI is, each figure beside a baseline measured in the same run.

``./cdui bench`` runs them; nothing here is imported by the product or by its tests.
"""
