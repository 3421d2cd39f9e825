"""Is what the lineage says still true? The chain of every file, the artifacts on disk, and whether the events fit.

A fault is what nobody should meet in good faith: a changed, dropped or reordered event, a file cut short, an artifact
whose bytes or maker are not what was recorded. A note is what a kill or a later run leaves behind.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geartrain import artifacts, withdrawals
from geartrain.artifacts import Manifest
from geartrain.errors import UserError
from geartrain.lineage import events, evidence, journal, tombstones
from geartrain.lineage.index import FILE, Index
from geartrain.lineage.journal import Head, Line
from geartrain.lineage.recording import ADOPTED
from geartrain.metrics import flatten
from geartrain.sources import digest_now

_READINGS = 20


@dataclass(frozen=True)
class Finding:
    """Something that `geartrain lineage verify` says."""

    where: str
    """A file, a folder, or a run."""
    what: str
    fault: bool = True
    """Whether it counts against the lineage; a note does not."""


@dataclass(frozen=True)
class Checked:
    """What was looked at, and what was found."""

    counts: Mapping[str, int]
    """What was looked at -> how many."""
    findings: tuple[Finding, ...]
    heads: Mapping[str, Head]
    """Writer -> how far it has come: keep them elsewhere, and nobody can take away events unseen."""

    @property
    def faults(self) -> list[Finding]:
        """Return what counts against the lineage."""
        return [found for found in self.findings if found.fault]


def check_chain(folder: Path, kept: Mapping[str, Head] | None = None) -> Checked:
    """Check every line of a lineage folder against the one before it, and every file against its head.

    Args:
        folder: the lineage folder.
        kept: heads of an earlier check, from where nobody could change them.
    """
    findings, lines, heads = [], 0, {}
    # heads before the files that they tell of: others may be writing
    files = {path.stem: path for place in (journal.PULLED, journal.JOURNAL) for path in (folder / place).glob("*.head")}
    told = {name: _settled(path) for name, path in files.items()}
    chains = journal.writers(folder)
    for name in sorted({*chains, *told}):
        reached, found = _follow(name, chains.get(name, []), told, (kept or {}).get(name))
        findings += found
        lines += reached.count
        heads[name] = reached
    missing = sorted((kept or {}).keys() - heads.keys())
    findings += [Finding(f"writer {name}", "all of its files are gone") for name in missing if (kept or {})[name].count]
    return Checked({"files": sum(map(len, chains.values())), "events": lines}, tuple(findings), heads)


def check_events(index: Index, at_work: Iterable[str] = ()) -> Checked:
    """Check that events fit together: every end has its beginning, every input was made or is from outside.

    And that what is read of them is what they say: the index that lies there is held against one made anew.

    Args:
        index: of the lineage.
        at_work: names of the stages that run right now; that they have said no end is no finding.
    """
    findings, busy = [], set(at_work)
    made, runs, headless = index.made(), index.runs(), evidence.headless(index)
    for run in runs:
        where = f"run {run.id} ({run.name})"
        if run.state == "START" and run.name not in busy:
            text = "began and said no end: it was killed; its next try, or `geartrain reap`, says so"
            findings.append(Finding(where, text, fault=False))
        elif run.id in headless:
            findings.append(Finding(where, f"{run.state} without START: its first event is missing"))
    nobody = "was read, and no run in this lineage made it"
    others = [node for node in index.artifacts() if node.type != "source" and node.digest not in made]
    findings += [Finding(node.label, nobody) for node in others]
    changed = "whose manifest.json had been changed: no run has written it as it was then"
    findings += [
        Finding(f"run {one.run} ({one.stage})", f"read {one.name} {one.digest[:12]}, {changed}")
        for one in evidence.strange_reads(index)
    ]
    odd = "an event of a shape that is not ours: it counts for nothing"
    findings += [Finding(f"{path}, byte {place}", odd) for path, place in evidence.unread(index)]
    if evidence.is_false(index):
        findings.append(Finding(FILE, "does not say what the events say: somebody wrote into it. Delete it"))
    return Checked({"runs": len(runs)}, tuple(findings), {})


def check_artifacts(
    workspace: Path, folders: Mapping[str, Path], index: Index, at_work: Callable[[], Collection[str]] = set
) -> Checked:
    """Check the artifacts of a workspace: their bytes, who made them, and whether they fit to one another.

    Args:
        workspace: holds the folders.
        folders: stage -> folder of its artifact, relative to the workspace.
        index: of the lineage.
        at_work: returns the stages that run right now: what they are about to replace is left out.
    """
    findings: list[Finding] = []
    found: dict[str, Manifest] = {}
    busy = set(at_work())
    places = {stage: workspace / folder for stage, folder in folders.items() if (workspace / folder).is_dir()}
    looked = {stage: _look(place) for stage, place in places.items()}
    busy |= set(at_work())
    # one that does not fit may have been replaced under our eyes
    looked |= {stage: _look(places[stage]) for stage, seen in looked.items() if isinstance(seen, str)}
    index.refresh()  # what was published meanwhile has been told of by now, or its stage is at work
    times = {node.digest: node.time for node in index.artifacts()}
    for stage, seen in looked.items():
        folder = folders[stage]
        if stage in busy:
            continue
        if isinstance(seen, str):
            findings.append(Finding(str(folder), seen.removeprefix(f"{places[stage]}: ")))
            continue
        manifest, sha256 = seen
        if manifest.stage != stage:
            findings.append(
                Finding(str(folder), f"holds the artifact of stage {manifest.stage}: somebody put it there")
            )
        else:
            findings += _making(folder, manifest, sha256, index)
        found[stage] = manifest
    findings += _misfits(folders, found, times)
    return Checked({"artifacts": len(found)}, tuple(findings), {})


def check_copies(workspace: Path, folders: Mapping[str, Path], index: Index) -> Checked:
    """Check the artifacts that lie elsewhere in a workspace: copies, what was renamed, tables that were kept.

    What no run here has made may be from another project: that is no fault.
    """
    usual = {workspace / folder for folder in folders.values()}
    others = [place for place in artifacts.folders_in(workspace) if place not in usual]
    made, findings = index.made(), []
    for place in others:
        where, seen = place.relative_to(workspace), _look(place)
        if isinstance(seen, str):
            seen = _look(place)  # it may have been replaced under our eyes
        if isinstance(seen, str):
            findings.append(Finding(str(where), seen.removeprefix(f"{place}: ")))
        elif seen[0].digest in made:
            findings += _making(where, *seen, index)
        else:
            text = f"no run in this lineage made it ({seen[0].digest[:12]}): it is from elsewhere, or was changed"
            findings.append(Finding(str(where), text, fault=False))
    return Checked({"copies": len(others)}, tuple(findings), {})


def check_tombstones(index: Index) -> Checked:
    """Check that every tombstone that lineage tells of lies there as it was written."""
    told = evidence.tombstones(index)
    wrong = tombstones.changed(told)
    findings = [
        Finding(f"{withdrawals.FOLDER}/{one.record}", f"the tombstone of {one.digest[:12]} is gone, or was changed")
        for one in wrong
    ]
    return Checked({"tombstones": len(told)}, tuple(findings), {})


def check_sources(index: Index, workspace: Path) -> Checked:
    """Check the files from outside that the newest runs read, where they still lie in the workspace."""
    newest: dict[str, Any] = {}
    for run in index.runs():
        for event in index.events(run.id):
            for item in event.get("inputs") or ():
                facets = item.get("facets") or {}
                if (facets.get("datasetType") or {}).get("datasetType") == "SOURCE":
                    newest[(facets.get("geartrain_artifact") or {}).get("path", "")] = item
    found = {path: now for path in sorted(newest) if (now := digest_now(path, workspace)) is not None}
    findings = []
    for path, now in found.items():
        was = str(newest[path]["facets"]["version"]["datasetVersion"]).removeprefix(events.SHA256)
        if now != was:
            findings.append(Finding(path, f"was changed since it was read ({was[:12]}, now {now[:12]})"))
    return Checked({"files from outside": len(found)}, tuple(findings), {})


def together(parts: Iterable[Checked]) -> Checked:
    """Return several checks as one."""
    parts = list(parts)
    counts = {name: number for part in parts for name, number in part.counts.items()}
    heads = {name: head for part in parts for name, head in part.heads.items()}
    return Checked(counts, tuple(found for part in parts for found in part.findings), heads)


def _look(place: Path) -> tuple[Manifest, str] | str:
    """Return an artifact's manifest and the sha256 of that, or what is wrong with it."""
    try:
        return artifacts.verify(place), artifacts.manifest_sha256(place)
    except (UserError, OSError) as error:
        return str(error)


def _making(folder: Path, manifest: Manifest, sha256: str, index: Index) -> Iterator[Finding]:
    """Yield what is wrong with what an artifact says of its making."""
    makers = index.makers(manifest.digest)
    if not makers:
        yield Finding(str(folder), f"no run in this lineage made it ({manifest.digest[:12]})")
        return
    known = evidence.manifests(index, manifest.digest)
    told = [event for run in makers for event in index.events(run.id)]
    if sha256 not in known:
        differing = min((_differences(manifest, event, index) for event in told), key=len, default=[])
        if differing or "" not in known:
            what = "; ".join(differing) or "it is not the one that its run wrote"
            yield Finding(f"{folder}/{artifacts.MANIFEST}", f"was changed: {what}")
    elif all(
        (event["run"].get("facets") or {}).get("geartrain_recovery", {}).get("reason") == ADOPTED for event in told
    ):
        yield Finding(str(folder), "nobody saw it made: it was found in place, and only then told of", fault=False)


def _differences(manifest: Manifest, event: journal.Event, index: Index) -> list[str]:
    """Return in what a manifest differs from the event of the run that made the artifact."""
    facets = event["run"].get("facets") or {}
    read, found = events.digests(event, "inputs"), []
    if dict(manifest.inputs) != read:
        names = sorted({name for name, _ in read.items() ^ manifest.inputs.items()})
        found.append(f"other inputs ({', '.join(names)})")
    read_as = events.manifests(event)
    behind = [evidence.origins(index, digest, read_as.get(name, "")) for name, digest in read.items()]
    hidden = set(read.values()).union(*behind) - artifacts.origins(manifest).keys()
    if hidden and manifest.ancestors:
        found.append(f"it leaves out {', '.join(sorted(digest[:12] for digest in hidden))}, of which it was made")
    if dict(manifest.parameters) != events.parameters_of(event):
        found.append("other parameters")
    if manifest.code != (facets.get("geartrain_code") or {}).get("digest"):
        found.append("other code")
    if flatten(manifest.metrics) != (facets.get("geartrain_metrics") or {}).get("values"):
        found.append("other metrics")
    return found


def _settled(path: Path) -> Head | None:
    """Return what a head's file says once two readings agree: somebody may be writing it."""
    for _ in range(_READINGS):
        first = journal.read_head(path)
        if first == journal.read_head(path):
            break
    return first


def _follow(
    name: str, paths: list[Path], heads: Mapping[str, Head | None], kept: Head | None
) -> tuple[Head, list[Finding]]:
    """Go along one writer's lines; return how far they go and what is wrong with them."""
    head, findings, marks = Head(), [], []
    stored = heads.get(name)
    watch = {one.count: one for one in (stored, kept) if one is not None and one.count}
    for number, path in enumerate(paths):
        if int(path.name.split(".")[1]) != number:
            findings.append(Finding(path.name, f"segment {number} of this writer is gone"))
        for line in journal.read_lines(path):
            findings += _judge(name, head, line)
            head = head.after(line.text, segment=number, size=line.offset + len(line.text) + 1)
            if head.count in watch and watch[head.count].sha256 != head.sha256:
                marks.append(head.count)
    file = paths[-1].name if paths else f"{name}.head"
    if name not in heads:
        findings.append(Finding(file, f"its head, {name}.head, is gone"))
    elif stored is None:
        findings.append(Finding(f"{name}.head", "cannot be read: somebody wrote into it"))
    for one, whose in ((stored, "its head"), (kept, "the heads that were kept")):
        if one is not None and one.count > head.count:
            findings.append(Finding(file, f"was cut: {one.count} events by {whose}, {head.count} are left"))
        elif one is not None and one.segment < len(paths) and paths[one.segment].stat().st_size < one.size:
            findings.append(Finding(paths[one.segment].name, f"was cut: it had {one.size} bytes by {whose}"))
    if marks and not any(found.fault for found in findings):
        findings.append(Finding(file, f"event {marks[0] - 1} (its last one, at some time) is not what its head says"))
    return head, findings


def _judge(name: str, head: Head, line: Line) -> Iterator[Finding]:
    """Yield what is wrong with a line, given how far its writer was before."""
    where = f"{line.path.name}, event {head.count}"
    if line.event is None:
        harmed = line.text[:1] != b"{" or journal.is_json(line.text)  # a crash leaves the beginning of an event
        yield Finding(where, "a line cut short by a crash, or harmed: it is no event", fault=harmed)
        return
    place = (line.event["run"].get("facets") or {}).get(journal.CHAIN) or {}
    what = f"{line.event['eventType']} of {events.stage_of(line.event)}"
    if place.get("writer") != name:
        yield Finding(where, f"{what}: is of another writer ({place.get('writer')})")
    elif place.get("sequence") != head.count:
        yield Finding(where, f"{what}: is number {place.get('sequence')}: events were dropped, added or reordered here")
    elif place.get("previous") != head.sha256:
        yield Finding(where, f"{what}: the event before it was changed (its hash is not the one that was noted)")


def _misfits(folders: Mapping[str, Path], found: Mapping[str, Manifest], times: Mapping[str, str]) -> list[Finding]:
    """Compare what artifacts were made from with what lies there now."""
    findings = []
    for stage, manifest in found.items():
        for name, digest in manifest.inputs.items():
            now = found[name].digest if name in found else digest
            if now == digest:
                continue
            newer = times.get(now, "") >= times.get(manifest.digest, "")  # equal where a clock was set back
            text = f"was made from {name} {digest[:12]}, but {folders[name]} holds {now[:12]}"
            more = ", which is newer: run the stage again" if newer else ", which is older: somebody swapped them"
            findings.append(Finding(str(folders[stage]), text + more, fault=not newer))
    return findings
