"""Holds a graph against shapes with pySHACL, and prints how long that took without reading them."""
import json
import sys
import time

import pyshacl
import rdflib
from rdflib.namespace import SH

data, shapes = (rdflib.Graph().parse(path, format="turtle") for path in sys.argv[1:3])
begun = time.monotonic()
_, report, _ = pyshacl.validate(data, shacl_graph=shapes)
seconds = time.monotonic() - begun
count = len(list(report.subjects(rdflib.RDF.type, SH.ValidationResult)))
print(json.dumps({"seconds": seconds, "results": count, "version": pyshacl.__version__}))
