"""Changes the contract where schemathesis would understand it otherwise than it is meant."""

import schemathesis


@schemathesis.serializer("text/turtle", "application/n-triples")
def graph(context, value):
    # What is no text is sent as it is, and is no graph. Neither is a random text; around it there is one, as long as it has no quotes.
    if not isinstance(value, str):
        return str(value).encode()
    return f'<http://example.org/s> <http://example.org/p> "{value}" .'.encode()


@schemathesis.hook
def before_load_schema(context, raw_schema):
    # OpenAPI 3.1 describes a stream as a whole, here as a text; schemathesis takes this for the schema of each event.
    for path in raw_schema["paths"].values():
        for operation in path.values():
            for response in operation["responses"].values():
                stream = response.get("content", {}).get("text/event-stream")
                if stream is not None:
                    stream["schema"] = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
    without_null(raw_schema["paths"])
    without_null(raw_schema["components"]["schemas"])


def without_null(schema):
    """Leaves out the null that may stand for an object with fields.

    For a wrong field of such an object, schemathesis also sends the null alone, which is right, and expects a refusal.
    """
    if isinstance(schema, list):
        for entry in schema:
            without_null(entry)
    elif isinstance(schema, dict):
        if schema.get("type") == ["object", "null"] and "properties" in schema:
            schema["type"] = "object"
        for value in schema.values():
            without_null(value)
