//! Documents as people read them: blocks by rules, what is above and beside them, and what refers to them.
use crate::{
    cli::svc,
    principals::{grant, someone},
    rollup::{one_sentence_each, three_subjects},
    support::{TestApp, document, left_out, repository, sample},
};
use serde_json::{Value, json};
use svc_client::{
    Client, FileUpload, Json, OptionalJson, Remote, Validated,
    wire::{
        BlockKind, ChildrenMode, Crumb, DocumentPath, DocumentResponse, ExpandRequest, GrantRight, NewConversation,
        NewDocument, NewLink, PageQuery, ReferenceKind, UploadQuery, ViewBlock, ViewResponse, WaitQuery,
    },
};

async fn view(client: &Client<Remote>, id: i64) -> ViewResponse {
    client.view_document(DocumentPath { id }).await.unwrap().value().unwrap()
}

/// A block in a line: what it is, and what it says.
fn line(block: &ViewBlock) -> String {
    let kind = serde_json::to_value(block.kind).unwrap();
    let what = [&block.title, &block.speaker, &block.text].into_iter().flatten().next();
    let level = block.level.map(|level| format!("{level} ")).unwrap_or_default();
    let first: String =
        what.map(|text| text.lines().next().unwrap_or_default().chars().take(48).collect()).unwrap_or_default();
    format!("{} {level}{first}", kind.as_str().unwrap()).trim_end().to_owned()
}

async fn id_of(app: &TestApp, root: i64, title: &str, usetype: &str) -> i64 {
    let nodes = app.subtree(root).await;
    nodes.iter().find(|node| node.title == title && node.usetype == usetype).unwrap_or_else(|| panic!("{title}")).id
}

#[tokio::test]
async fn a_file_is_read_from_top_to_bottom_with_its_headings_once() {
    let app = TestApp::start().await;
    let (id, _) = app.ingest(&sample("handbook.md")).await;
    let shown = view(&app.client, id).await;
    let lines: Vec<String> = shown.children.blocks.iter().map(line).collect();
    assert_eq!(
        lines[..9],
        [
            "heading 2 Operations handbook of the North Quay tide stati",
            "markdown This handbook is for everybody who keeps the Nor",
            "heading 3 What the station measures",
            "markdown The station records the height of the water once",
            "markdown | Instrument     | Quantity        | Interval |",
            "heading 4 Datum",
            "markdown All heights are given above the station datum, w",
            "heading 4 Clock",
            "markdown The logger takes its time from a satellite recei",
        ]
    );
    // A table is whole.
    let table = &shown.children.blocks[4];
    assert!(table.continued_by.is_empty(), "{table:?}");
    assert_eq!(table.html.as_ref().unwrap().matches("<tr>").count(), 5, "{table:?}");
    // Nothing of the file is lost, and nothing is shown twice.
    let file = std::fs::read_to_string(sample("handbook.md")).unwrap();
    let words = |text: &str| {
        text.split_whitespace().filter(|word| !word.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
    };
    let said: Vec<String> = shown
        .children
        .blocks
        .iter()
        .flat_map(|block| words(block.title.as_ref().or(block.text.as_ref()).map_or("", String::as_str)))
        .collect();
    assert_eq!(said, words(&file));
    // Page by page it is the same.
    let (mut cursor, mut paged, mut pages) = (None, Vec::new(), 0);
    loop {
        let request = ExpandRequest { cursor, limit: Some(7) };
        let page = app.client.expand_children(DocumentPath { id }, OptionalJson(Some(request))).await.unwrap();
        paged.extend(
            page.blocks
                .iter()
                .flat_map(|block| words(block.title.as_ref().or(block.text.as_ref()).map_or("", String::as_str))),
        );
        pages += 1;
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert_eq!((pages, paged.len()), (4, words(&file).len()));
    app.end().await;
}

#[tokio::test]
async fn a_passage_says_where_in_its_file_it_is() {
    let app = TestApp::start().await;
    let (pdf, _) = app.ingest(&sample("quarterly-review.pdf")).await;
    let shown = view(&app.client, id_of(&app, pdf, "Planting", "chunk").await).await;
    let above: Vec<_> = shown.breadcrumbs.iter().map(|crumb| crumb.title.as_deref().unwrap()).collect();
    assert_eq!(above, ["quarterly-review.pdf", "Planting"]);
    let source = shown.source.unwrap();
    assert_eq!((source.document_id, source.pages), (pdf, Some([2, 2])));
    assert_eq!(source.href, format!("/documents/{pdf}/bytes#page=2"));
    // The text of a PDF is no Markdown, and the heading that it begins with is the title of the page.
    assert_eq!((shown.blocks[0].kind, shown.blocks[0].page), (BlockKind::Plain, Some(2)));
    assert!(shown.blocks[0].text.as_ref().unwrap().starts_with("Volunteers planted"));
    assert_eq!(shown.next.unwrap().title.as_deref(), Some("Protection against deer"));

    let (slides, _) = app.ingest(&sample("spring-briefing.pptx")).await;
    let shown = view(&app.client, id_of(&app, slides, "Timetable & tides", "section").await).await;
    let lines: Vec<_> = shown.children.blocks.iter().map(|block| (line(block), block.slide)).collect();
    assert_eq!(
        lines[1..],
        [
            ("heading 2 Notes".to_owned(), Some(2)),
            ("markdown Hand out the tide tables before the break.".to_owned(), Some(2))
        ]
    );
    assert_eq!(shown.source.unwrap().slides, Some([2, 2]));

    let (book, _) = app.ingest(&sample("duck-counts.xlsx")).await;
    let shown = view(&app.client, id_of(&app, book, "Duck counts row 4", "record").await).await;
    assert_eq!(shown.source.unwrap().cells.as_deref(), Some("'Duck counts'!A4:F4"));
    let [record, neighbours] = &shown.blocks[..] else { panic!("{:?}", shown.blocks) };
    assert_eq!(record.columns, ["Seen on", "Place", "Adults", "Young", "Total", "Remarks"]);
    let places: Vec<_> =
        neighbours.rows.iter().map(|row| (row.cells.as_deref().unwrap(), row.values[2].clone())).collect();
    let expected = [("A2:F2", 14), ("A3:F3", 17), ("A4:F4", 9), ("A5:F5", 11), ("A6:F6", 32)];
    assert_eq!(
        places,
        expected
            .map(|(cells, adults)| (format!("'Duck counts'!{cells}"), json!(adults)))
            .iter()
            .map(|(cells, adults)| (cells.as_str(), adults.clone()))
            .collect::<Vec<_>>()
    );
    app.end().await;
}

/// Stores a file so that what is under each container is cut into segments wherever the subject changes.
async fn in_segments(app: &TestApp, name: &str, text: String, mut options: Value) -> i64 {
    options["rollup"] = json!({"max_children": 2, "min_segment": 1, "penalty": 0.01});
    let file = FileUpload::from_bytes(name, text, Some(options));
    let id = app.client.upload_file(UploadQuery::default(), file).await.unwrap().document_id;
    app.settled(id).await;
    id
}

#[tokio::test]
async fn a_row_has_its_neighbours_also_where_a_segment_ends() {
    let app = TestApp::start().await;
    let rows: String = three_subjects(3).lines().map(|line| format!("{line},seen\n")).collect();
    let rows = rows.replace(", ", " ");
    let file = in_segments(&app, "rows.csv", format!("What,How\n{rows}"), json!({})).await;
    let nodes = app.subtree(file).await;
    let rows: Vec<_> = nodes.iter().filter(|node| node.usetype == "record").collect();
    assert_eq!(rows.len(), 9);
    assert!(rows.windows(2).any(|pair| pair[0].parent_id != pair[1].parent_id), "{rows:?}");
    let id = |crumb: Option<Crumb>| crumb.and_then(|crumb| crumb.id);
    for (at, row) in rows.iter().enumerate() {
        let shown = view(&app.client, row.id).await;
        let [_, table] = &shown.blocks[..] else { panic!("{:?}", shown.blocks) };
        let near = &rows[at.saturating_sub(2)..(at + 3).min(rows.len())];
        assert_eq!(
            table.rows.iter().map(|row| row.document_id).collect::<Vec<_>>(),
            near.iter().map(|row| row.id).collect::<Vec<_>>()
        );
        assert_eq!(id(shown.next), rows.get(at + 1).map(|row| row.id));
        match at.checked_sub(1) {
            Some(before) => assert_eq!(id(shown.previous), Some(rows[before].id)),
            // The profile of the sheet is in no segment.
            None => assert_eq!(shown.previous.unwrap().usetype.as_deref(), Some("profile")),
        }
    }
    // What is in no segment stands before the first row or behind the last one.
    let profile = nodes.iter().find(|node| node.usetype == "profile").unwrap();
    let shown = view(&app.client, profile.id).await;
    assert_eq!((id(shown.previous), id(shown.next)), (None, Some(rows[0].id)));
    let note = app.create("Note", "Somebody counted these by hand.", profile.parent_id).await.id;
    assert_eq!(id(view(&app.client, note).await.previous), Some(rows[8].id));
    // A segment stands beside segments.
    let segment = |title: &str| nodes.iter().find(|node| node.title == title && node.usetype == "section").unwrap();
    let next = view(&app.client, segment("Segment 1").id).await.next.unwrap();
    assert_eq!(next.title.as_deref(), Some("Segment 2"));
    app.end().await;
}

#[tokio::test]
async fn a_wide_row_is_shown_whole_and_a_wide_table_says_that_it_has_more_columns() {
    let app = TestApp::start().await;
    let names: Vec<String> = (1..=150).rev().map(|number| format!("c{number:03}")).collect();
    let row = |row: i32| (0..150).map(|column| (row * 1000 + column).to_string()).collect::<Vec<_>>().join(",");
    let text = [names.join(",")].into_iter().chain((1..=5).map(row)).collect::<Vec<_>>().join("\n");
    let file = app.upload_bytes("wide.csv", text).await.unwrap().document_id;
    app.settled(file).await;
    let rows = app.subtree(file).await;
    let row = rows.iter().find(|node| node.usetype == "record").unwrap().id;
    let shown = view(&app.client, row).await;
    let [record, table] = &shown.blocks[..] else { panic!("{:?}", shown.blocks) };
    let values: Vec<Value> = (1000..1150).map(|value| json!(value)).collect();
    assert_eq!((&record.columns, &record.rows[0].values, record.cut), (&names, &values, false));
    assert_eq!((&table.columns[..], &table.rows[0].values[..], table.cut), (&names[..100], &values[..100], true));
    let page = app.raw("GET", &format!("/view/{row}")).header("accept", "text/html").send().await.unwrap();
    assert!(page.text().await.unwrap().contains("The rows have more columns"));
    app.end().await;
}

#[tokio::test]
async fn a_heading_is_shown_once_although_segments_follow_it() {
    let app = TestApp::start().await;
    let text = format!("# What was kept\n\n{}", three_subjects(3));
    let file = in_segments(&app, "kept.md", text, one_sentence_each()).await;
    let nodes = app.subtree(file).await;
    let section = nodes.iter().find(|node| node.title == "What was kept" && node.usetype == "section").unwrap();
    assert!(nodes.iter().any(|node| node.title == "Segment 1" && node.parent_id == Some(section.id)), "{nodes:?}");
    let lines: Vec<String> = view(&app.client, file).await.children.blocks.iter().map(line).collect();
    let kept: Vec<_> = lines.iter().filter(|line| line.contains("What was kept")).collect();
    assert_eq!(kept, ["heading 2 What was kept"], "{lines:?}");
    app.end().await;
}

#[tokio::test]
async fn a_conversation_is_turns_and_a_caller_s_document_lists_what_is_under_it() {
    let app = TestApp::start().await;
    let turns = json!({"turns": [{"speaker": "Ann", "text": "Where does the *heron* nest?", "role": "user", "time": "2024-05-01T10:00:00Z"}, {"speaker": "Ben", "text": "High in trees."}]});
    let new: NewConversation = serde_json::from_value(turns).unwrap();
    let made =
        app.client.create_conversation(WaitQuery { wait: true, ..WaitQuery::default() }, Json(new)).await.unwrap();
    let shown = view(&app.client, made.document_id).await;
    assert_eq!(
        shown.children.blocks.iter().map(line).collect::<Vec<_>>(),
        ["turn Ann", "markdown Where does the *heron* nest?", "turn Ben", "markdown High in trees."]
    );
    let first = &shown.children.blocks[0];
    assert_eq!((first.role.as_deref(), first.time), (Some("user"), "2024-05-01T10:00:00Z".parse().ok()));
    let page =
        app.raw("GET", &format!("/view/{}", made.document_id)).header("accept", "text/html").send().await.unwrap();
    let page = page.text().await.unwrap();
    assert!(page.contains("<small>2024-05-01 10:00:00 UTC</small>"), "{page}");

    let folder = app.create("Birds", "# Birds\n\nSee [[1]].\n\n<b>Bold</b>", None).await;
    let second = app.create("Swan", "x", Some(folder.id)).await;
    let new = NewDocument { parent_id: Some(folder.id), position: Some(0), ..document("Teal", "y") };
    let first = app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap();
    let shown = view(&app.client, folder.id).await;
    assert_eq!((shown.document.content.as_str(), shown.document.omitted.as_slice()), ("", &["content".to_owned()][..]));
    let html = shown.blocks[0].html.as_deref().unwrap();
    assert_eq!(
        html,
        "<p dir=\"auto\">See <a href=\"/view/1\" rel=\"noopener noreferrer nofollow\">1</a>.</p>\n<p dir=\"auto\">&lt;b&gt;Bold&lt;/b&gt;</p>\n"
    );
    assert_eq!(shown.children.mode, ChildrenMode::List);
    assert_eq!(shown.children.blocks.iter().map(|block| block.document_id).collect::<Vec<_>>(), [first.id, second.id]);
    assert_eq!(view(&app.client, second.id).await.previous.unwrap().id, Some(first.id));
    app.end().await;
}

#[tokio::test]
async fn a_view_has_a_version_that_changes_with_what_it_shows() {
    let app = TestApp::start().await;
    let folder = app.create("Birds", "x", None).await;
    let etag = async || {
        let answer = app.client.view_document(DocumentPath { id: folder.id }).await.unwrap();
        let Validated::Modified { etag, .. } = answer else { panic!("nothing was asked for") };
        etag
    };
    let first = etag().await;
    let again = app.raw("GET", &format!("/view/{}", folder.id)).header("if-none-match", &first).send().await.unwrap();
    assert_eq!(again.status(), 304);
    app.create("Swan", "y", Some(folder.id)).await;
    let second = etag().await;
    assert_ne!(first, second);
    let change = serde_json::from_value(json!({"title": "Folder"})).unwrap();
    app.client.update_presentation(path("markdown"), Json(change)).await.unwrap();
    assert_ne!(second, etag().await);
    app.end().await;
}

fn path(usetype: &str) -> svc_client::wire::PresentationPath {
    svc_client::wire::PresentationPath { usetype: usetype.to_owned() }
}

#[tokio::test]
async fn what_refers_to_a_document_is_listed_by_page_and_as_each_reader_may_see_it() {
    let app = TestApp::start().await;
    let reader = someone(&app, "reader").await;
    let target = app.create("Target", "x", None).await;
    let id = target.id;
    let mut sources = Vec::new();
    for number in 0..6 {
        let text = if number < 3 { format!("It is said in [[{id}]].") } else { format!("The number {id} alone.") };
        sources.push(app.create(&format!("Source {number}"), &text, None).await.id);
    }
    for source in &sources[..4] {
        let link: NewLink = serde_json::from_value(json!({"target_id": id, "link_type": "cites"})).unwrap();
        app.client.create_link(DocumentPath { id: *source }, Json(link)).await.unwrap();
    }
    let predicate = serde_json::from_value(json!({"name": "knows"})).unwrap();
    app.client.create_predicate(Json(predicate)).await.unwrap();
    for source in &sources[4..] {
        let fact = json!({"subject_id": source, "predicate": "knows", "object_id": id});
        app.client.assert_fact(Json(serde_json::from_value(fact).unwrap())).await.unwrap();
    }
    let all = async |client: &Client<Remote>, limit: u32| {
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let query = PageQuery { limit: Some(limit), cursor, ..PageQuery::default() };
            let page = client.list_back_references(DocumentPath { id }, query).await.unwrap();
            assert!(page.references.len() <= limit as usize);
            found.extend(page.references.into_iter().map(|one| (one.kind, one.document.id.unwrap(), one.relation)));
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => return found,
            }
        }
    };
    let mut expected: Vec<_> =
        sources[..4].iter().map(|id| (ReferenceKind::Link, *id, Some("cites".to_owned()))).collect();
    expected.extend(sources[4..].iter().map(|id| (ReferenceKind::Fact, *id, Some("default:knows".to_owned()))));
    expected.extend(sources[..3].iter().map(|id| (ReferenceKind::Text, *id, None)));
    for limit in [100, 1, 2, 3, 4, 5] {
        assert_eq!(all(&app.client, limit).await, expected, "by {limit}");
    }
    // A reader of the target and of some sources sees those alone.
    for shown in [id, sources[1], sources[5]] {
        grant(&app, &reader, shown, GrantRight::Read).await;
    }
    for source in [sources[0], sources[4]] {
        app.client.protect_document(DocumentPath { id: source }).await.unwrap();
    }
    let got = all(&reader.client, 2).await;
    assert!(got.iter().all(|(_, id, _)| ![sources[0], sources[4]].contains(id)), "{got:?}");
    assert!(got.contains(&(ReferenceKind::Link, sources[1], Some("cites".to_owned()))));
    assert!(got.contains(&(ReferenceKind::Fact, sources[5], Some("default:knows".to_owned()))));
    assert!(got.contains(&(ReferenceKind::Text, sources[1], None)));
    app.end().await;
}

#[tokio::test]
async fn hidden_documents_above_are_gaps_without_names() {
    let app = TestApp::start().await;
    let reader = someone(&app, "reader").await;
    let top = app
        .client
        .create_document(WaitQuery::default(), Json(NewDocument { private: true, ..document("Secret plans", "x") }))
        .await
        .unwrap();
    let below = app.create("Open part", "y", Some(top.id)).await;
    grant(&app, &reader, below.id, GrantRight::Read).await;
    let list = reader.client.list_breadcrumbs(DocumentPath { id: below.id }).await.unwrap();
    assert_eq!(json!(list.breadcrumbs), json!([{"id": null, "title": null, "usetype": null}]));
    let shown = serde_json::to_string(&view(&reader.client, below.id).await).unwrap();
    assert!(!shown.contains("Secret"), "{shown}");
    assert_eq!(reader.client.list_breadcrumbs(DocumentPath { id: top.id }).await.unwrap_err().status, 404);
    app.end().await;
}

/// Every file of the corpus, if that is here, can be viewed, and its first page says what its tree says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_corpus_file_says_is_in_its_view() {
    let folder = repository().join("../shared/corpus/docx");
    let Ok(files) = std::fs::read_dir(&folder) else {
        return left_out("views of real Word files");
    };
    let app = TestApp::start().await;
    let mut files: Vec<_> = files
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "docx"))
        .collect();
    files.sort();
    let mut seen = 0;
    for file in files.into_iter().take(4) {
        let Ok(uploaded) = app.upload(&file).await else { continue };
        app.settled(uploaded.document_id).await;
        let shown = view(&app.client, uploaded.document_id).await;
        let nodes: Vec<_> = app.subtree(uploaded.document_id).await.into_iter().take(100).collect();
        let ids: Vec<i64> = shown
            .children
            .blocks
            .iter()
            .flat_map(|block| [vec![block.document_id], block.continued_by.clone()].concat())
            .collect();
        for node in &nodes {
            assert!(ids.contains(&node.id), "{}: {} {}", file.display(), node.usetype, node.id);
        }
        seen += nodes.len();
    }
    assert!(seen > 0);
    app.end().await;
}

#[tokio::test]
async fn the_command_line_prints_what_a_page_shows() {
    let app = TestApp::start().await;
    let (id, _) = app.ingest(&sample("spring-briefing.pptx")).await;
    let section = id_of(&app, id, "Timetable & tides", "section").await;
    app.create("Note", &format!("As [[{section}]] says."), None).await;
    let print = async |arguments: &[&str]| String::from_utf8(svc(&app, arguments).await.stdout).unwrap();
    let shown = print(&["view", &section.to_string(), "--table"]).await;
    let expected = format!(
        "spring-briefing.pptx [{id}]\nTimetable & tides — Section {section}\nfrom spring-briefing.pptx [{id}], slide 2\n\nThe first boat leaves"
    );
    assert!(shown.starts_with(&expected), "{shown}");
    assert!(shown.contains("\n## Notes\n\nHand out the tide tables"), "{shown}");
    assert!(print(&["view", &section.to_string(), "--references", "--table"]).await.starts_with("text [[…]] Note ["));
    let lines = print(&["view", &id.to_string(), "--all"]).await;
    assert!(lines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    let folder = app.create("Shelf", "All of them.", None).await.id.to_string();
    for title in ["Heron", "Coot"] {
        app.create(title, "It waits.", Some(folder.parse().unwrap())).await;
    }
    for (mode, first) in [("list", true), ("collapsed", false)] {
        let change = serde_json::from_value(json!({"children": {"mode": mode, "limit": 1}})).unwrap();
        app.client.update_presentation(path("markdown"), Json(change)).await.unwrap();
        let some = print(&["view", &folder, "--table"]).await;
        assert!(
            some.contains("• Heron") == first && !some.contains("• Coot") && some.contains("--all shows it"),
            "{some}"
        );
        let all = print(&["view", &folder, "--table", "--all"]).await;
        assert!(all.contains("• Heron") && all.contains("• Coot") && !all.contains("--all"), "{all}");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_is_a_page_to_who_asks_for_one() {
    let app = TestApp::start().await;
    let (file, _) = app.ingest(&sample("quarterly-review.pdf")).await;
    let note = app.create("<b>Note</b>", "See [[1]] & <script>x</script>.", Some(file)).await.id;
    let page = app.raw("GET", &format!("/view/{file}")).header("accept", "text/html").send().await.unwrap();
    let header = |name: &str| page.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "text/html; charset=utf-8");
    assert!(header("content-security-policy").starts_with("default-src 'none'; img-src 'self'"), "{page:?}");
    let etag = header("etag");
    let text = page.text().await.unwrap();
    for part in [
        "<h1><bdi>quarterly-review.pdf</bdi></h1>",
        &format!("/documents/{file}/bytes#page=2\">page 2</a>"),
        "Planting",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let again = app.raw("GET", &format!("/view/{file}")).header("accept", "text/html").header("if-none-match", &etag);
    assert_eq!(again.send().await.unwrap().status(), 304);
    let asked = |accept: &'static str| app.raw("GET", &format!("/view/{note}")).header("accept", accept);
    let text = asked("text/html").send().await.unwrap().text().await.unwrap();
    assert!(
        text.contains("&lt;b&gt;Note") && !text.contains("<script>") && text.contains("href=\"/view/1\""),
        "{text}"
    );
    for accept in ["application/json", "*/*", "application/json, text/html;q=0.5"] {
        let answer = asked(accept).send().await.unwrap();
        assert_eq!(answer.headers()["content-type"], "application/json", "{accept}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_file_of_unknown_bytes_is_viewed_like_any_other() {
    let app = TestApp::start().await;
    let id = app.upload_bytes("noise.bin", (1..=255).collect::<Vec<u8>>().repeat(40)).await.unwrap().document_id;
    app.settled(id).await;
    let shown = view(&app.client, id).await;
    let source = shown.source.unwrap();
    assert_eq!((source.document_id, source.mime_type.as_str()), (id, "application/octet-stream"));
    let page = app.raw("GET", &format!("/view/{id}")).header("accept", "text/html").send().await.unwrap();
    assert_eq!(page.status(), 200);
    app.end().await;
}

#[tokio::test]
async fn a_view_is_in_the_order_of_reading_for_each_of_its_readers() {
    let app = TestApp::start().await;
    let make = async |title: &str, usetype: &str, parent_id: Option<i64>, position: Option<i32>| {
        let new = NewDocument {
            parent_id,
            position,
            usetype: Some(usetype.to_owned()),
            ..document(title, if usetype == "section" { "" } else { title })
        };
        app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id
    };
    let top = make("Top", "section", None, None).await;
    // The last section is made first, and so is the last of each pair.
    let mut sections = Vec::new();
    for number in (0..40).rev() {
        let section = make(&format!("S{number:02}"), "section", Some(top), Some(number)).await;
        for (part, position) in [(2, 7), (1, -7)] {
            make(&format!("S{number:02} P{part}"), "chunk", Some(section), Some(position)).await;
        }
        sections.push(section);
    }
    make("S99 last", "chunk", Some(top), None).await;
    let mut expected: Vec<String> =
        (0..40).flat_map(|number| ["", " P1", " P2"].map(|part| format!("S{number:02}{part}"))).collect();
    expected.push("S99 last".to_owned());
    // Blocks by what they say, page by page.
    let read = async |client: &Client<Remote>, limit: u32| {
        let (mut cursor, mut said) = (None, Vec::new());
        loop {
            let request = ExpandRequest { cursor, limit: Some(limit) };
            let page = client.expand_children(DocumentPath { id: top }, OptionalJson(Some(request))).await.unwrap();
            said.extend(page.blocks.iter().filter_map(|block| block.title.clone().or(block.text.clone())));
            cursor = page.next_cursor;
            if cursor.is_none() {
                return said;
            }
        }
    };
    for limit in [1, 7, 40, 121, 200] {
        assert_eq!(read(&app.client, limit).await, expected, "{limit} at a time");
    }
    let titles = |listed: Vec<DocumentResponse>| listed.into_iter().map(|listed| listed.title).collect::<Vec<_>>();
    assert_eq!(titles(app.subtree(top).await), expected, "a subtree is listed in the same order");
    let shown = view(&app.client, top).await;
    let first: Vec<_> = shown.children.blocks.iter().take(3).map(line).collect();
    assert_eq!(first, ["heading 2 S00", "markdown S00 P1", "markdown S00 P2"]);

    // What is closed is left out, and what is open to a reader under it is not.
    let reader = someone(&app, "reader").await;
    let closed = sections[38];
    let inside =
        app.client.list_children(DocumentPath { id: closed }, PageQuery::default()).await.unwrap().documents[1].id;
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    app.client.protect_document(DocumentPath { id: inside }).await.unwrap();
    let without =
        |gone: &[&str]| expected.iter().filter(|said| !gone.contains(&said.as_str())).cloned().collect::<Vec<_>>();
    for limit in [1, 200] {
        assert_eq!(read(&reader.client, limit).await, without(&["S01", "S01 P1", "S01 P2"]));
    }
    grant(&app, &reader, inside, GrantRight::Read).await;
    for limit in [1, 200] {
        assert_eq!(read(&reader.client, limit).await, without(&["S01", "S01 P1"]));
        let query = PageQuery { limit: Some(500), ..PageQuery::default() };
        let listed = reader.client.list_subtree(DocumentPath { id: top }, query).await.unwrap().documents;
        assert_eq!(titles(listed), without(&["S01", "S01 P1"]));
        assert_eq!(read(&app.client, limit).await, expected);
    }
    // A page goes on where it was, also if what it ended with has moved away.
    let request = ExpandRequest { cursor: None, limit: Some(5) };
    let page = app.client.expand_children(DocumentPath { id: top }, OptionalJson(Some(request))).await.unwrap();
    let last = page.blocks.last().unwrap().document_id;
    let change = serde_json::from_value(json!({"parent_id": null})).unwrap();
    app.client.update_document(DocumentPath { id: last }, WaitQuery::default(), Json(change)).await.unwrap();
    let request = ExpandRequest { cursor: page.next_cursor, limit: Some(2) };
    let page = app.client.expand_children(DocumentPath { id: top }, OptionalJson(Some(request))).await.unwrap();
    let said: Vec<_> = page.blocks.iter().filter_map(|block| block.title.clone().or(block.text.clone())).collect();
    assert_eq!(said, ["S01 P2", "S02"]);
    for cursor in ["x", "1.2.3", &"1.2.".repeat(2_000)] {
        let request = ExpandRequest { cursor: Some(cursor.to_owned()), limit: None };
        let refused =
            app.client.expand_children(DocumentPath { id: top }, OptionalJson(Some(request))).await.unwrap_err();
        assert_eq!(refused.members["field"], "cursor", "{cursor:.9}");
    }
    app.end().await;
}

#[tokio::test]
async fn summaries_stay_closed_on_a_page_that_begins_among_them() {
    let app = TestApp::start().await;
    let section = |n: usize| format!("# Heron {n}\n\nThe heron number {n} waits in the reeds for a fish.\n\n");
    let file = app.upload_bytes("herons.md", (0..30).map(section).collect::<String>()).await.unwrap().document_id;
    app.settled(file).await;
    let wait = WaitQuery { wait: true, ..WaitQuery::default() };
    let made = app.client.make_raptor(DocumentPath { id: file }, wait, OptionalJson(None)).await.unwrap();
    assert!(made.tree.is_some());
    let holder = app.subtree(file).await.into_iter().find(|node| node.usetype == "raptor").unwrap().id;
    let mut cursor = None;
    let mut shown = Vec::new();
    loop {
        let request = ExpandRequest { cursor, limit: Some(1) };
        let page = app.client.expand_children(DocumentPath { id: file }, OptionalJson(Some(request))).await.unwrap();
        assert!(!page.blocks.is_empty(), "{:?}", page.next_cursor);
        shown.extend(page.blocks);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    let summaries: Vec<i64> = app.subtree(holder).await.into_iter().map(|node| node.id).collect();
    assert!(!summaries.is_empty() && shown.iter().any(|block| block.document_id == holder));
    assert!(shown.iter().all(|block| !summaries.contains(&block.document_id)), "{shown:?}");
    app.end().await;
}
