"""The peers' side of the formats bench, and the large files that both sides read.

`formats.py read` takes a job, one line of JSON on standard input, and does a round of it for every further line: one line of
JSON back. `formats.py make KIND SIZE FILE` writes a file with nothing but the standard library.
"""

import json
import sys
import time
import zipfile


def pdf_text(path):
    """Extracts the text of every page; returns how many pages there are."""
    import pypdfium2

    document = pypdfium2.PdfDocument(path)
    try:
        pages = len(document)
        for number in range(pages):
            page = document[number]
            text = page.get_textpage()
            text.get_text_bounded()
            text.close()
            page.close()
        return pages
    finally:
        document.close()


def markdown():
    from markitdown import MarkItDown

    converter = MarkItDown()
    return lambda path: len(converter.convert(path).text_content)


def cells(path):
    """Streams every cell of every sheet; returns how many hold a value."""
    import openpyxl

    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    try:
        rows = (row for sheet in book.worksheets for row in sheet.iter_rows(values_only=True))
        return sum(value is not None for row in rows for value in row)
    finally:
        book.close()


def sheets(path):
    """Reads every cell of every sheet; returns how many hold a value."""
    from python_calamine import CalamineWorkbook

    book = CalamineWorkbook.from_path(path)
    try:
        rows = (row for name in book.sheet_names for row in book.get_sheet_by_name(name).to_python())
        return sum(value != "" for row in rows for value in row)
    finally:
        book.close()


# The work, by name: the packages whose versions stand beside the figures, and what makes the function.
WORK = {
    "pdf": ("pypdfium2", lambda: pdf_text),
    "markdown": ("markitdown", markdown),
    "cells": ("openpyxl", lambda: cells),
    "sheets": ("python-calamine", lambda: sheets),
}


def clocks():
    """The lesser of wall and processor time: on a busy machine the former includes other programs, and with threads the latter counts each."""
    return time.perf_counter(), time.process_time()


def peak_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def read():
    from importlib.metadata import version

    job = json.loads(sys.stdin.readline())
    package, make = WORK[job["work"]]
    read_file = make()
    for number, _ in enumerate(sys.stdin):
        files = []
        for path in job["files"]:
            start = clocks()
            try:
                count = read_file(path)
            except Exception as error:
                if number == 0:
                    print(f"bench: {package} does not read {path}: {error}", file=sys.stderr)
                files.append(None)
                continue
            seconds = min(after - before for before, after in zip(start, clocks()))
            files.append({"seconds": seconds, "count": count})
        print(json.dumps({"version": version(package), "files": files, "peak_bytes": peak_bytes()}), flush=True)


WORDS = "the of record ledger harbour tide north survey copper valve annual report between margin window quiet".split()


def line(number):
    """Twelve words, different for each number and the same in every run."""
    return " ".join(WORDS[(number * 7 + place * (number % 5 + 3)) % len(WORDS)] for place in range(12))


def make_pdf(pages, path):
    """Pages of 40 lines in one of the standard fonts, their streams deflated."""
    import zlib

    offsets = []
    with open(path, "wb") as out:

        def put(body):
            offsets.append(out.tell())
            out.write(b"%d 0 obj\n%b\nendobj\n" % (len(offsets), body))

        out.write(b"%PDF-1.7\n")
        put(b"<< /Type /Catalog /Pages 2 0 R >>")
        kids = " ".join(f"{4 + 2 * page} 0 R" for page in range(pages))
        put(f"<< /Type /Pages /Count {pages} /Kids [{kids}] /MediaBox [0 0 612 792] >>".encode())
        put(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
        for page in range(pages):
            put(
                b"<< /Type /Page /Parent 2 0 R /Resources << /Font << /F 3 0 R >> >> /Contents %d 0 R >>"
                % (len(offsets) + 2)
            )
            lines = "".join(f"({line(page * 40 + number)}) Tj T*\n" for number in range(40))
            stream = zlib.compress(f"BT /F 11 Tf 16 TL 60 740 Td\n{lines}ET".encode())
            put(b"<< /Length %d /Filter /FlateDecode >>\nstream\n%b\nendstream" % (len(stream), stream))
        start = out.tell()
        out.write(f"xref\n0 {len(offsets) + 1}\n0000000000 65535 f \n".encode())
        out.writelines(b"%010d 00000 n \n" % offset for offset in offsets)
        out.write(f"trailer << /Size {len(offsets) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n".encode())


MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
SHEET_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
COLUMNS = 24


def make_workbook(rows, path, packed=zipfile.ZIP_DEFLATED):
    """A sheet of 24 columns: a header, then texts, shared and inline, and numbers."""
    letters = [chr(ord("A") + column) for column in range(COLUMNS)]
    shared = [f"{word} {number}" for number in range(64) for word in WORDS]
    with zipfile.ZipFile(path, "w", packed, compresslevel=6) as book:

        def put(name, text):
            book.writestr(name, HEAD + text)

        put(
            "[Content_Types].xml",
            f'<Types xmlns="{PACKAGE}/content-types">'
            '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/xl/workbook.xml" ContentType="{SHEET_TYPE}.sheet.main+xml"/>'
            f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{SHEET_TYPE}.worksheet+xml"/>'
            f'<Override PartName="/xl/sharedStrings.xml" ContentType="{SHEET_TYPE}.sharedStrings+xml"/></Types>',
        )
        relation = f'<Relationships xmlns="{PACKAGE}/relationships">%s</Relationships>'
        entry = f'<Relationship Id="%s" Type="{OFFICE}/%s" Target="%s"/>'
        put("_rels/.rels", relation % (entry % ("r1", "officeDocument", "xl/workbook.xml")))
        put(
            "xl/_rels/workbook.xml.rels",
            relation
            % (entry % ("r1", "worksheet", "worksheets/sheet1.xml") + entry % ("r2", "sharedStrings", "sharedStrings.xml")),
        )
        put(
            "xl/workbook.xml",
            f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets><sheet name="Data" sheetId="1" r:id="r1"/></sheets></workbook>',
        )
        put(
            "xl/sharedStrings.xml",
            f'<sst xmlns="{MAIN}" count="{len(shared)}" uniqueCount="{len(shared)}">'
            + "".join(f"<si><t>{text}</t></si>" for text in shared)
            + "</sst>",
        )
        with book.open("xl/worksheets/sheet1.xml", "w", force_zip64=True) as sheet:
            sheet.write(f'{HEAD}<worksheet xmlns="{MAIN}"><sheetData>'.encode())
            for row in range(1, rows + 1):
                made = []
                for column, letter in enumerate(letters):
                    seed = row * 31 + column * 17
                    if row == 1:
                        made.append(f'<c r="{letter}1" t="inlineStr"><is><t>Column {letter}</t></is></c>')
                    elif column % 4 == 0:
                        made.append(f'<c r="{letter}{row}" t="s"><v>{seed % len(shared)}</v></c>')
                    else:
                        made.append(f'<c r="{letter}{row}"><v>{seed * 7919 % 1000003 / 8}</v></c>')
                sheet.write(f'<row r="{row}">{"".join(made)}</row>'.encode())
            sheet.write(b"</sheetData></worksheet>")


def make(kind, size, path):
    if kind == "pdf":
        make_pdf(size, path)
    elif kind == "workbook":
        make_workbook(size, path)
    elif kind == "stored-workbook":
        # This is as large as its sheet, but made in a fraction of the time.
        make_workbook(size, path, zipfile.ZIP_STORED)
    else:
        sys.exit(f"bench: no file of the kind {kind}")


if __name__ == "__main__":
    if sys.argv[1] == "read":
        read()
    else:
        make(sys.argv[2], int(sys.argv[3]), sys.argv[4])
