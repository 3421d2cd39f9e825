"""What stands at the head of a runbook: made from the alert, so that the page tells no other limit than the rule."""

from geartrain.monitoring.alert import PREFIX, Alert


def head(alert: Alert) -> str:
    """Return the head of an alert's page: its name, how urgent it is, and when it fires."""
    when = "as soon as this holds" if alert.hold == "0s" else f"once this has held for {alert.hold}"
    return f"# {PREFIX}{alert.name}\n\nSeverity **{alert.severity}**; fires {when}:\n\n```\n{alert.expr}\n```\n\n"


def with_head(page: str, alert: Alert) -> str:
    """Return a page with the head that its alert has now; what follows from its first section on is a person's."""
    start = page.find("## ")
    return head(alert) + (page[start:] if start >= 0 else page)
