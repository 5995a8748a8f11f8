"""Writes the binary samples beside this script. Needs nothing but Python; the output is the same on every run."""

import datetime
import hashlib
import io
import re
import struct
import zipfile
from pathlib import Path

HERE = Path(__file__).parent


def pdf() -> bytes:
    """Three pages of text in a standard font, with an outline of four entries."""
    pages = [
        [
            (18, "Quarterly review of the river restoration"),
            (14, "Summary"),
            (11, "Between April and June the project planted 4,200 willows along"),
            (11, "the lower Arden and removed the weir at Stone Mill. Trout were"),
            (11, "counted above the old weir for the first time since 1962."),
            (11, "Spending stayed within the plan: 318,000 of 340,000 euros."),
        ],
        [
            (14, "Planting"),
            (11, "Volunteers planted on eleven weekends. Of the willows planted in"),
            (11, "autumn, 87 percent took root. Losses were highest at the bend"),
            (11, "below the railway bridge, where deer stripped the bark."),
            (12, "Protection against deer"),
            (11, "From July on each new tree gets a sleeve of wire mesh, 120 cm"),
            (11, "high. The sleeves cost 2.40 euros apiece and are reused."),
        ],
        [
            (14, "Next quarter"),
            (11, "The fish ladder at Upper Lock is to be finished by September."),
            (11, "Until then the lock keeper opens the side gate for two hours"),
            (11, "at dawn, which lets most of the fish pass."),
        ],
    ]
    outline = [("Summary", 0, None), ("Planting", 1, None), ("Protection against deer", 1, 1), ("Next quarter", 2, None)]

    objects: list[bytes] = []

    def add(body: bytes) -> int:
        objects.append(body)
        return len(objects)

    catalog, tree, font, root = (add(b"") for _ in range(4))
    page_ids = []
    for page in pages:
        y, lines = 760, []
        for size, text in page:
            y -= size * 2 if size > 11 else 15
            escaped = text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
            lines.append(f"BT /F1 {size} Tf 72 {y} Td ({escaped}) Tj ET")
        stream = "\n".join(lines).encode("latin-1")
        content = add(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
        page_ids.append(
            add(
                b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 595 842] /Contents %d 0 R"
                b" /Resources << /Font << /F1 %d 0 R >> >> >>" % (tree, content, font)
            )
        )
    first_item = len(objects) + 1
    top = [index for index, item in enumerate(outline) if item[2] is None]
    for index, (title, page, parent) in enumerate(outline):
        siblings = [other for other, item in enumerate(outline) if item[2] == parent]
        children = [other for other, item in enumerate(outline) if item[2] == index]
        place = siblings.index(index)
        links = f"/Parent {root if parent is None else first_item + parent} 0 R"
        if place > 0:
            links += f" /Prev {first_item + siblings[place - 1]} 0 R"
        if place + 1 < len(siblings):
            links += f" /Next {first_item + siblings[place + 1]} 0 R"
        if children:
            links += f" /First {first_item + children[0]} 0 R /Last {first_item + children[-1]} 0 R /Count {len(children)}"
        add(f"<< /Title ({title}) {links} /Dest [{page_ids[page]} 0 R /Fit] >>".encode())
    kids = " ".join(f"{page} 0 R" for page in page_ids)
    objects[catalog - 1] = f"<< /Type /Catalog /Pages {tree} 0 R /Outlines {root} 0 R >>".encode()
    objects[tree - 1] = f"<< /Type /Pages /Kids [{kids}] /Count {len(page_ids)} >>".encode()
    objects[font - 1] = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
    objects[root - 1] = (
        f"<< /Type /Outlines /First {first_item + top[0]} 0 R /Last {first_item + top[-1]} 0 R /Count {len(outline)} >>".encode()
    )

    return pdf_of(objects, catalog)


def pdf_of(objects: list[bytes], catalog: int, more: bytes = b"") -> bytes:
    """A PDF of numbered objects; `more` goes into the trailer."""
    out = io.BytesIO(b"%PDF-1.7\n")
    out.seek(0, io.SEEK_END)
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    table = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    for offset in offsets:
        out.write(b"%010d 00000 n \n" % offset)
    out.write(b"trailer\n<< /Size %d /Root %d 0 R %s>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, catalog, more, table))
    return out.getvalue()


def locked_pdf(password: bytes) -> bytes:
    """One page that opens with a password alone: the standard security handler, revision 3, RC4 of 128 bits."""

    def rc4(key: bytes, data: bytes) -> bytes:
        state, j = list(range(256)), 0
        for i in range(256):
            j = (j + state[i] + key[i % len(key)]) % 256
            state[i], state[j] = state[j], state[i]
        out, i, j = bytearray(), 0, 0
        for byte in data:
            i = (i + 1) % 256
            j = (j + state[i]) % 256
            state[i], state[j] = state[j], state[i]
            out.append(byte ^ state[(state[i] + state[j]) % 256])
        return bytes(out)

    def md5(data: bytes, again: int = 0) -> bytes:
        digest = hashlib.md5(data).digest()
        for _ in range(again):
            digest = hashlib.md5(digest).digest()
        return digest

    def rc4_twenty_times(key: bytes, data: bytes) -> bytes:
        for turn in range(20):
            data = rc4(bytes(byte ^ turn for byte in key), data)
        return data

    filler = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")
    padded = (password + filler)[:32]
    identity, permissions = bytes(range(16)), -4
    owner = rc4_twenty_times(md5(padded, 50), padded)
    key = md5(padded + owner + permissions.to_bytes(4, "little", signed=True) + identity, 50)
    user = rc4_twenty_times(key, md5(filler + identity)) + bytes(16)

    lines = ["The vault in the cellar opens at half past seven.", "Two keys are needed, and the porter holds the second one."]
    text = "\n".join(f"BT /F1 12 Tf 72 {700 - 20 * row} Td ({line}) Tj ET" for row, line in enumerate(lines)).encode("latin-1")
    number = 5
    stream = rc4(md5(key + number.to_bytes(3, "little") + bytes(2)), text)
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 5 0 R /Resources << /Font << /F1 4 0 R >> >> >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Filter /Standard /V 2 /R 3 /Length 128 /P %d /O <%s> /U <%s> >>"
        % (permissions, owner.hex().encode(), user.hex().encode()),
    ]
    mark = identity.hex().encode()
    return pdf_of(objects, 1, b"/Encrypt 6 0 R /ID [<%s> <%s>] " % (mark, mark))


def docx() -> bytes:
    """Headings, paragraphs, a list and a table."""
    main = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    package = "http://schemas.openxmlformats.org/package/2006"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml"

    def paragraph(text: str, properties: str = "") -> str:
        text = text.replace("&", "&amp;").replace("<", "&lt;")
        return f'<w:p><w:pPr>{properties}</w:pPr><w:r><w:t xml:space="preserve">{text}</w:t></w:r></w:p>'

    def styled(style: str, text: str) -> str:
        return paragraph(text, f'<w:pStyle w:val="{style}"/>')

    def item(text: str, level: int = 0) -> str:
        return paragraph(text, f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="1"/></w:numPr>')

    def table(rows: list[list[str]]) -> str:
        cells = ["".join(f"<w:tc><w:tcPr/>{paragraph(cell)}</w:tc>" for cell in row) for row in rows]
        return "<w:tbl><w:tblPr/>" + "".join(f"<w:tr>{row}</w:tr>" for row in cells) + "</w:tbl>"

    body = "".join(
        [
            styled("Title", "Onboarding checklist for library volunteers"),
            paragraph("Welcome to the town library. This checklist takes you through your first two weeks."),
            styled("Heading1", "Before your first day"),
            item("Send your signed agreement to the front desk."),
            item("Choose two regular shifts."),
            item("A shift is three hours.", 1),
            item("Saturdays are given by rota.", 1),
            styled("Heading1", "First week"),
            styled("Heading2", "Shelving"),
            paragraph("Books & journals stand by subject, then by author. Return carts are emptied from the top shelf down."),
            styled("Heading2", "The lending desk"),
            paragraph("Never lend a book without scanning both codes: the card first, then the book."),
            styled("Heading1", "Whom to ask"),
            table(
                [
                    ["Question", "Person", "Room"],
                    ["Shifts and holidays", "Volunteer office", "12"],
                    ["Computers", "Help desk", "Ground floor"],
                    ["Lost property", "Porter", "Entrance"],
                ]
            ),
            paragraph("If nobody is in, write a note and put it into the blue box."),
        ]
    )

    def style(identity: str, name: str, level: int | None = None) -> str:
        outline = "" if level is None else f'<w:pPr><w:outlineLvl w:val="{level}"/></w:pPr>'
        return f'<w:style w:type="paragraph" w:styleId="{identity}"><w:name w:val="{name}"/>{outline}</w:style>'

    styles = style("Title", "Title") + style("Heading1", "heading 1", 0) + style("Heading2", "heading 2", 1)
    numbering = "".join(
        f'<w:lvl w:ilvl="{level}"><w:start w:val="1"/><w:numFmt w:val="bullet"/><w:lvlText w:val="-"/></w:lvl>' for level in range(2)
    )
    members = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/word/document.xml" ContentType="{kind}.document.main+xml"/>'
        f'<Override PartName="/word/styles.xml" ContentType="{kind}.styles+xml"/>'
        f'<Override PartName="/word/numbering.xml" ContentType="{kind}.numbering+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="rId1" Type="{office}/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/_rels/document.xml.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="rId1" Type="{office}/styles" Target="styles.xml"/>'
        f'<Relationship Id="rId2" Type="{office}/numbering" Target="numbering.xml"/></Relationships>',
        "word/styles.xml": f'<w:styles xmlns:w="{main}">{styles}</w:styles>',
        "word/numbering.xml": f'<w:numbering xmlns:w="{main}"><w:abstractNum w:abstractNumId="0">{numbering}</w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num></w:numbering>',
        "word/document.xml": f'<w:document xmlns:w="{main}"><w:body>{body}<w:sectPr/></w:body></w:document>',
    }
    return package_of(members)


def package_of(members: dict[str, str | bytes]) -> bytes:
    """An office package of XML members, or of bytes as they are, the same on every run."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            member = zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0))
            # The member that names the type of an open document is read where it stands.
            member.compress_type = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
            if isinstance(text, str):
                text = ('<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n' + text).encode()
            archive.writestr(member, text)
    return out.getvalue()


PACKAGE = "http://schemas.openxmlformats.org/package/2006"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def relations(*targets: tuple[str, str]) -> str:
    """A relationships part: rId1, rId2, ... to targets of a kind."""
    rows = "".join(
        f'<Relationship Id="rId{number}" Type="{OFFICE}/{kind}" Target="{target}"/>' for number, (kind, target) in enumerate(targets, 1)
    )
    return f'<Relationships xmlns="{PACKAGE}/relationships">{rows}</Relationships>'


def content_types(parts: dict[str, str]) -> str:
    rows = "".join(f'<Override PartName="/{part}" ContentType="{kind}"/>' for part, kind in parts.items())
    return (
        f'<Types xmlns="{PACKAGE}/content-types">'
        f'<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>{rows}</Types>'
    )


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def duck_counts() -> list[tuple[str, bool, list[list[object]]]]:
    """The name of each sheet of a workbook, whether it is hidden, and its rows: one of records with dates and formulas, one
    without a header, a hidden one and an empty one."""
    sightings: list[tuple[int, str, int, int, str]] = [
        (45019, "Mill pond", 14, 3, "calm, light fog until nine"),
        (45026, "Mill pond", 17, 5, "two pairs with ducklings"),
        (45033, "Upper lock", 9, 0, "the gate was open, strong current"),
        (45040, "Upper lock", 11, 2, "a heron kept the ducks away from the bank"),
        (45047, "Reed island", 32, 21, "nesting has begun, please keep the boats out"),
        (45054, "Reed island", 35, 24, "counted from the ferry"),
    ]
    counts: list[list[object]] = [["Seen on", "Place", "Adults", "Young", "Total", "Remarks"]]
    for number, (day, place, adults, young, remark) in enumerate(sightings, 2):
        counts.append([("date", day), place, adults, young, ("formula", f"C{number}+D{number}", adults + young), remark])
    return [
        ("Duck counts", False, counts),
        ("How we count", False, [["Counting rules"], [None, "Count from the bank, never from the water."], [1, "Binoculars first."]]),
        ("Volunteers' phones", True, [["Name", "Extension"], ["Front desk", 12], ["Boat house", 31]]),
        ("Next year", False, []),
    ]


def xlsx() -> bytes:
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"

    def cell(reference: str, value: object) -> str:
        match value:
            case None:
                return ""
            case ("date", serial):
                return f'<c r="{reference}" s="1"><v>{serial}</v></c>'
            case ("formula", formula, result):
                return f'<c r="{reference}"><f>{escape(formula)}</f><v>{result}</v></c>'
            case str():
                return f'<c r="{reference}" t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>'
            case _:
                return f'<c r="{reference}"><v>{value}</v></c>'

    def sheet(rows: list[list[object]]) -> str:
        lines = "".join(
            f'<row r="{number}">' + "".join(cell(f"{chr(65 + column)}{number}", value) for column, value in enumerate(row)) + "</row>"
            for number, row in enumerate(rows, 1)
        )
        return f'<worksheet xmlns="{main}"><sheetData>{lines}</sheetData></worksheet>'

    sheets = [(name, ' state="hidden"' if hidden else "", sheet(rows)) for name, hidden, rows in duck_counts()]
    tabs = "".join(
        f'<sheet name="{escape(name)}" sheetId="{number}"{state} r:id="rId{number}"/>' for number, (name, state, _) in enumerate(sheets, 1)
    )
    parts = {f"xl/worksheets/sheet{number}.xml": text for number, (_, _, text) in enumerate(sheets, 1)}
    members = {
        "[Content_Types].xml": content_types(
            {"xl/workbook.xml": f"{kind}.sheet.main+xml", "xl/styles.xml": f"{kind}.styles+xml"}
            | {part: f"{kind}.worksheet+xml" for part in parts}
        ),
        "_rels/.rels": relations(("officeDocument", "xl/workbook.xml")),
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{OFFICE}"><sheets>{tabs}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": relations(
            *(("worksheet", part.removeprefix("xl/")) for part in parts), ("styles", "styles.xml")
        ),
        "xl/styles.xml": f'<styleSheet xmlns="{main}"><numFmts count="1"><numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd"/></numFmts>'
        "<fonts count=\"1\"><font/></fonts><fills count=\"1\"><fill><patternFill/></fill></fills><borders count=\"1\"><border/></borders>"
        '<cellStyleXfs count="1"><xf/></cellStyleXfs><cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="164" applyNumberFormat="1"/></cellXfs>'
        "</styleSheet>",
    }
    return package_of(members | parts)


def ods() -> bytes:
    """The workbook of duck counts as an open document."""

    def cell(value: object) -> str:
        match value:
            case None:
                return "<table:table-cell/>"
            case ("date", serial):
                day = (datetime.date(1899, 12, 30) + datetime.timedelta(serial)).isoformat()
                kind, shown = f'table:style-name="day" office:value-type="date" office:date-value="{day}"', day
            case ("formula", formula, result):
                formula = re.sub(r"[A-Z]+[0-9]+", r"[.\g<0>]", formula)
                kind, shown = f'table:formula="of:={formula}" office:value-type="float" office:value="{result}"', result
            case str():
                kind, shown = 'office:value-type="string"', value
            case _:
                kind, shown = f'office:value-type="float" office:value="{value}"', value
        return f"<table:table-cell {kind}><text:p>{escape(str(shown))}</text:p></table:table-cell>"

    def table(name: str, hidden: bool, rows: list[list[object]]) -> str:
        lines = "".join("<table:table-row>" + "".join(map(cell, row)) + "</table:table-row>" for row in rows)
        rest = f'<table:table-row table:number-rows-repeated="{1048576 - len(rows)}"><table:table-cell table:number-columns-repeated="16384"/></table:table-row>'
        return f'<table:table table:name="{escape(name)}" table:style-name="{"away" if hidden else "shown"}">{lines}{rest}</table:table>'

    names = "".join(
        f' xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for prefix, name in [("office", "office"), ("table", "table"), ("text", "text"), ("style", "style"), ("number", "datastyle")]
    )
    styles = (
        '<number:date-style style:name="iso"><number:year number:style="long"/><number:text>-</number:text>'
        '<number:month number:style="long"/><number:text>-</number:text><number:day number:style="long"/></number:date-style>'
        '<style:style style:name="day" style:family="table-cell" style:data-style-name="iso"/>'
        '<style:style style:name="shown" style:family="table"><style:table-properties table:display="true"/></style:style>'
        '<style:style style:name="away" style:family="table"><style:table-properties table:display="false"/></style:style>'
    )
    tables = "".join(table(*sheet) for sheet in duck_counts())
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    manifest = "urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"
    return package_of(
        {
            "mimetype": kind.encode(),
            "content.xml": f'<office:document-content{names} office:version="1.3"><office:automatic-styles>{styles}</office:automatic-styles>'
            f"<office:body><office:spreadsheet>{tables}</office:spreadsheet></office:body></office:document-content>",
            "META-INF/manifest.xml": f'<manifest:manifest xmlns:manifest="{manifest}" manifest:version="1.3">'
            f'<manifest:file-entry manifest:full-path="/" manifest:media-type="{kind}"/>'
            '<manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/></manifest:manifest>',
        }
    )


def shared_texts() -> list[str]:
    """The different texts of the duck counts, in their order."""
    return list(dict.fromkeys(value for _, _, rows in duck_counts() for row in rows for value in row if isinstance(value, str)))


def xls() -> bytes:
    """The workbook of duck counts as Excel 97 would store it."""

    def record(kind: int, *parts: bytes) -> bytes:
        body = b"".join(parts)
        return struct.pack("<HH", kind, len(body)) + body

    def begin(kind: int) -> bytes:
        return record(0x0809, struct.pack("<HHHHII", 0x0600, kind, 0x0DBB, 0x07CC, 0, 6))

    texts = shared_texts()

    def cell(row: int, column: int, value: object) -> bytes:
        place = struct.pack("<HHH", row, column, isinstance(value, tuple) and value[0] == "date")
        match value:
            case None:
                return b""
            case ("date", serial):
                return record(0x0203, place, struct.pack("<d", serial))
            case ("formula", formula, result):
                # Each operand is a cell of the same row, and relative: two columns and a sum.
                columns = [ord(name[0]) - 65 for name in formula.split("+")]
                tokens = b"".join(struct.pack("<BHH", 0x44, row, 0xC000 | operand) for operand in columns) + b"\x03"
                return record(0x0006, place, struct.pack("<dHIH", result, 0, 0, len(tokens)), tokens)
            case str():
                return record(0x00FD, place, struct.pack("<I", texts.index(value)))
            case _:
                return record(0x027E, place, struct.pack("<I", value << 2 | 2))

    def text(value: str, length: str) -> bytes:
        return struct.pack(length, len(value)) + b"\x01" + value.encode("utf-16-le")

    sheets = [
        begin(0x0010) + b"".join(cell(y, x, value) for y, row in enumerate(rows) for x, value in enumerate(row)) + record(0x000A)
        for _, _, rows in duck_counts()
    ]
    head = begin(0x0005) + record(0x0042, struct.pack("<H", 1200))
    head += record(0x041E, struct.pack("<H", 164), text(r"yyyy\-mm\-dd", "<H"))
    head += b"".join(record(0x00E0, struct.pack("<HHH", 0, code, 0), bytes(14)) for code in (0, 164))
    strings = record(0x00FC, struct.pack("<II", len(texts), len(texts)), *(text(value, "<H") for value in texts))

    def tabs(places: list[int]) -> bytes:
        return b"".join(
            record(0x0085, struct.pack("<IBB", place, hidden, 0), text(name, "<B"))
            for place, (name, hidden, _) in zip(places, duck_counts())
        )

    end = strings + record(0x000A)
    first = len(head) + len(tabs([0] * len(sheets))) + len(end)
    places = [first + sum(map(len, sheets[:index])) for index in range(len(sheets))]
    return compound_of("Workbook", head + tabs(places) + end + b"".join(sheets))


def compound_of(name: str, stream: bytes) -> bytes:
    """A compound file with one stream, which is padded so that it needs no small sectors."""
    size, end, nothing = 512, 0xFFFFFFFE, 0xFFFFFFFF
    stream = stream.ljust(4096, b"\0")
    count = -(-len(stream) // size)

    # The directory and the table of sectors come first, then the stream.
    table = [end, 0xFFFFFFFD, *range(3, count + 2), end]
    table += [nothing] * (size // 4 - len(table))

    def entry(name: str, kind: int, child: int, start: int, length: int) -> bytes:
        letters = name.encode("utf-16-le") + b"\0\0" if name else b""
        links = struct.pack("<HBBIII", len(letters), kind, 1, nothing, nothing, child)
        return letters.ljust(64, b"\0") + links + bytes(36) + struct.pack("<IQ", start, length)

    directory = entry("Root Entry", 5, 1, end, 0) + entry(name, 2, nothing, 2, len(stream)) + 2 * entry("", 0, nothing, 0, 0)
    header = bytes.fromhex("d0cf11e0a1b11ae1") + bytes(16) + struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, 9, 6) + bytes(6)
    header += struct.pack("<IIIIIIIII", 0, 1, 0, 0, 4096, end, 0, end, 0) + struct.pack("<I", 1) + b"\xff" * 108 * 4
    return header + directory + struct.pack("<128I", *table) + stream.ljust(count * size, b"\0")


def xlsb() -> bytes:
    """The workbook of duck counts in binary parts."""

    def record(kind: int, *parts: bytes) -> bytes:
        body = b"".join(parts)

        def number(value: int) -> bytes:
            return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + number(value >> 7)

        return number(kind) + number(len(body)) + body

    def text(value: str) -> bytes:
        return struct.pack("<I", len(value)) + value.encode("utf-16-le")

    texts = shared_texts()

    def cell(row: int, column: int, value: object) -> bytes:
        place = struct.pack("<II", column, isinstance(value, tuple) and value[0] == "date")
        match value:
            case None:
                return b""
            case ("date", serial):
                return record(5, place, struct.pack("<d", serial))
            case ("formula", formula, result):
                columns = [ord(name[0]) - 65 for name in formula.split("+")]
                tokens = b"".join(struct.pack("<BIH", 0x44, row, 0xC000 | operand) for operand in columns) + b"\x03"
                return record(9, place, struct.pack("<dHI", result, 0, len(tokens)), tokens, bytes(4))
            case str():
                return record(7, place, struct.pack("<I", texts.index(value)))
            case _:
                return record(2, place, struct.pack("<I", value << 2 | 2))

    def sheet(rows: list[list[object]]) -> bytes:
        lines = b"".join(
            record(0, struct.pack("<IIHBBBI", y, 0, 300, 0, 0, 0, 0)) + b"".join(cell(y, x, value) for x, value in enumerate(row))
            for y, row in enumerate(rows)
        )
        size = struct.pack("<IIII", 0, max(len(rows) - 1, 0), 0, max(map(len, rows), default=1) - 1)
        return record(129) + record(148, size) + record(145) + lines + record(146) + record(130)

    tabs = b"".join(
        record(156, struct.pack("<II", hidden, number), text(f"rId{number}"), text(name))
        for number, (name, hidden, _) in enumerate(duck_counts(), 1)
    )
    formats = record(615, struct.pack("<I", 1)) + record(44, struct.pack("<H", 164), text(r"yyyy\-mm\-dd")) + record(616)
    styles = b"".join(record(47, struct.pack("<HH", 0, code), bytes(12)) for code in (0, 164))
    parts = {f"xl/worksheets/sheet{number}.bin": sheet(rows) for number, (_, _, rows) in enumerate(duck_counts(), 1)}
    kind = "application/vnd.ms-excel"
    members = {
        "[Content_Types].xml": content_types(
            {"xl/workbook.bin": f"{kind}.sheet.binary.macroEnabled.main", "xl/styles.bin": f"{kind}.styles", "xl/sharedStrings.bin": f"{kind}.sharedStrings"}
            | {part: f"{kind}.worksheet" for part in parts}
        ),
        "_rels/.rels": relations(("officeDocument", "xl/workbook.bin")),
        "xl/workbook.bin": record(131) + record(143) + tabs + record(144) + record(132),
        "xl/_rels/workbook.bin.rels": relations(
            *(("worksheet", part.removeprefix("xl/")) for part in parts), ("styles", "styles.bin"), ("sharedStrings", "sharedStrings.bin")
        ),
        "xl/styles.bin": record(278) + formats + record(617, struct.pack("<I", 2)) + styles + record(618) + record(279),
        "xl/sharedStrings.bin": record(159, struct.pack("<II", len(texts), len(texts)))
        + b"".join(record(19, b"\0", text(value)) for value in texts)
        + record(160),
    }
    return package_of(members | parts)


def pptx() -> bytes:
    """Three slides: a title, a list with speaker notes, and one without a title placeholder."""
    main = "http://schemas.openxmlformats.org/presentationml/2006/main"
    drawing = "http://schemas.openxmlformats.org/drawingml/2006/main"
    kind = "application/vnd.openxmlformats-officedocument.presentationml"
    spaces = f'xmlns:a="{drawing}" xmlns:r="{OFFICE}" xmlns:p="{main}"'

    def shape(number: int, placeholder: str, lines: list[str]) -> str:
        mark = f'<p:nvPr><p:ph type="{placeholder}"/></p:nvPr>' if placeholder else "<p:nvPr/>"
        text = "".join(f"<a:p><a:r><a:t>{escape(line)}</a:t></a:r></a:p>" for line in lines)
        return (
            f'<p:sp><p:nvSpPr><p:cNvPr id="{number}" name="Shape {number}"/><p:cNvSpPr/>{mark}</p:nvSpPr><p:spPr/>'
            f"<p:txBody><a:bodyPr/>{text}</p:txBody></p:sp>"
        )

    def tree(shapes: list[tuple[str, list[str]]]) -> str:
        drawn = "".join(shape(number, placeholder, lines) for number, (placeholder, lines) in enumerate(shapes, 2))
        group = '<p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr><p:grpSpPr/>'
        return f"<p:cSld><p:spTree>{group}{drawn}</p:spTree></p:cSld>"

    slides = [
        [("ctrTitle", ["Spring briefing for the ferry crew"]), ("subTitle", ["What changes between April and October"])],
        [
            ("title", ["Timetable & tides"]),
            ("body", ["The first boat leaves at 6:40 from the north pier.", "No crossing at low water on Sundays.", "Dogs travel free."]),
        ],
        [("", ["Safety drill"]), ("", ["Every crew member puts on a life jacket in under a minute."])],
    ]
    notes = "Hand out the tide tables before the break."
    parts = {f"ppt/slides/slide{number}.xml": f"<p:sld {spaces}>{tree(shapes)}</p:sld>" for number, shapes in enumerate(slides, 1)}
    identities = "".join(f'<p:sldId id="{255 + number}" r:id="rId{number}"/>' for number in range(1, len(slides) + 1))
    members = {
        "[Content_Types].xml": content_types(
            {"ppt/presentation.xml": f"{kind}.presentation.main+xml", "ppt/notesSlides/notesSlide1.xml": f"{kind}.notesSlide+xml"}
            | {part: f"{kind}.slide+xml" for part in parts}
        ),
        "_rels/.rels": relations(("officeDocument", "ppt/presentation.xml")),
        "ppt/presentation.xml": f"<p:presentation {spaces}><p:sldIdLst>{identities}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": relations(*(("slide", part.removeprefix("ppt/")) for part in parts)),
        "ppt/slides/_rels/slide2.xml.rels": relations(("notesSlide", "../notesSlides/notesSlide1.xml")),
        "ppt/notesSlides/_rels/notesSlide1.xml.rels": relations(("slide", "../slides/slide2.xml")),
        "ppt/notesSlides/notesSlide1.xml": f'<p:notes {spaces}>{tree([("body", [notes])])}</p:notes>',
    }
    return package_of(members | parts)


def main() -> None:
    whole_pdf, whole_docx = pdf(), docx()
    (HERE / "quarterly-review.pdf").write_bytes(whole_pdf)
    (HERE / "onboarding-checklist.docx").write_bytes(whole_docx)
    (HERE / "locked.pdf").write_bytes(locked_pdf(b"heron"))
    for name, workbook in {"xlsx": xlsx(), "ods": ods(), "xls": xls(), "xlsb": xlsb()}.items():
        (HERE / f"duck-counts.{name}").write_bytes(workbook)
    # A workbook whose stream ends in the middle, and one whose content does not inflate.
    (HERE / "corrupt.xls").write_bytes(xls()[:2_000])
    whole_ods = ods()
    (HERE / "corrupt.ods").write_bytes(whole_ods[:300] + b"\xff" * 60 + whole_ods[360:])
    (HERE / "spring-briefing.pptx").write_bytes(pptx())
    (HERE / "empty.txt").write_bytes(b"")
    # A header that promises a PDF, and nothing that keeps the promise.
    (HERE / "corrupt.pdf").write_bytes(b"%PDF-1.7\n" + bytes(byte for byte in whole_pdf[40:400] if byte % 3))
    # The directory at the end of the package is gone.
    (HERE / "corrupt.docx").write_bytes(whole_docx[: len(whole_docx) * 2 // 3])


if __name__ == "__main__":
    main()
