"""Runs that are stopped at a comparison."""

from __future__ import annotations

from patchtrace.engines import LocalWork


def stopping_after(jobs, monkeypatch, how):
    """Raise ``how`` after so many comparisons; returns those that were begun."""
    begun = []
    real = LocalWork.masses

    def limited(self, wanted):
        for job in wanted:
            begun.append(job)
            if len(begun) > jobs:
                raise how
            yield next(real(self, [job]))

    monkeypatch.setattr(LocalWork, "masses", limited)
    return begun
