"""Shares of a checkpoint: which files each of several nodes verifies."""

import heapq

from runner.checkpoints.manifest import Manifest


def files_of_share(manifest: Manifest, share: int, shares: int) -> list[str]:
    """Return the names of the files in share `share`, from 0, of `shares`, sorted. Each file is in exactly one.

    A file goes, the largest first, to the share with the fewest bytes so far: no share has more than its part of the bytes and
    one file. The same manifest gives the same shares everywhere. Raises ValueError for a share that does not exist.
    """
    if not 0 <= share < shares:
        raise ValueError(f"no share {share} of {shares}: shares are counted from 0")
    largest_first = sorted((-seal.size_bytes, name) for name, seal in manifest.files.items())
    # Bytes and files so far, then the share's number: empty files are spread, too.
    loads = [(0, 0, number) for number in range(shares)]
    found = []
    for negative_bytes, name in largest_first:
        size_bytes, num_files, number = loads[0]
        heapq.heapreplace(loads, (size_bytes - negative_bytes, num_files + 1, number))
        if number == share:
            found.append(name)
    return sorted(found)
