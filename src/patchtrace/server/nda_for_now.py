"""TO BE DELETED when NDA registers with ``create`` and ``options`` and takes a Watch as ``progress``.

Replace ``nda_for_now.make_method`` by ``patchtrace.methods.base.make_method``, ``nda_for_now.options_of(name)`` by
``METHODS[name][0].options``, and ``nda_for_now.attribute(method, query, watch)`` by
``method.attribute(query, progress=watch)``.
"""

from __future__ import annotations

from dataclasses import asdict

from patchtrace.attribution import Attribution
from patchtrace.images import ImageSet
from patchtrace.methods import NDA, Method, base
from patchtrace.progress import Watch


def make_method(name: str, resources: base.Resources) -> Method:
    if name != "nda":
        return base.make_method(name, resources)
    return NDA(resources.recipe, **asdict(resources.stopping), **asdict(resources.compute))


def options_of(name: str) -> frozenset[str]:
    nda = frozenset({"recipe", "stopping", "engine", "device", "threads", "memory"})
    return nda if name == "nda" else base.METHODS[name][0].options


def attribute(method: Method, query: ImageSet, watch: Watch) -> Attribution:
    if isinstance(method, NDA):
        return method.attribute(query, progress=watch, remark=watch.remark)
    return method.attribute(query, progress=watch)
