"""Makes files of known words in much markup, as programs write them: `markup.py SIZE FOLDER` writes one of each kind with nothing but
the standard library. Beside each file NAME it writes NAME.words, the words that a reader sees.
"""

import base64
import html
import json
import random
import sys
from email.message import EmailMessage
from pathlib import Path

from formats import line

# Words that stand in none of the lines.
MENU = ["Imprint", "Basket", "Cookies", "Careers", "Sitemap"]


def blob(number, size):
    """Bytes that no compression shortens, the same in every run."""
    return random.Random(number).randbytes(size)


def page(size):
    """A page with programs, styles, drawings and menus around its text."""
    links = "".join(f'<li class="menu-item menu-item-{name}"><a href="/{name}?utm_source=nav">{name}</a></li>' for name in MENU)
    picture = base64.b64encode(blob(1, 3000)).decode()
    style = "\n".join(f".block-{number} > .inner {{ margin: 0 {number}px; color: #{number:06x} }}" for number in range(40))
    script = "\n".join(f'window.dataLayer.push({{"event": "view_{number}", "value": {number}}});' for number in range(40))
    said, body = [], []
    for number in range(size):
        if number % 6 == 0:
            said.append(line(number))
            body.append(f'<h2 id="section-{number}" class="heading heading--large">{line(number)}</h2>')
        said += [line(number + 1), "fish & chips", line(number + 2)]
        body.append(
            f'<p class="text text--body" style="line-height: 1.5" data-track="p{number}"><span class="lead">{line(number + 1)}</span>, '
            f"fish&nbsp;&amp; chips:<!-- ad slot {number} --> <b>{line(number + 2)}</b>.</p>"
        )
        if number % 5 == 0:
            cells = [line(number + 3), f"{number} metres", f"{number + 1} metres"]
            said += ["Name", "Depth", *cells]
            rows = f'<tr><td class="cell" rowspan="2">{cells[0]}</td><td>{cells[1]}</td></tr><tr><td>{cells[2]}</td></tr>'
            body.append(f'<table class="grid"><tr><th>Name</th><th>Depth</th></tr>{rows}</table>')
    text = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{line(0)}</title>\n<style>\n{style}\n</style>\n'
        f'<script type="application/ld+json">{json.dumps({"@type": "Article", "name": "x" * 40})}</script>\n'
        f'<script>\n{script}\n</script></head>\n<body class="page page--wide"><nav role="navigation"><ul>{links}</ul></nav>\n'
        f'<main>\n<svg viewBox="0 0 24 24"><path d="M12 2L2 7l10 5 10-5-10-5z"/></svg>\n'
        f'<img src="data:image/png;base64,{picture}" alt="">\n{"".join(body)}\n</main>\n'
        f"<footer><ul>{links}</ul></footer><noscript><iframe src='https://tag.example.com/ns'></iframe></noscript></body></html>\n"
    )
    return text.encode(), said


def letter(number, size):
    """A message with the headers of the servers that passed it on, two forms of its text and an attachment."""
    said = [line(number + part) for part in range(size)]
    message = EmailMessage()
    for hop in range(4):
        message["Received"] = f"from mx{hop}.example.com (mx{hop}.example.com [192.0.2.{hop}]) by in.example.org with ESMTPS id {hop:08x}"
    message["DKIM-Signature"] = f"v=1; a=rsa-sha256; d=example.com; s=s1; b={base64.b64encode(blob(number, 120)).decode()}"
    message["Message-ID"] = f"<{number}@example.com>"
    message["X-Spam-Status"] = "No, score=-2.1 required=5.0 tests=BAYES_00,DKIM_VALID"
    message["Subject"] = f"Überblick {line(number)}"
    message["From"], message["To"] = "Ann Onym <ann@example.com>", "some@example.org"
    message["Date"] = "Thu, 12 Mar 2026 10:00:00 +0000"
    marked = "".join(f'<p class="MsoNormal" style="margin:0cm"><span lang="EN">{text} – ok&nbsp;</span></p>' for text in said)
    style = "".join(f"p.Mso{part} {{mso-style-priority:{part}; margin:0cm}}\n" for part in range(20))
    marked = f"<html><head><style>\n{style}</style></head><body>{marked}</body></html>"
    if number % 2:
        message.set_content(marked, subtype="html", cte="base64")
    else:
        signature = base64.encodebytes(blob(number, 400)).decode()
        signature = f"-----BEGIN PGP SIGNATURE-----\n\n{signature}-----END PGP SIGNATURE-----\n"
        message.set_content("\n\n".join(f"{text} – ok" for text in said) + f"\n\n{signature}", cte="quoted-printable")
        message.add_alternative(marked, subtype="html", cte="quoted-printable")
    message.add_attachment(blob(number + 1, 20_000), maintype="image", subtype="png", filename="chart.png")
    return bytes(message), said


def mailbox(size):
    letters, said = [], []
    for number in range(4):
        message, texts = letter(number, size // 4 + 1)
        letters.append(b"From ann@example.com Thu Mar 12 10:00:00 2026\n" + message.rstrip() + b"\n\n")
        said += texts
    return b"".join(letters), said


def paper(size):
    """RTF with the font, style and list tables of a word processor, a picture, and the text in runs."""
    fonts = "".join(f"{{\\f{number}\\fswiss\\fcharset0\\fprq2{{\\*\\panose 020b0604020202020204}}Font {number};}}" for number in range(20))
    colours = "".join(f"\\red{number}\\green{number}\\blue{number};" for number in range(20))
    styles = "".join(f"{{\\s{number}\\ql\\li0\\ri0\\sb240\\widctlpar heading {number};}}" for number in range(1, 5))
    latent = "".join(f"\\lsdpriority{number} \\lsdlocked0 Some Style {number};" for number in range(60))
    lists = "".join(f"{{\\list\\listtemplateid{number}{{\\listlevel\\levelnfc0\\levelstartat1{{\\leveltext\\'02\\'00.;}}}}\\listid{number}}}" for number in range(8))
    out = [
        f"{{\\rtf1\\ansi\\ansicpg1252\\deff0{{\\fonttbl{fonts}}}{{\\colortbl;{colours}}}{{\\stylesheet{styles}}}\n"
        f"{{\\*\\latentstyles\\lsdstimax376{{\\lsdlockedexcept {latent}}}}}{{\\*\\listtable{lists}}}{{\\*\\rsidtbl \\rsid1 \\rsid2}}\n"
        f"{{\\*\\generator Some Writer;}}{{\\*\\themedata {blob(3, 600).hex()}}}\\paperw12240\\margl1800\\pard\\plain "
    ]
    said = []
    for number in range(size):
        if number % 8 == 0:
            out.append(f"\\pard\\plain\\s1\\sb240\\b\\fs32 {line(number)}\\par\n")
            said.append(line(number))
        if number % 10 == 0:
            out.append(f"{{\\*\\shppict{{\\pict\\picw100\\pngblip\n{blob(number, 1500).hex()}}}}}\n")
        words = line(number + 1).split()
        runs = "".join(f"{{\\rtlch\\fcs1 \\af0 \\ltrch\\fcs0 \\insrsid{number} {word} }}" for word in words)
        out.append(f"\\pard\\plain\\sa120\\f1\\fs22\\lang1033 {runs}\\'e9t\\'e9 \\u8211\\'96 {{\\b {line(number + 2)}}}.\\par\n")
        said += [line(number + 1), "été", line(number + 2)]
        if number % 7 == 0:
            cells = f"\\pard\\intbl {line(number + 3)}\\cell\\pard\\intbl {number} metres\\cell\\row\n"
            out.append(f"\\trowd\\trgaph108\\clbrdrt\\brdrs\\cellx4000\\cellx8000{cells}")
            said += [line(number + 3), f"{number} metres"]
    return ("".join(out) + "}").encode("ascii"), said


def article(size):
    """DocBook with attributes, remarks, instructions and a picture in it."""
    said, body = [], []
    for number in range(size):
        body.append(f'<section xml:id="sec-{number}" role="topic" revision="{number}"><title>{line(number)}</title>')
        body.append(f'<para role="body" xml:lang="en"><emphasis role="strong">{line(number + 1)}</emphasis> &amp; {line(number + 2)}'
                    f'<footnote><para>{line(number + 3)}</para></footnote>.</para>')
        body.append(f"<!-- reviewed {number} --><?hard-pagebreak?><programlisting><![CDATA[if x{number} < 3: stop]]></programlisting>")
        if number % 9 == 0:
            picture = base64.b64encode(blob(number, 900)).decode()
            body.append(f'<mediaobject><imageobject><imagedata format="PNG"><![CDATA[{picture}]]></imagedata></imageobject></mediaobject>')
        body.append("</section>\n")
        said += [line(number), line(number + 1), line(number + 2), line(number + 3), f"if x{number} 3 stop"]
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<?xml-stylesheet href="book.css"?>\n'
    return f'{head}<article xmlns="http://docbook.org/ns/docbook" version="5.1">\n{"".join(body)}</article>\n'.encode(), said


def notebook(size):
    """Cells with HTML in their text and outputs in several forms, among them pictures."""
    cells, said = [], []
    for number in range(size):
        text = line(number)
        cells.append({"cell_type": "markdown", "id": f"m{number}", "metadata": {"tags": []}, "source": [f"## {text}\n", "\n", f'{line(number + 1)}<br/><font color="red">{line(number + 4)}</font>']})
        frame = f'<div><style scoped>.dataframe tbody tr th {{ vertical-align: top; }}</style><table border="1" class="dataframe"><td>{number}</td></table></div>'
        outputs = [
            {"output_type": "stream", "name": "stdout", "text": [f"\u001b[31m{line(number + 3)}\u001b[0m\n"]},
            {"output_type": "display_data", "metadata": {}, "data": {"text/plain": ["<Figure size 640x480 with 1 Axes>"], "image/png": base64.b64encode(blob(number, 2000)).decode()}},
            {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": {"text/plain": [f"station {number}"], "text/html": [frame]}},
        ]
        source = [f"# {line(number + 2)}\n", f"count_{number}()"]
        cells.append({"cell_type": "code", "id": f"c{number}", "metadata": {"scrolled": False}, "execution_count": number, "source": source, "outputs": outputs})
        said += [text, line(number + 1), line(number + 4), line(number + 2), line(number + 3), f"count_{number}", f"station {number}"]
    metadata = {"kernelspec": {"name": "python3", "language": "python"}, "language_info": {"name": "python", "version": "3.12.1"}}
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1).encode(), said


def records(size):
    """Nested records, each with a piece of a page and some with a picture in them."""
    said, rows = [], []
    for number in range(size):
        row = {"id": f"station-{number}", "note": f"{line(number)}\n{line(number + 1)}", "tags": line(number + 2).split()[:3], "place": {"name": "Łódź", "depth": number / 8}}
        row["page"] = f'<div class="entry"><p>{line(number + 3)}</p><p style="margin: 0">fish &amp; {line(number + 4)}</p></div>'
        if number % 6 == 0:
            row["thumbnail"] = base64.b64encode(blob(number, 900)).decode()
        rows.append(row)
        said += [f"station-{number}", line(number), line(number + 1), *row["tags"], "Łódź", f"{number / 8}", line(number + 3), "fish", line(number + 4)]
    return json.dumps({"source": line(0), "stations": rows}, indent=2).encode(), said + [line(0)]


KINDS = {
    "page.html": page,
    "letter.eml": lambda size: letter(1, size),
    "reply.eml": lambda size: letter(2, size),
    "box.mbox": mailbox,
    "paper.rtf": paper,
    "article.xml": article,
    "book.ipynb": notebook,
    "records.json": records,
}


if __name__ == "__main__":
    for name, kind in KINDS.items():
        written, said = kind(int(sys.argv[1]))
        (Path(sys.argv[2]) / name).write_bytes(written)
        (Path(sys.argv[2]) / f"{name}.words").write_text(html.unescape("\n".join(said)), encoding="utf-8")
