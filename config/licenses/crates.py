#!/usr/bin/env python3
"""Prints the licences of the crates that the programs are made of, for one machine: crates.py x86_64-unknown-linux-gnu

Each crate has a line with its name, its version, its licence and where its source is, and below it the texts that its
package holds.
"""
import json
import os
import re
import subprocess
import sys
import zipfile

# A release holds these texts beside the list, for crates whose packages hold none.
USUAL = ("Apache-2.0", "BSD-3-Clause", "MIT", "MPL-2.0")
TEXT = re.compile(r"LICEN[SC]E|COPYING|COPYRIGHT|NOTICE", re.IGNORECASE)
CODE = (".c", ".h", ".hbs", ".html", ".json", ".py", ".rs", ".sh", ".toml")
# What lies in these folders is in no program.
UNUSED = {"benches", "examples", "resources", "test_data", "tests"}


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout


def is_text(name):
    return bool(TEXT.search(name)) and not name.lower().endswith(CODE)


def texts(folder):
    """The texts in a package by their place, also those of other software that is packed with it."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - UNUSED)
        for name in sorted(files):
            path = os.path.join(place, name)
            if is_text(name) or os.path.basename(place) == "LICENSES":
                with open(path, encoding="utf-8", errors="replace") as file:
                    yield os.path.relpath(path, folder), file.read()
            elif name.endswith(".zip"):
                with zipfile.ZipFile(path) as archive:
                    for member in archive.namelist():
                        # Deeper ones are code.
                        if member.count("/") < 2 and is_text(os.path.basename(member)):
                            yield member, archive.read(member).decode("utf-8", "replace")


def where_the_text_is(package):
    """Says where the text is of the licence of a package that holds none."""
    name, licence = package["name"], package["license"] or ""
    parts = [part for part in re.findall(r"[A-Za-z0-9.+-]+", licence) if part not in ("OR", "AND", "WITH")]
    known = [part for part in parts if part in USUAL]
    if not known or ("AND" in licence and known != parts):
        sys.exit(f"licenses: {name} {package['version']} holds no text of its licence {licence}")
    authors = ", ".join(author.split(" <")[0] for author in package["authors"]) or f"the authors of {name}"
    files = " or ".join(f"{part}.txt" for part in known)
    return f"Copyright (c) {authors}. Its package holds no text; that of its licence is in {files}.\n"


def main(target):
    # The metadata also name what only other devices need; the tree is what is built. What serves only the build may bring a part
    # of a program too, as the pages of Swagger UI.
    shown = ["--edges", "normal,build", "--prefix", "none", "--format", "{p}"]
    tree = cargo("tree", "--workspace", "--locked", "--target", target, *shown)
    built = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    metadata = json.loads(cargo("metadata", "--format-version=1", "--locked", "--filter-platform", target))
    packages = [package for package in metadata["packages"] if package["source"]]
    for package in sorted(packages, key=lambda package: (package["name"], package["version"])):
        name, version = package["name"], package["version"]
        if (name, f"v{version}") not in built:
            continue
        licence = package["license"] or f"see {package['license_file']}"
        print(f"{name} {version}: {licence}, {package['repository'] or ''}\n")
        held = list(texts(os.path.dirname(package["manifest_path"])))
        for place, text in held:
            print(f"--- {name} {version}: {place}\n\n{text.strip()}\n")
        if not held:
            print(where_the_text_is(package))


sys.stdout.reconfigure(encoding="utf-8")
main(sys.argv[1])
