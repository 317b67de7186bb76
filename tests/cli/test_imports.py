"""The imports of a run: the collector of garbage pauses, and leaves what they made alone."""

from __future__ import annotations

import gc
import sys

import pytest

from attnsvm.cli.job import _kept_for_good


@pytest.fixture
def without_torch(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize("error", [None, ImportError])
def test_imported_objects_are_kept_and_collection_goes_on(error):
    kept = [object()]
    assert any(found is kept for found in gc.get_objects())
    if error is None:
        with _kept_for_good():
            assert not gc.isenabled()
    else:
        with pytest.raises(error), _kept_for_good():
            raise error
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    assert not any(found is kept for found in gc.get_objects())


@pytest.mark.usefixtures("without_torch")
def test_a_collector_that_the_user_stopped_stays_so():
    gc.disable()
    with _kept_for_good():
        pass
    assert not gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_what_was_there_before_is_still_collected(monkeypatch):
    """With torch imported the objects are the user's own."""
    monkeypatch.setitem(sys.modules, "torch", sys)
    before = gc.get_freeze_count()
    with _kept_for_good():
        assert gc.isenabled()
    assert gc.get_freeze_count() == before
