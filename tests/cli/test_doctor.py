"""patchtrace doctor."""

from __future__ import annotations

from patchtrace.cli.doctor import EXTRAS


def test_doctor_says_what_is_missing_and_how_to_get_it(call, monkeypatch):
    monkeypatch.setitem(EXTRAS, "moon", (["no_such_package"], "to fly there"))
    code, out, _ = call("doctor")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert "works" in lines["models"]
    assert "missing" in lines["moon"]
    assert "pip install 'patchtrace[moon]'" in lines["moon"]
