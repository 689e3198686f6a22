"""Catalogues of emitters that Debian ships the sources of."""

from collections import Counter

from tools.catalogues import rows
from tools.catalogues.clusters.containers import CONTAINERD, DOCKER
from tools.catalogues.clusters.emitter import Emitter, rows_of
from tools.catalogues.clusters.kubernetes import KUBERNETES
from tools.catalogues.clusters.open_mpi import OPEN_MPI
from tools.catalogues.clusters.slurm import SLURM
from tools.catalogues.clusters.systemd import SYSTEMD
from tools.catalogues.debian import source_tree
from tools.catalogues.rows import Header

EMITTERS: dict[str, Emitter] = {
    one.name: one for one in (SLURM, OPEN_MPI, SYSTEMD, KUBERNETES, CONTAINERD, DOCKER)
}
NAMES = tuple(EMITTERS)


def make(name: str) -> Counter[str]:
    """Write the catalogue of one emitter. Raises SourceMissing."""
    emitter = EMITTERS[name]
    with source_tree(emitter.package, emitter.version, emitter.paths) as tree:
        header = Header(
            emitter.title,
            emitter.version,
            made="2026-11-26",
            program=__name__,
            source=f"Debian source package {emitter.package} {emitter.version}: "
            + ", ".join(emitter.paths),
            style="printf",
            layer=emitter.layer,
            scope=emitter.scope,
        )
        return rows.write(name, header, rows_of(emitter, tree))
