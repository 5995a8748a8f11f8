//! The table of evidence: every name under which something is recorded about a node. docs/evidence.md is generated from
//! it.

macro_rules! evidence { ($(
    $(#[doc = $holds:literal])+ $name:ident = $text:literal, by $by:literal
        $(, null $null:literal)? $(, absent $absent:literal)? $(, of $format:literal)?;
)*) => {
    /// A name under which something is recorded about a node.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Evidence { $( $(#[doc = $holds])+ $name, )* }

    impl Evidence {
        /// Every name, in the order of the pipeline.
        pub const ALL: &[Evidence] = &[$( Evidence::$name ),*];
        /// The name as it is stored and shown.
        pub fn as_str(self) -> &'static str { match self { $( Evidence::$name => $text, )* } }
        /// What the value holds, in a sentence or two.
        #[cfg(test)]
        pub fn holds(self) -> &'static str { match self { $( Evidence::$name => concat!($($holds),+).trim_ascii(), )* } }
        /// Which tasks record it, or which request.
        #[cfg(test)]
        pub fn written_by(self) -> &'static str { match self { $( Evidence::$name => $by, )* } }
        /// What null means; `None` if the value is never null.
        #[cfg(test)]
        pub fn null_means(self) -> Option<&'static str> {
            match self { $( Evidence::$name => None$(.or(Some($null)))?, )* }
        }
        /// What it may mean that the name is absent, besides that nothing has run.
        #[cfg(test)]
        pub fn absent_means(self) -> Option<&'static str> {
            match self { $( Evidence::$name => None$(.or(Some($absent)))?, )* }
        }
        /// The only format whose readers find it; `None` if it does not come from a reader.
        pub(super) fn format(self) -> Option<&'static str> {
            match self { $( Evidence::$name => None$(.or(Some($format)))?, )* }
        }
    }
} }

evidence! {
    /// How the upload was recognised: `format`, `mime`, `by`, `declared_mime`, `byte_size`.
    Detected = "detected", by "`POST /ingest/file`, `POST /ingest`, `extract:members`",
        absent "the node is not a file";
    /// All options that the file was ingested with, defaults included.
    Options = "options", by "`POST /ingest/file`, `POST /ingest`, `POST /ingest/file/{id}/reprocess`, `extract:members`",
        absent "the node is not a file";
    /// The patterns that were measured with the password of a request; the password itself is stored nowhere.
    Unlocked = "unlocked", by "`POST /ingest/file`, `POST /ingest/file/{id}/reprocess`",
        absent "no request brought a password that opens the file";
    /// The `entry` through which the content came, and the `source` in the request: `content`, `turns`, `url` or `id`.
    Entry = "entry", by "`POST /ingest`",
        absent "the node is an uploaded file, or no file";
    /// The patterns of a text that the request itself made of the stored bytes: of a web page, of turns, or of a plain text.
    Prepared = "prepared", by "`POST /ingest`",
        absent "the tasks read the stored bytes";
    /// How the stored bytes were fetched: `url`, `final_url` after redirects, `status`, `media_type`, `etag`, `last_modified`,
    /// `fetched_at`, `bytes`. What the answer did not say is null.
    Fetched = "fetched", by "`POST /ingest`",
        absent "the bytes were not fetched";
    /// What a web page says of itself: `title`, `byline`, `site_name`, `lang`, `published_time`, as far as it does.
    Page = "page", by "`POST /ingest`",
        absent "the node is not a web page";
    /// What arXiv says of a paper: `id`, `title`, `authors`, `abstract`, `date`, `updated`, `doi`, as far as it does.
    Arxiv = "arxiv", by "`POST /ingest`",
        absent "the node is not a paper of arXiv";
    /// The turns of a conversation in their order, each with `speaker`, `time` if it was given, and `start`, the byte at
    /// which it begins.
    Turns = "turns", by "`POST /ingest`",
        absent "the node is not a conversation that came in turns";
    /// The measured patterns of the file, each true or false; of a workbook also `sheet_count`, a number.
    MatchedPatterns = "matched.patterns", by "`probe`",
        absent "the probe failed before it could measure them";
    /// The `format`, and for each of the `tasks` whether it was enqueued, deferred or does not apply, with the reason.
    Plan = "plan", by "`probe`",
        absent "the probe failed before it could decide";
    /// What a zip archive says it holds: the number of members, their sizes, and the first thousand of them.
    Archive = "archive", by "`probe`",
        null "the file is not a zip archive, its directory is lost, or a password opened its members",
        absent "the probe failed";
    /// Why the file has no text: `needs_ocr`, `ocr_skipped` (the option `skip.ocr` is on), `damaged` (pictures that OCR cannot unpack), `no_text_layer`, `no_sheets`, `no_members`, `no_reader` or `no_text`.
    ExtractEmpty = "extract.empty", by "`probe`, `extract:text`, `extract:images`, `ocr`, `structure:sheets`, `extract:members`",
        null "the file has text, sheets, members or charts",
        absent "the probe failed, or the text could not be extracted";
    /// Counts of the extracted text: `characters`, `headings`, `pages`, what declared the headings, and what the reader
    /// of the format counted.
    ExtractText = "extract.text", by "`extract:text`, `ocr`";
    /// Comments, each with author, date, text and place.
    DocxComments = "docx.comments", by "`extract:text`", null "there are none", absent "the file is not a docx, or has no text", of "docx";
    /// Footnotes, each with text and place.
    DocxFootnotes = "docx.footnotes", by "`extract:text`", null "there are none", absent "the file is not a docx, or has no text", of "docx";
    /// Endnotes, each with text and place.
    DocxEndnotes = "docx.endnotes", by "`extract:text`", null "there are none", absent "the file is not a docx, or has no text", of "docx";
    /// Tracked changes, each with what it did, author, date, text and place.
    DocxTrackedChanges = "docx.tracked_changes", by "`extract:text`", null "there are none", absent "the file is not a docx, or has no text", of "docx";
    /// Items of lists and numbered headings, each with level, number, label and place.
    DocxLists = "docx.lists", by "`extract:text`", null "there are none", absent "the file is not a docx, or has no text", of "docx";
    /// Comments on slides, each with slide, author, date and text.
    PptxComments = "pptx.comments", by "`extract:text`", null "there are none", absent "the file is not a pptx, or has no text", of "pptx";
    /// The numbers of the slides that the presentation hides.
    PptxHiddenSlides = "pptx.hidden_slides", by "`extract:text`", null "there are none", absent "the file is not a pptx, or has no text", of "pptx";
    /// The numbers of the slides that the presentation names and the package lacks.
    PptxMissingSlides = "pptx.missing_slides", by "`extract:text`", null "there are none", absent "the file is not a pptx, or has no text", of "pptx";
    /// The numbers of the slides without text.
    PptxSlidesWithoutText = "pptx.slides_without_text", by "`extract:text`", null "there are none", absent "the file is not a pptx, or has no text", of "pptx";
    /// The pages with images, each with their number and how much of the page they cover.
    PageImages = "page_images", by "`extract:text`, `ocr`", null "there are none", absent "the file is not a PDF, or nobody read its text", of "pdf";
    /// The numbers of the pages that are scans.
    ScannedPages = "scanned_pages", by "`extract:text`, `ocr`", null "there are none", absent "the file is not a PDF, or nobody read its text", of "pdf";
    /// The numbers of the pages that are no scans and whose fonts do not say which characters they show, so that only OCR can read them.
    UnusablePages = "unusable_pages", by "`extract:text`, `ocr`", null "there are none", absent "the file is not a PDF, or nobody read its text", of "pdf";
    /// How scanned pages, and those whose fonts cannot be read, were read: the `engine` and its `languages`, the numbers of `pages` and `words`, the mean `confidence` of the words, 0 to 100, how many
    /// words have less than 60 (`low_confidence`), and the same for the first thousand pages (`by_page`), each with the resolution of its picture and why it was read: `scan`, `unknown_glyphs`, or `picture` of a file that is one, whose resolution is null.
    Ocr = "ocr", by "`ocr`", absent "the file has no such pages, or no OCR engine was configured";
    /// The words of the pages that were read so, each with its text, the left and the top of its box, its width and height in points (of a file that is a picture, in pixels), and its confidence; and how
    /// many are `left_out` for lack of room.
    OcrWords = "ocr.words", by "`ocr`", null "there are no words", absent "the file has no such pages, or no OCR engine was configured";
    /// How many of the pages that only OCR can read have no text, by the reason, and the numbers of the first hundred: `ocr_pages` (SVC_OCR_PAGES), `text_bytes`, what the OCR
    /// engine did (`ocr_engine_timeout`, `ocr_engine_crashed`, `ocr_engine_output`, `ocr_engine_nonsense`), or why the page could not be drawn (`wall_time`,
    /// `memory`, `encrypted` and others). Of a file that is a picture also `ocr_pixels` (SVC_OCR_PIXELS), `image_bytes` (SVC_PARSER_IMAGE_BYTES), `damaged` (its size is unknown, or the engine cannot unpack it), and `cut` (the file ends within it: what is there was read, and counts as text). `not_probed`: the probe, which looks at 32 pages, saw none of them. `ocr_skipped`: the option `skip.ocr` is on.
    /// `no_ocr_engine`: none is configured (SVC_OCR_ENGINE).
    OcrLeftOut = "ocr.left_out", by "`ocr`, `extract:text`", null "every such page was read",
        absent "the file has no such pages, or no other text and no OCR engine was configured";
    /// The attachments of the message and of those within it, each with name, type and bytes.
    EmlAttachments = "eml.attachments", by "`extract:text`", null "there are none", absent "the file is not an e-mail, or has no text", of "eml";
    /// The attachments of the message of Outlook and of those within it, each with name, type and bytes.
    MsgAttachments = "msg.attachments", by "`extract:text`", null "there are none", absent "the file is not a message of Outlook, or has no text", of "msg";
    /// The tables of the text: how many there are, their `rows` and `cells`, by which `rules` they were found (`lines` drawn between their cells, `alignment`
    /// of their cells, `markdown`), the `first` hundred of them, and how many are `left_out` and stay text, by the `reasons`: `rows`, `columns`, `bytes`
    /// or `tables` (too many), or `heading` (a section begins within).
    ExtractTables = "extract.tables", by "`extract:tables`", null "none was found", absent "the probe saw no table, or the option `skip.tables` is on";
    /// What the nodes under the file were made of: the `rule`, the numbers of `sections`, `chunks` and `tables`, and what declared
    /// the sections.
    Structure = "structure", by "`structure:declared`, `structure:inferred`",
        absent "the file has no text, or is a workbook";
    /// The shape of a workbook: its date epoch, its worksheets, the other sheets, and its defined names.
    StructureSheets = "structure.sheets", by "`structure:sheets`",
        absent "the file is not a workbook";
    /// The files within the file that became file nodes (`members`), those that have the bytes of an earlier one and no node of their own (`same`, each
    /// with `name` and `as`), and how many were `left_out`.
    Members = "members", by "`extract:members`",
        absent "the file is no archive and no message with attachments";
    /// How many files within the file were not read, by the reason, and the first hundred of them, each with `name` and `reason`: `encrypted`, `compression`
    /// (of another method), `damaged`, `overlap` (with another), `link`, `zip_ratio`, `input_bytes`, `members`, `member_bytes`, `object` (of a program, no file),
    /// or `member_depth`; of an archive that its password opened also the code of the error with which a member's reader ended, or of the limit.
    MembersLeftOut = "members.left_out", by "`extract:members`, `extract:text`",
        absent "every file within the file was read, or there is none";
    /// The pictures of the file that became nodes (`images`), those that have the bytes of an earlier one and no node of their own (`same`, each with
    /// `name` and `as`), the `charts` that became tables, and how many pictures and charts were `left_out`.
    Images = "images", by "`extract:images`",
        absent "the file has no pictures and no charts, they could not be read, or the option `skip.images` is on";
    /// How many pictures and charts of the file have no node, by the reason, and the first hundred of them, each with `name` and `reason`: `images` and
    /// `image_bytes` (over the limits), `pixels` (too many), `small` (a side below 16), `kind` (unknown bytes), `compression`, `colors`, `mask` (a stencil),
    /// `whole_page` (a scan or a background), `missing`, `damaged`, `zip_ratio`, `unreadable_page`, or `encrypted` (the whole file); of charts also `charts`,
    /// `rows`, `columns`, `levels` and `bytes` (too many), `xml_depth` and `unpacked_bytes` (over the limits), and `values` (the file keeps none).
    ImagesLeftOut = "images.left_out", by "`extract:images`",
        null "every picture and every chart has a node",
        absent "the file has no pictures and no charts, they could not be read, or the option `skip.images` is on";
    /// Which sheet of its workbook the node is: index, name, kind, and whether it is hidden.
    Sheet = "sheet", by "`structure:sheets`",
        absent "the node is not a sheet";
    /// The used range of the sheet, its columns with types and examples, merged cells, comments, and whether its first
    /// row is a header.
    ProfileSheet = "profile.sheet", by "`profile:sheet`",
        absent "the node is not a sheet";
    /// The number of records that the sheet gave, how many were cut into pieces, and whether and why its first row is a
    /// header. If it is none, the `tables` that were found (range, rows of the header, columns, titles, the row of totals, columns whose names were
    /// made up), the `others`, blocks of cells without a header and why, and how many `chunks` hold what is in no record.
    ExtractSheet = "extract.sheet", by "`extract:sheet`",
        absent "the node is not a sheet";
    /// Of a text that is longer than the model's window, the number of `windows` whose weighted sum is its vector, its `tokens`, and how many
    /// at its end are `left_out` if it is too long even for that. How many of the `titles` above a chunk it was embedded with. If the node has no
    /// vector, the reason: `skipped` is `text_too_long`, `no_direction`, `unknown_tokens` or `runner_refuses`, or after a move to another model
    /// `nothing_under_it`, with figures and the remedy.
    Embed = "embed", by "`embed`, `embed:titles`, `reembed`, `raptor`, `POST /documents/{id}/embed`",
        absent "the node has its vector, of its text alone and one window";
    /// How many leaves of the file have no vector, by the reason: `text_too_long`, `no_direction`, `unknown_tokens` or `runner_refuses`.
    WithoutVector = "without_vector", by "`embed`, `embed:titles`",
        absent "every leaf that was embedded has its vector";
    /// The number of `children` of a container with too many of them, and of the `segments` that they were cut into where
    /// the subject changes, from the lowest level up.
    StructureSemantic = "structure.semantic", by "`structure:semantic`, `POST /documents/{id}/segment`",
        null "the subject does not change, so the children stayed where they are",
        absent "the node has no more than `rollup.max_children` children, or no caller asked for segments";
    /// What stands for the text of a container: `method`, `source_children`, `tokens` of the text under it, `window`, `characters`. Of an `llm_summary` also the
    /// `text`, or `text_removed` if a part of it was changed, moved or closed to some since; `truncated_at`, the character at which a summary that
    /// was too long was cut; and `left_out`, the characters of summaries of parts for which there was no room.
    EffectiveContent = "effective_content", by "`summarize`, `summarize:llm`, the settling of the node",
        null "the text does not fit the window and no language model has summarized it, or nothing settled under the node", absent "the node is not a container";
    /// How many children failed, what the container's vector is made of (`embedding`), how many children lack a vector
    /// (`children_without_vector`) or that all do, why the text under it was not concatenated, and why no language model summarized it.
    Rollup = "rollup", by "`summarize`, `summarize:llm`, `embed:titles`, `reembed`, `POST /documents/{id}/embed`, the settling of the node",
        absent "the node is not a container, or there is nothing under it";
    /// What the summary of a container took: the `model`, the `prompt`'s version, `calls`, how many of them an earlier attempt had made (`kept_calls`), how many answers came by batches (`batched_calls`),
    /// `prompt_tokens`, `completion_tokens` and `milliseconds`. Where the summaries below fit the window together, there are no calls.
    LlmSummarize = "llm.summarize", by "`summarize:llm`, `raptor`",
        absent "no language model has summarized the node";
    /// The facts that a language model found in the text: their ids (`facts`), how many were `created`, how many were `dropped` by the reason, the
    /// `entities` that were made, the ids of `merges`, the facts that were `superseded`, and how many were `closed` because the text no longer states them;
    /// the first facts that a bound shape `refused`, each with the reason, and its `warnings`; `truncated` if an answer was cut off; with the `model`, the `prompt`'s version, `calls`, `kept_calls`, `batched_calls`, `prompt_tokens`,
    /// `completion_tokens` and `milliseconds`.
    Facts = "facts", by "`extract:facts`",
        absent "nobody had facts extracted from the text";
    /// The facts that would be written (`would`), and the rest as in `facts`.
    FactsDryRun = "facts.dry_run", by "`extract:facts` with `dry_run`",
        absent "nobody asked what an extraction would write";
    /// How many nodes under the settled file failed, how many tasks failed for which reason, and the ids of the first failed `parts`, such as
    /// sheets.
    FailedParts = "failed_parts", by "the settling of the file",
        absent "no part of the file failed";
    /// When the ingestion was cancelled, and how many nodes and tasks that ended.
    Cancelled = "cancelled", by "`POST /ingest/file/{id}/cancel`",
        absent "nobody cancelled it";
    /// How the last reprocess of the file ended: `state` is `done`, `failed` or `cancelled`, with the `options` and the times. When it is
    /// done, how many links follow to the new tree (`links_followed`), those that lead to nothing in it (`links_lost`, the first hundred
    /// in `lost`), the same of facts (`facts_followed`, `facts_lost`, the first hundred in `lost_facts`), of shape bindings
    /// (`bindings_followed`, `bindings_lost`, the first hundred in `lost_bindings`) and of merges (`merges_followed`, `merges_lost`, the
    /// first hundred in `lost_merges`), how many documents of callers moved (`documents_moved`), and how many texts are gone of which facts were still to be extracted (`extractions_lost`); else the `reason`.
    Reprocess = "reprocess", by "the end of a reprocess",
        absent "the file was never reprocessed";
    /// The tree of summaries that the node holds: how it was made, of how many `leaves`, and its `levels`.
    Raptor = "raptor", by "`raptor`",
        absent "the node does not hold such a tree";
    /// How the summary was made: its `level`, the number of its `members`, its `tokens`, and the `method`: `concatenated`,
    /// `extracted` or `llm_summary`; `not_written` is why a language model that was asked did not write it.
    Summary = "summary", by "`raptor`",
        absent "no task made the node as a summary";
    /// What a template was before its changes, oldest first: its `title`, `content` and `structured_content`, with `changed_by` and `changed_at`. Of
    /// more than 4 MiB the oldest are left out.
    Versions = "versions", by "`PATCH /templates/{id}`, `PATCH /documents/{id}`",
        absent "nobody changed it, or it is no template";
    /// What made the node: `upload`, a task, `split`, `chunk` or `segment` by the operation of this name, or `asserted` if a caller created it.
    Rule = "rule", by "what makes the node";
    /// Where the node comes from in its file, or in the document that it was cut from (`source`): pages, slides, cells or characters, and the `boxes` on its
    /// pages if OCR read it, each with its `page`, its `left` and `top`, and its `width` and `height` in points (of a file that is a picture, in pixels).
    Anchor = "anchor", by "what makes the node",
        absent "the node is not a part of another";
    /// The last thousand attempts at the node's tasks, oldest first, each with its outcome, error and duration.
    Attempts = "attempts", by "every task";
}

impl Evidence {
    /// What those who read a file should know of it.
    pub const WARNINGS: [Evidence; 5] = [
        Evidence::ExtractEmpty,
        Evidence::OcrLeftOut,
        Evidence::MembersLeftOut,
        Evidence::FailedParts,
        Evidence::WithoutVector,
    ];

    /// What requests recorded about a file. The tasks of a reprocess cannot find it out again.
    pub const OF_REQUESTS: [Evidence; 8] = [
        Evidence::Detected,
        Evidence::Unlocked,
        Evidence::Entry,
        Evidence::Prepared,
        Evidence::Fetched,
        Evidence::Page,
        Evidence::Arxiv,
        Evidence::Turns,
    ];

    /// What readers look for in files of a format, besides the text.
    pub fn of_format(format: &str) -> impl Iterator<Item = Evidence> {
        Evidence::ALL.iter().copied().filter(move |evidence| evidence.format() == Some(format))
    }
}
