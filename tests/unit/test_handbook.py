import pytest

from geartrain.handbook import describe_method, list_methods
from geartrain.methods import METHODS


def test_every_method_is_listed_with_its_source():
    text = " ".join(list_methods().split())
    for name, method in METHODS.items():
        assert f"{name} {method.what} ({method.source})" in text


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_explained_with_every_setting_in_lines_that_fit_a_terminal(name):
    text = describe_method(name)
    assert max(map(len, text.splitlines())) <= 100
    flat = " ".join(text.split())
    for key, setting in METHODS[name].settings.items():
        assert f" {key} = " in flat
        for told in (setting.what, setting.low, setting.high):
            assert " ".join(told.split()) in flat
