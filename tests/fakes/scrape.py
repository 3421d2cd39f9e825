"""What Prometheus would see at an endpoint."""

from urllib.request import ProxyHandler, build_opener

from prometheus_client.parser import text_string_to_metric_families

_OPEN = build_opener(ProxyHandler({})).open


def fetch(port, timeout=10.0):
    """Return the answer of an endpoint on this machine, as text."""
    with _OPEN(f"http://127.0.0.1:{port}/metrics", timeout=timeout) as answer:
        return answer.read().decode()


def parse(text):
    """Return {(name, labels as a sorted tuple of pairs): value} of a scrape; raises on what is no exposition."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"{key} twice"
            found[key] = sample.value
    return found


def counters(text):
    """Return the samples of a scrape that must never fall: of counters, and of histograms."""
    kinds = {family.name: family.type for family in text_string_to_metric_families(text)}
    rising = {name for name, kind in kinds.items() if kind in ("counter", "histogram")}

    def base(name):
        for end in ("_total", "_bucket", "_count", "_sum"):
            if name.endswith(end) and name.removesuffix(end) in rising:
                return True
        return False

    return {key: value for key, value in parse(text).items() if base(key[0])}
