"""Stores something to work on, and prints the token of a principal that may read and write little of it: seed.py URL TOKEN FILE..."""

import json
import pathlib
import sys
import time
import urllib.request

url, token, *files = sys.argv[1:]
# A proxy from the environment is meant for other machines.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(method, path, body=None, media="application/json"):
    data = json.dumps(body).encode() if media == "application/json" and body is not None else body
    request = urllib.request.Request(url + path, data=data, method=method)
    request.add_header("Authorization", f"Bearer {token}")
    if data is not None:
        request.add_header("Content-Type", media)
    answer = opener.open(request, timeout=120).read()
    return json.loads(answer) if answer else None


def upload(file, parameters):
    head = f'--part\r\nContent-Disposition: form-data; name="file"; filename="{file.name}"\r\n\r\n'
    body = head.encode() + file.read_bytes() + b"\r\n--part--\r\n"
    return ask("POST", f"/ingest/file{parameters}", body, "multipart/form-data; boundary=part")["document_id"]


for attempt in range(600):
    try:
        ask("GET", "/ready")
        break
    except OSError:
        time.sleep(0.2)
folder = ask("POST", "/documents?wait=true", {"title": "Folder", "content": "A folder."})["id"]
closed = ask("POST", "/documents?wait=true", {"title": "Closed", "content": "For few.", "private": True})["id"]
for number in range(6):
    above = [folder, closed][number % 2]
    ask("POST", "/documents", {"title": f"Note {number}", "content": f"Gauge {number} was read.", "parent_id": above})
ask("POST", f"/documents/{folder}/links", {"target_id": closed, "link_type": "mentions"})
uploaded = [upload(pathlib.Path(file), ["", "?private=true"][number % 2]) for number, file in enumerate(files)]
for document in uploaded:
    while True:
        frontier = ask("GET", f"/ingest/file/{document}/frontier")
        if frontier["nodes_in_flight"] == 0 and frontier["tasks_unfinished"] == 0:
            break
        time.sleep(0.1)
ask("POST", "/webhooks", {"url": "https://hooks.example.invalid/svc"})
principal = ask("POST", "/access/principals", {"name": "few grants", "kind": "service"})["id"]
ask("PUT", f"/access/documents/{closed}/grants/{principal}", {"right": "write"})
ask("PUT", f"/access/documents/{uploaded[1]}/grants/{principal}", {"right": "read"})
print(ask("POST", f"/access/principals/{principal}/tokens", {"name": "fuzz"})["secret"])
