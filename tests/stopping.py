"""Runs that are stopped at a comparison."""

from __future__ import annotations

from patchtrace.methods import nda


def stopping_after(jobs, monkeypatch, how):
    """Raise ``how`` after so many comparisons; returns those that were begun."""
    begun = []
    real = nda.masses_here

    def limited(*arguments):
        masses = real(*arguments)

        def some(wanted):
            for job in wanted:
                begun.append(job)
                if len(begun) > jobs:
                    raise how
                yield next(masses([job]))

        return some

    monkeypatch.setattr(nda, "masses_here", limited)
    return begun
