"""Writes the binary samples beside this script. Needs nothing but Python; the output is the same on every run."""

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
    out.write(b"trailer\n<< /Size %d /Root %d 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, catalog, table))
    return out.getvalue()


def docx() -> bytes:
    """Headings, paragraphs, a list and a table."""
    main = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    package = "http://schemas.openxmlformats.org/package/2006"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    header = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'

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
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            member = zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0))
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, header + text)
    return out.getvalue()


def main() -> None:
    whole_pdf, whole_docx = pdf(), docx()
    (HERE / "quarterly-review.pdf").write_bytes(whole_pdf)
    (HERE / "onboarding-checklist.docx").write_bytes(whole_docx)
    (HERE / "empty.txt").write_bytes(b"")
    # A header that promises a PDF, and nothing that keeps the promise.
    (HERE / "corrupt.pdf").write_bytes(b"%PDF-1.7\n" + bytes(byte for byte in whole_pdf[40:400] if byte % 3))
    # The directory at the end of the package is gone.
    (HERE / "corrupt.docx").write_bytes(whole_docx[: len(whole_docx) * 2 // 3])


if __name__ == "__main__":
    main()
