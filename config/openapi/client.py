"""Uses the client that openapi-python-client generates, against a running service: client.py URL TOKEN FILE."""
import io
import sys
import time

from generated import AuthenticatedClient
from generated.api.documents import delete_document, read_bytes, read_document
from generated.api.ingest import read_frontier, upload_file
from generated.api.search import search_bm25
from generated.models import Bm25Search, NotFoundProblem, RangeNotSatisfiableProblem, Settled, UploadFileBody
from generated.types import File

url, token, path = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=token)
with open(path, "rb") as source:
    content = source.read()

body = UploadFileBody(file=File(payload=io.BytesIO(content), file_name="sample.md", mime_type="text/markdown"))
stored = upload_file.sync(client=client, body=body)
document_id = stored.document_id
while True:
    frontier = read_frontier.sync(document_id, client=client)
    if frontier.nodes_in_flight == 0 and frontier.tasks_unfinished == 0:
        break
    time.sleep(0.2)
assert frontier.settled == Settled.SETTLED, frontier

read = read_document.sync_detailed(document_id, client=client)
assert read.parsed.title == "sample.md", read.parsed
again = read_document.sync_detailed(document_id, client=client, if_none_match=read.headers["ETag"])
assert again.status_code == 304 and not again.content, again

assert read_bytes.sync(document_id, client=client).payload.read() == content
part = read_bytes.sync_detailed(document_id, client=client, range_="bytes=5-9")
assert part.status_code == 206 and part.content == content[5:10], part
beyond = read_bytes.sync(document_id, client=client, range_="bytes=%d-" % len(content))
assert isinstance(beyond, RangeNotSatisfiableProblem) and beyond.code == "range_not_satisfiable", beyond

found = search_bm25.sync(client=client, body=Bm25Search(query="radar gauge", parent_id=document_id))
assert found.results, found
assert delete_document.sync_detailed(document_id, client=client).status_code == 204
gone = read_document.sync(document_id, client=client)
assert isinstance(gone, NotFoundProblem) and gone.code == "not_found", gone
