"""Feature tables with values that are easy to tell apart, and a store over them."""

from datetime import UTC, datetime, timedelta

import pytest

from geartrain.features.store import private_store
from geartrain.features.tables import CREATED, EVENT, TABLES, write_tables

ORIGIN = datetime(2000, 1, 1, tzinfo=UTC)


def at(tick):
    return ORIGIN + timedelta(hours=tick)


def row(table, key, event, created=None, **values):
    """Return a row of a table: known when it happened unless told otherwise, null where no value is given."""
    schema = TABLES[table]
    blank = dict.fromkeys(schema.names)
    times = {EVENT: at(event), CREATED: at(event if created is None else created)}
    return {**blank, schema.names[0]: key, **times, **values}


@pytest.fixture
def store_of(tmp_path):
    """Return a function from rows by table to a store that knows them."""

    def make(rows):
        write_tables(tmp_path / "features/tables", rows)
        return private_store(tmp_path / "features")

    return make
