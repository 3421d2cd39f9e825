"""The commands about a promoted model: keygen, sign, verify, register; `cli` adds them.

Nothing heavy is imported at the top.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from geartrain import logs
from geartrain.errors import UserError

app = typer.Typer(no_args_is_help=True, help="Sign a promoted model, verify one, enter one in a registry.")

Folder = Annotated[Path, typer.Argument(help="What the stage `promotion` wrote.", show_default="models/promoted")]
PROMOTED = Path("models/promoted")


@app.command()
def keygen(
    out: Annotated[
        Path | None, typer.Option(help="Folder for the pair; default: ~/.config/geartrain.", show_default=False)
    ] = None,
) -> None:
    """Make a pair of keys to sign models with; overwrites none.

    The private key is readable by you alone; keep a copy where nobody else can read it. The public one is for whoever
    verifies: hand it out by another way than the models.

    \b
    geartrain model keygen
    geartrain model keygen --out keys
    """
    from geartrain.supply import signing

    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    private, public, key_id = signing.generate((out or home / "geartrain").absolute())
    print(f"private key: {private}\npublic key:  {public}\nid:          {key_id}")
    print(f"\nTo sign what is promoted from now on:\n  export {signing.KEY}={private}")


@app.command()
def sign(folder: Folder = PROMOTED) -> None:
    """Sign a promoted model that is not, or anew with another key: signature, provenance, SBOM.

    The model and its digest stay as they are. The key is the file that GEARTRAIN_SIGNING_KEY names.

    \b
    GEARTRAIN_SIGNING_KEY=~/.config/geartrain/signing.key.pem geartrain model sign
    """
    from geartrain.artifacts import verify
    from geartrain.lineage import tombstones
    from geartrain.lineage.index import maker_of
    from geartrain.stages.stage import homes
    from geartrain.supply import attestation, signing

    if signing.find_key() is None:
        raise UserError(f"no key to sign with: name its file in {signing.KEY}. `geartrain model keygen` makes a pair.")
    manifest = verify(folder)
    if not attestation.is_promoted(manifest):
        raise UserError(f"{folder}: holds no promoted model, and no other is signed.")
    tombstones.require_allowed(homes(), [tombstones.used(str(folder), folder, manifest)])
    print(attestation.attest(folder, maker_of(homes(), manifest.digest)))


@app.command("verify")
def verify_(
    folder: Folder = PROMOTED,
    key: Annotated[
        Path | None,
        typer.Option(envvar="GEARTRAIN_VERIFICATION_KEY", help="The signer's public key.", show_default=False),
    ] = None,
) -> None:
    """Check a promoted model against its manifest, its signature and its signed provenance.

    Exit codes: 0 it is what was signed; 3 it is not, or is not signed: each file that was changed is named; 2 there is
    no such model, or no such key.

    \b
    geartrain model verify --key signing.pub.pem
    geartrain model verify downloads/policy --key signing.pub.pem
    """
    from geartrain.supply import attestation
    from geartrain.withdrawals import withdrawn

    if key is None:
        raise UserError("--key FILE: whose signature is it to be? Give the signer's public key.")
    found = attestation.verify(folder, key)
    print(f"{folder}: is what was signed\nmodel    {found.digest}\nkey      {found.key_id}\nmade from")
    for name, digest in found.dependencies.items():
        print(f"  {name:<{max(map(len, found.dependencies))}}  {digest}")
    stones = withdrawn()
    for name, digest in {"the model": found.digest, **found.dependencies}.items():
        if digest in stones:
            logs.say(f"warning: {name} ({digest[:12]}) was {stones[digest]}", level=logs.WARNING)


@app.command()
def register(
    folder: Folder = PROMOTED,
    to: Annotated[
        list[str] | None,
        typer.Option(
            help="mlflow or kubeflow; may be repeated. Default: the run's promotion.registries.", show_default=False
        ),
    ] = None,
    uri: Annotated[
        str | None,
        typer.Option(
            help="Where the folder is published; kubeflow needs it, mlflow else takes the files.", show_default=False
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Instead of the model's own name.", show_default=False)] = None,
) -> None:
    """Enter a promoted model in a registry; a repetition enters nothing twice.

    Addresses and credentials come from the environment: MLFLOW_TRACKING_URI and MLflow's other variables;
    GEARTRAIN_MODEL_REGISTRY, GEARTRAIN_MODEL_REGISTRY_TOKEN_FILE. A candidate that failed the gate gets a run in MLflow
    and no version anywhere.

    \b
    geartrain model register --to mlflow
    geartrain model register --to kubeflow --uri s3://models/geartrain/4f1c
    """
    from geartrain.stages.stage import homes
    from geartrain.supply import registration

    chosen = registration.configured(folder) if to is None else tuple(to)
    unknown = sorted(set(chosen) - set(registration.REGISTRIES))
    if unknown or not chosen:
        told = f"no registry {unknown[0]!r}" if unknown else "no registry is configured (promotion.registries)"
        raise UserError(f"{told}; give --to {' or --to '.join(registration.REGISTRIES)}")
    for entered in registration.register(folder, chosen, uri=uri, name=name, homes=homes()):
        print(entered)
