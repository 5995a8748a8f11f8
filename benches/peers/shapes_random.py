"""Holds graphs against shapes with pySHACL, and says which reports are the same as those in other files."""
import json
import sys
from pathlib import Path

import pyshacl
import rdflib
from rdflib.namespace import SH


def said(report):
    """The results of a report, without what is worded freely."""
    found = []
    for result in report.subjects(rdflib.RDF.type, SH.ValidationResult):
        path = report.value(result, SH.resultPath)
        parts = [report.value(result, SH.focusNode), report.value(result, SH.value), report.value(result, SH.sourceConstraintComponent)]
        # A path that is no property is a structure of blank nodes.
        parts.append(path if isinstance(path, rdflib.URIRef) else None)
        found.append(" ".join("-" if part is None else part.n3() for part in parts))
    return sorted(found)


folder, cases = Path(sys.argv[1]), int(sys.argv[2])
alike, results, different = 0, 0, []
for case in range(cases):
    data, shape, ours = (
        rdflib.Graph().parse(folder / f"{case}.{name}.ttl", format="turtle") for name in ("data", "shape", "ours")
    )
    _, theirs, _ = pyshacl.validate(data, shacl_graph=shape)
    ours, theirs = said(ours), said(theirs)
    results += len(theirs)
    if ours == theirs:
        alike += 1
    else:
        different.append([case, [one for one in ours if one not in theirs], [one for one in theirs if one not in ours]])
print(json.dumps({"alike": alike, "results": results, "different": different}))
