"""Holds a graph against shapes with pySHACL and with rudof, and prints how long each took without reading them."""
import json
import sys
import time
from importlib.metadata import version

import pyrudof
import pyshacl
import rdflib
from rdflib.namespace import SH

data, shapes = (rdflib.Graph().parse(path, format="turtle") for path in sys.argv[1:3])
begun = time.monotonic()
_, report, _ = pyshacl.validate(data, shacl_graph=shapes)
seconds = time.monotonic() - begun
count = len(list(report.subjects(rdflib.RDF.type, SH.ValidationResult)))

rudof = pyrudof.Rudof(pyrudof.RudofConfig())
rudof.read_data(sys.argv[1], reader_mode=pyrudof.ReaderMode.Strict)
rudof.read_shacl(sys.argv[2], reader_mode=pyrudof.ReaderMode.Strict)
begun = time.monotonic()
results = rudof.validate_shacl()
rudof_seconds = time.monotonic() - begun
print(json.dumps([
    {"version": pyshacl.__version__, "seconds": seconds, "results": count},
    {"version": version("pyrudof"), "seconds": rudof_seconds, "results": len(results)},
]))
