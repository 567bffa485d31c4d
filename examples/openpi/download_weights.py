# SPDX-License-Identifier: Apache-2.0
"""Download OpenPI's public weights, or the tokenizer, into a folder: resumable, verified, nothing overwritten."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from openpi_assets.bucket import Asset, Bucket, DownloadError
from openpi_assets.transfer import download

# What there is: bucket, and a folder in it or one object.
SOURCES = {
    "pi05_base": ("openpi-assets", "checkpoints/pi05_base/"),
    "pi0_base": ("openpi-assets", "checkpoints/pi0_base/"),
    "paligemma_tokenizer": ("big_vision", "paligemma_tokenizer.model"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=SOURCES, nargs="?", default="pi05_base")
    parser.add_argument("--output-dir", type=Path, required=True, help="the files' folder; made where it is missing")
    parser.add_argument("--list", action="store_true", help="list the files and their sizes, and download nothing")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    bucket, prefix = SOURCES[arguments.what]
    return run(Bucket(bucket), prefix, arguments.output_dir, listing_only=arguments.list)


def run(bucket: Bucket, prefix: str, folder: Path, *, listing_only: bool = False) -> int:
    """Download everything below `prefix` into `folder`; 0 if all of it is there and whole."""
    try:
        assets = bucket.assets(prefix)
        logging.info("%d files, %s", len(assets), _size(sum(asset.size for asset in assets)))
        for number, asset in enumerate(assets, 1):
            how = "" if listing_only else _brought(bucket, asset, folder)
            logging.info("%d/%d %s %s%s", number, len(assets), asset.path, _size(asset.size), how)
    except (DownloadError, OSError) as problem:
        sys.stderr.write(f"download_weights: {problem}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("download_weights: stopped; the same command goes on from here\n")
        return 130
    return 0


def _brought(bucket: Bucket, asset: Asset, folder: Path) -> str:
    return ", whole" if download(bucket, asset, folder) else ", there already"


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e7 else f"{count} bytes"


if __name__ == "__main__":
    sys.exit(main())
