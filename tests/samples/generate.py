"""Writes the binary samples beside this script. Needs nothing but Python; the output is the same on every run."""

import hashlib
import io
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


def package_of(members: dict[str, str]) -> bytes:
    """An office package of XML members, the same on every run."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            member = zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0))
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n' + text)
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


def xlsx() -> bytes:
    """A sheet of records with dates and formulas, one without a header, a hidden one and an empty one."""
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
    sheets = [
        ("Duck counts", "", sheet(counts)),
        ("How we count", "", sheet([["Counting rules"], [None, "Count from the bank, never from the water."], [1, "Binoculars first."]])),
        ("Volunteers' phones", ' state="hidden"', sheet([["Name", "Extension"], ["Front desk", 12], ["Boat house", 31]])),
        ("Next year", "", sheet([])),
    ]
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
    (HERE / "duck-counts.xlsx").write_bytes(xlsx())
    (HERE / "spring-briefing.pptx").write_bytes(pptx())
    (HERE / "empty.txt").write_bytes(b"")
    # A header that promises a PDF, and nothing that keeps the promise.
    (HERE / "corrupt.pdf").write_bytes(b"%PDF-1.7\n" + bytes(byte for byte in whole_pdf[40:400] if byte % 3))
    # The directory at the end of the package is gone.
    (HERE / "corrupt.docx").write_bytes(whole_docx[: len(whole_docx) * 2 // 3])


if __name__ == "__main__":
    main()
