"""The peers' side of the formats bench, and the large files that both sides read.

`formats.py read` takes a job, one line of JSON on standard input, and does a round of it for every further line: one line of
JSON back. `formats.py make KIND SIZE FILE` writes a file with nothing but the standard library. `formats.py tables FILE` prints
the tables that pdfplumber finds, and its version; `formats.py texts WORK FILE...` what a peer makes of each file, and its version.
"""

import json
import sys
import time
import zipfile


def pdf_text():
    """Extracts the text of every page; returns how many pages there are."""
    import pypdfium2

    def pages(path):
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

    return pages


def markdown():
    from markitdown import MarkItDown

    converter = MarkItDown()
    return lambda path: converter.convert(path).text_content


def docling():
    """The engine of docling.rs, and the Python of docling that writes Markdown of what it finds. It needs no model for these formats."""
    from docling_rs import DocumentConverter

    converter = DocumentConverter()

    def text(path):
        try:
            return converter.convert(path).document.export_to_markdown()
        except BaseException as error:
            # A panic of the engine is no Exception, and would end the peers' side.
            if type(error).__name__ == "PanicException":
                raise RuntimeError(f"it panicked: {error}") from error
            raise

    return text


def unstructured():
    """The elements of unstructured: of tables the rows, of others the text. It needs no model for the formats that it is asked for."""
    import os

    # It tells its makers of each reading otherwise, and prints what they sell.
    os.environ["DO_NOT_TRACK"] = "1"
    os.environ["UNSTRUCTURED_DISABLE_NOTICE"] = "1"
    import spacy
    from lxml import html
    from unstructured.nlp import tokenize
    from unstructured.partition.auto import partition

    # The model of English that it would download only tells titles from sentences. Rules in its place change no word; its time is not
    # in the figures.
    pipeline = spacy.blank("en")
    pipeline.add_pipe("sentencizer")
    tokenize._load_spacy_model = lambda: pipeline

    def lines(element):
        table = element.metadata.text_as_html
        if not table:
            return [element.text]
        rows = html.fromstring(table).iter("tr")
        return ["| " + " | ".join(" ".join(cell.text_content().split()) for cell in row) + " |" for row in rows]

    return lambda path: "\n".join(line for element in partition(path, strategy="fast") for line in lines(element))


def cells():
    """Streams every cell of every sheet; returns how many hold a value."""
    import openpyxl

    def values(path):
        # It refuses a name without the ending of a workbook, but not a file.
        with open(path, "rb") as file:
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            rows = (row for sheet in book.worksheets for row in sheet.iter_rows(values_only=True))
            return sum(value is not None for row in rows for value in row)

    return values


def sheets():
    """Reads every cell of every sheet; returns how many hold a value."""
    from python_calamine import CalamineWorkbook

    def values(path):
        book = CalamineWorkbook.from_path(path)
        try:
            rows = (row for name in book.sheet_names for row in book.get_sheet_by_name(name).to_python())
            return sum(value != "" for row in rows for value in row)
        finally:
            book.close()

    return values


def rows():
    """Reads the cells of a table in text, by the commonest separator of its header; returns how many hold a value."""
    import csv

    def values(path):
        with open(path, encoding="utf-8-sig", newline="") as file:
            separator = max(",;\t|", key=file.readline().count)
            file.seek(0)
            return sum(value != "" for row in csv.reader(file, delimiter=separator) for value in row)

    return values


def mail():
    """Decodes the headers and the body of a message, and names its attachments; returns how many characters the body has."""
    from email import message_from_binary_file, policy

    def characters(path):
        with open(path, "rb") as file:
            message = message_from_binary_file(file, policy=policy.default)
        for name in ("subject", "from", "to", "cc", "date"):
            str(message[name])
        for part in message.iter_attachments():
            part.get_filename()
        body = message.get_body(("plain", "html"))
        return len(body.get_content()) if body else 0

    return characters


def counted(make):
    """Of work that gives a text, the work that gives the number of its characters."""

    def made():
        text = make()
        return lambda path: len(text(path))

    return made


# What gives texts, by name, with its package.
TEXTS = {
    "markdown": ("markitdown", markdown),
    "docling": ("docling-rs", docling),
    "unstructured": ("unstructured", unstructured),
}
# The work, by name: the packages whose versions stand beside the figures (none for what comes with Python), and what makes the
# function.
WORK = {
    **{name: (package, counted(make)) for name, (package, make) in TEXTS.items()},
    "pdf": ("pypdfium2", pdf_text),
    "cells": ("openpyxl", cells),
    "sheets": ("python-calamine", sheets),
    "rows": (None, rows),
    "mail": (None, mail),
}


def clocks():
    """The lesser of wall and processor time: on a busy machine the former includes other programs, and with threads the latter counts each."""
    return time.perf_counter(), time.process_time()


def peak_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def read():
    import platform
    from importlib.metadata import version

    job = json.loads(sys.stdin.readline())
    package, make = WORK[job["work"]]
    made_by = version(package) if package else platform.python_version()
    read_file = make()
    for number, _ in enumerate(sys.stdin):
        files = []
        for path in job["files"]:
            start = clocks()
            try:
                count = read_file(path)
            except Exception as error:
                if number == 0:
                    print(f"bench: {package or 'Python'} does not read {path}: {error}", file=sys.stderr)
                files.append(None)
                continue
            seconds = min(after - before for before, after in zip(start, clocks()))
            files.append({"seconds": seconds, "count": count})
        print(json.dumps({"version": made_by, "files": files, "peak_bytes": peak_bytes()}), flush=True)


WORDS = "the of record ledger harbour tide north survey copper valve annual report between margin window quiet".split()


def line(number):
    """Twelve words, different for each number and the same in every run."""
    return " ".join(WORDS[(number * 7 + place * (number % 5 + 3)) % len(WORDS)] for place in range(12))


def make_pdf(pages, path):
    """Pages of 40 lines in one of the standard fonts."""

    def content(page):
        lines = "".join(f"({line(page * 40 + number)}) Tj T*\n" for number in range(40))
        return f"BT /F 11 Tf 16 TL 60 740 Td\n{lines}ET"

    write_pdf(pages, content, path)


def table(page):
    """The rows of a page's table, and whether lines are drawn between its cells: texts and numbers, under names."""
    columns, count = 3 + page % 4, 4 + page * 5 % 9
    rows = [["Station"] + [f"{WORDS[(page + column * 5) % len(WORDS)]} {column}" for column in range(1, columns)]]
    for row in range(count):
        first = f"{WORDS[(page + row) % len(WORDS)]} {WORDS[(page * 3 + row * 7) % len(WORDS)]}"
        numbers = [f"{(page * 977 + row * 131 + column * 61) * 7919 % 100003 / 8:.2f}" for column in range(1, columns)]
        rows.append([first] + numbers)
    return rows, page % 2 == 0


def plain(page):
    """A table of texts and numbers; every second has lines between its cells."""
    rows, is_ruled = table(page)
    return rows, [84] * len(rows[0]), is_ruled, []


def narrow(page):
    """Many columns of numbers, set to the right with hardly more than a blank between them."""
    columns, count = 9 + page % 4, 5 + page * 3 % 7
    rows = [["Year"] + [f"Q{column}" for column in range(1, columns)]]
    for row in range(count):
        rows.append([f"{2001 + row}"] + [f"{(page * 613 + row * 97 + column * 41) * 7919 % 9973}" for column in range(1, columns)])
    return rows, [40] + [21] * (columns - 1), page % 2 == 0, []


def merged(page):
    """Lines between all cells but those of names over two columns, and of a name beside two rows."""
    count = 2 + page % 3
    rows = [["Pond", "Ducks", "", "Geese", ""], ["", "spring", "autumn", "spring", "autumn"]]
    for row in range(count):
        name = f"{WORDS[(page + row) % len(WORDS)]} {WORDS[(page * 3 + row * 7) % len(WORDS)]}"
        for part in range(2):
            numbers = [f"{(page * 613 + row * 97 + part * 13 + column * 41) * 7919 % 997}" for column in range(4)]
            rows.append([name if part == 0 else ""] + numbers)
    # Row and column of the first cell, and how many rows and columns it takes.
    spans = [(0, 0, 2, 1), (0, 1, 1, 2), (0, 3, 1, 2)] + [(2 + 2 * row, 0, 2, 1) for row in range(count)]
    return rows, [110, 70, 70, 70, 70], True, spans


def continued(page):
    """A table over three pages, each with its header; every second one has lines between its cells."""
    part, number = page % 3, page // 3
    rows = [["Station", "Depth", f"Survey {number}", "Change"]]
    for row in range(part * 30, part * 30 + 30):
        values = [f"{(number * 613 + row * 97 + column * 41) * 7919 % 100003 / 8:.2f}" for column in range(3)]
        rows.append([f"{WORDS[(number + row) % len(WORDS)]} {row + 1}"] + values)
    return rows, [110, 84, 84, 84], number % 2 == 0, []


TABLES = {"tables": plain, "tables-narrow": narrow, "tables-merged": merged, "tables-continued": continued}


def make_tables(kind, pages, path):
    """Pages with a table between two paragraphs. The tables stand beside it in JSON."""
    of_page = TABLES[kind]
    left, top, high = 48, 660, 16

    def rulings(rows, xs, spans):
        """Lines on all sides of all cells, but none within a cell that spans others."""
        covered = {}
        for row, column, down, across in spans:
            covered |= {(y, x): (row, column) for y in range(row, row + down) for x in range(column, column + across)}
        owner = lambda row, column: covered.get((row, column), (row, column))
        count, wide = len(rows), len(xs) - 1
        for row in range(count + 1):
            for column in range(wide):
                if row in (0, count) or owner(row - 1, column) != owner(row, column):
                    yield f"{xs[column]} {top - row * high} m {xs[column + 1]} {top - row * high} l S"
        for row in range(count):
            for column in range(wide + 1):
                if column in (0, wide) or owner(row, column - 1) != owner(row, column):
                    yield f"{xs[column]} {top - row * high} m {xs[column]} {top - (row + 1) * high} l S"

    def content(page):
        rows, widths, is_ruled, spans = of_page(page)
        xs = [left + sum(widths[:column]) for column in range(len(widths) + 1)]
        parts = []
        if kind != "tables-continued":
            parts.append(f"BT /F 10 Tf 14 TL {left} 730 Td ({line(page)}.) Tj T* ({line(page + 1)}.) Tj ET")
        for number, row in enumerate(rows):
            for column, cell in enumerate(row):
                if not cell:
                    continue
                x, size = xs[column] + 4, 10
                if kind == "tables-narrow":
                    # The digits of the font are 556 thousandths wide, and the letters of its names take about as much.
                    x, size = xs[column + 1] - 3 - len(cell) * 0.556 * 8, 8
                parts.append(f"BT /F {size} Tf {x:.2f} {top - number * high - 11} Td ({cell}) Tj ET")
        if is_ruled:
            parts += rulings(rows, xs, spans)
        bottom = top - len(rows) * high
        if kind == "tables-continued":
            parts.append(f"BT /F 9 Tf 290 40 Td ({page + 1}) Tj ET")
        else:
            parts.append(f"BT /F 10 Tf 14 TL {left} {bottom - 60} Td ({line(page + 2)}.) Tj T* ({line(page + 3)}.) Tj ET")
        return "\n".join(parts)

    write_pdf(pages, content, path)
    with open(f"{path}.json", "w") as out:
        json.dump([[of_page(page)[0]] for page in range(pages)], out)


def tables(path):
    """The tables of each page: by the lines that are drawn, or where there are none by the places of words, as its documentation says."""
    from importlib.metadata import version

    import pdfplumber

    by_text = {"vertical_strategy": "text", "horizontal_strategy": "text"}
    with pdfplumber.open(path) as document:
        found = [page.extract_tables() or page.extract_tables(by_text) for page in document.pages]
    # Rows without text are no rows of a table.
    pages = [[[[cell or "" for cell in row] for row in table if any(row)] for table in page] for page in found]
    print(json.dumps({"version": version("pdfplumber"), "pages": pages}))


def texts(work, paths):
    """What a peer makes of each file, without references to characters; null for one that it does not read."""
    from html import unescape
    from importlib.metadata import version

    package, make = TEXTS[work]
    text = make()
    found = []
    for path in paths:
        try:
            found.append(unescape(text(path)))
        except Exception as error:
            print(f"bench: {package} does not read {path}: {error}", file=sys.stderr)
            found.append(None)
    print(json.dumps({"version": version(package), "texts": found}))


def write_pdf(pages, content, path):
    """Pages whose streams are deflated, with one of the standard fonts."""
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
            stream = zlib.compress(content(page).encode())
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
    elif kind in TABLES:
        make_tables(kind, size, path)
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
    elif sys.argv[1] == "tables":
        tables(sys.argv[2])
    elif sys.argv[1] == "texts":
        texts(sys.argv[2], sys.argv[3:])
    else:
        make(sys.argv[2], int(sys.argv[3]), sys.argv[4])
