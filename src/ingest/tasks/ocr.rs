//! ocr: the text of scanned pages, and of pages whose fonts cannot be read. A reader draws each, and the engine reads it; what
//! they cannot do is left out with its reason, and the other pages have their text. A file that is a picture goes to the engine as
//! it is.
use super::{Apply, OrTaskFailure, REFUSED, extract, probe::stored_file, types::NO_ENGINE};
use crate::{
    ingest::Tools,
    ocr::{Engine, EngineError, Line, Recognised},
    reader::limits,
    spool::StoredFile,
    store::{self, evidence::Evidence},
};
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
};
use svc_actors::{ErrorClass, Meter, Outcome, TaskFailure};
use svc_formats::{
    Area, Extraction, Format, FormatError, PictureSize, ReadLine, ReadPage,
    isolated::{Answer, Request, Step},
};
use svc_ids::DocumentId;

/// The lists of pages that only OCR can read, and why they are read so, as the evidence says it.
pub(super) const UNREAD: [(Evidence, &str); 2] =
    [(Evidence::ScannedPages, "scan"), (Evidence::UnusablePages, "unknown_glyphs")];
/// Why a file that is a picture is read.
const PICTURE: &str = "picture";
/// After as many faults of the engine in a row, the pages that are left are not tried.
const MOST_FAULTS: usize = 3;
/// The most bytes of the words and their places in the evidence, and the most pages that are listed one by one.
const WORDS_BYTES: usize = 256 << 10;
const LISTED_PAGES: usize = 1_000;
/// The most lines of a file whose places are kept, so that chunks know where they stand: those of a thousand pages.
const LINES: usize = 50_000;
/// Of words of which the engine is less sure, a good part is wrong.
const LOW_CONFIDENCE: f32 = 60.0;
/// The reason for a picture that the engine cannot unpack, and the one for a picture of which the file lacks a part, so that its text is incomplete.
const DAMAGED: &str = "damaged";
const CUT: &str = "cut";
/// How many pages that were left out are named.
const NAMED_PAGES: usize = 100;
/// Points in an inch, in which places on a page are counted.
const POINTS: f64 = 72.0;

pub async fn run(tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let id = apply.grant.document_id;
    let lacks = || TaskFailure { retry_after: Some(REFUSED), ..TaskFailure::away("no_ocr_engine", NO_ENGINE) };
    let engine = tools.ocr.clone().ok_or_else(lacks)?;
    let (format, mut extraction, usage) = extract::read(tools, id, &apply.meter).await?;
    let known = known(tools, id).await?;
    let pictures = Pictures::of(format, &mut extraction);
    let wanted = match &pictures {
        Pictures::Drawn => wanted(&extraction, known.as_ref()),
        Pictures::Stored { sizes, .. } => (1..).zip(sizes).map(|(number, _)| (number, PICTURE)).collect(),
    };
    let read = read_pages(tools, &engine, id, &pictures, &wanted, &apply.meter).await?;
    // Archives and messages are full of pictures, and one that the engine cannot unpack says nothing against them.
    let needs_text = matches!(pictures, Pictures::Drawn) && extraction.text.trim().is_empty();
    if let Some(fault) = read.fault.as_ref().filter(|_| read.pages.is_empty() && needs_text) {
        return Err(of_engine(fault));
    }
    let evidence = read.evidence(&engine);
    let Pages { pages, boxes, left_out, .. } = read;
    let mut extraction = extraction.with_read_pages(pages);
    extraction.facts.remove("empty");
    let extract::Facts { mut summary, mut found, mut detail } = extract::facts(&mut extraction, format, usage);
    if let Some(Known { summary: before, .. }) = known {
        // What the reader found is recorded already, and of it only the text is another now.
        summary = before.into_iter().chain(summary).collect();
        found.clear();
    }
    let empty = extraction.text.trim().is_empty();
    let empty = empty.then(|| left_out.why_empty());
    detail.insert("pages".to_owned(), evidence["pages"].clone());
    detail.insert("words".to_owned(), evidence["words"].clone());
    let (text, layout) = extract::split(extraction).classified()?;

    let mut tx = apply.begin().await?;
    store::evidence::store_extraction(tx.conn(), id, &text, &layout).await.classified()?;
    let mut recorded = vec![
        (Evidence::ExtractText, Value::Object(summary)),
        (Evidence::ExtractEmpty, json!(empty)),
        (Evidence::Ocr, evidence),
        (Evidence::OcrWords, boxes.into_value()),
        (Evidence::OcrLeftOut, left_out.into_value()),
    ];
    recorded.extend(found);
    for (name, value) in &recorded {
        store::evidence::record(tx.conn(), id, *name, value).await.classified()?;
    }
    tx.complete(detail).await
}

/// Where the pictures come from that are read.
enum Pictures {
    /// A reader draws the pages.
    Drawn,
    /// The file has pictures of these sizes, as far as their headers tell them; it ends within the pictures of these numbers.
    Stored { sizes: Vec<Option<PictureSize>>, cut: BTreeSet<u32> },
}

impl Pictures {
    fn is_cut(&self, number: u32) -> bool {
        matches!(self, Pictures::Stored { cut, .. } if cut.contains(&number))
    }

    /// Takes the sizes out of the facts, because nobody else needs them.
    fn of(format: Format, extraction: &mut Extraction) -> Pictures {
        if format != Format::Image {
            return Pictures::Drawn;
        }
        let sizes = extraction.facts.remove("sizes").unwrap_or_default();
        let size = |size: &Value| {
            let side = |index: usize| u32::try_from(size[index].as_u64()?).ok();
            // A place on it is told in its pixels.
            Some(PictureSize { width: side(0)?, height: side(1)?, dpi: POINTS })
        };
        let cut = extraction.facts.remove("cut").unwrap_or_default();
        let cut = cut.as_array().into_iter().flatten().filter_map(|number| u32::try_from(number.as_u64()?).ok());
        Pictures::Stored { sizes: sizes.as_array().into_iter().flatten().map(size).collect(), cut: cut.collect() }
    }
}

/// What extract:text has recorded of the file.
struct Known {
    summary: Map<String, Value>,
    /// Of each of [`UNREAD`], in this order.
    unread: Vec<Value>,
}

/// `None` if the file has no text layer, so that extract:text did not run.
async fn known(tools: &Tools, id: DocumentId) -> Result<Option<Known>, TaskFailure> {
    let mut conn = tools.pool.acquire().await.classified()?;
    let Some(Value::Object(summary)) =
        store::evidence::read_one(&mut conn, id, Evidence::ExtractText).await.classified()?
    else {
        return Ok(None);
    };
    let mut unread = Vec::new();
    for (evidence, _) in UNREAD {
        let pages = store::evidence::read_one(&mut conn, id, evidence).await.classified()?;
        unread.push(pages.unwrap_or_default());
    }
    Ok(Some(Known { summary, unread }))
}

/// The numbers of the pages to read, and why each is read.
fn wanted(extraction: &Extraction, known: Option<&Known>) -> BTreeMap<u32, &'static str> {
    let mut wanted = BTreeMap::new();
    for (index, (evidence, why)) in UNREAD.into_iter().enumerate() {
        let recorded = known.and_then(|known| known.unread.get(index));
        let listed = extraction.facts.get(evidence.as_str()).or(recorded).and_then(Value::as_array);
        let numbers = listed.into_iter().flatten().filter_map(|number| u32::try_from(number.as_u64()?).ok());
        wanted.extend(numbers.map(|number| (number, why)));
    }
    wanted
}

/// Reads the pages one by one. An engine that cannot be started says nothing about the file, so the task waits for it.
async fn read_pages(
    tools: &Tools,
    engine: &Engine,
    id: DocumentId,
    pictures: &Pictures,
    wanted: &BTreeMap<u32, &'static str>,
    meter: &Meter,
) -> Result<Pages, TaskFailure> {
    let file = stored_file(tools, id).await?;
    let mut pages = Pages::default();
    let (mut faults, mut room) = (0, tools.settings.parser_text_bytes);
    meter.set(0, wanted.len(), "pages");
    let mut at_once = match pictures {
        Pictures::Stored { sizes, .. } => read_all(tools, engine, &file, sizes, meter).await?,
        Pictures::Drawn => Vec::new(),
    }
    .into_iter();
    for (index, (&number, &why)) in wanted.iter().enumerate() {
        // What was read at once is done already.
        if at_once.as_slice().is_empty() {
            meter.set(index, wanted.len(), "pages");
        }
        let reason = if index >= tools.settings.ocr_pages {
            "ocr_pages"
        } else if faults >= MOST_FAULTS {
            pages.fault.as_ref().map_or("ocr_engine_crashed", EngineError::code)
        } else {
            let page = match (at_once.next(), pictures) {
                (Some((size, recognised)), _) => Page::Read(size, recognised),
                (None, Pictures::Drawn) => read_page(tools, engine, &file, number).await?,
                (None, Pictures::Stored { sizes, .. }) => read_file(tools, engine, &file, sizes, index).await?,
            };
            match page {
                Page::Read(size, recognised) => {
                    faults = 0;
                    match room.checked_sub(recognised.text.len() as u64) {
                        Some(left) => {
                            room = left;
                            pages.add(number, why, &size, recognised);
                            if !pictures.is_cut(number) {
                                continue;
                            }
                            CUT
                        }
                        None => "text_bytes",
                    }
                }
                Page::NotDrawn(reason) => reason,
                Page::NotRead(fault @ EngineError::Missing(_)) => return Err(of_engine(&fault)),
                Page::NotRead(fault) => {
                    tracing::warn!(page = number, error = %fault, "the OCR engine failed on a page");
                    faults += 1;
                    let reason = fault.code();
                    pages.fault = Some(fault);
                    reason
                }
            }
        };
        pages.left_out.add(number, reason);
    }
    Ok(pages)
}

/// What became of a page.
enum Page {
    Read(PictureSize, Recognised),
    /// There is no picture of it for the engine; the name of the limit or the error.
    NotDrawn(&'static str),
    NotRead(EngineError),
}

async fn read_page(tools: &Tools, engine: &Engine, file: &StoredFile, number: u32) -> Result<Page, TaskFailure> {
    let input = file.open().classified()?;
    let (size, pixels) = match draw(tools, engine, input, number).await {
        Ok(picture) => picture,
        Err(error) if error.is_permanent() => {
            tracing::info!(page = number, error = %error, "a page to be read could not be drawn");
            return Ok(Page::NotDrawn(error.limit().map_or(error.code(), |limit| limit.as_str())));
        }
        Err(error) => return Err(error).classified(),
    };
    Ok(match engine.recognise(&size, &pixels).await {
        Ok(recognised) => Page::Read(size, recognised),
        Err(fault) => Page::NotRead(fault),
    })
}

/// Has the engine read the pictures of a file with one start, as far as it comes. It does so only if all pictures keep to the limits,
/// because the engine would unpack the others too. If anything goes wrong, the caller has each read alone, so that the fault has its page.
async fn read_all(
    tools: &Tools,
    engine: &Engine,
    file: &StoredFile,
    sizes: &[Option<PictureSize>],
    meter: &Meter,
) -> Result<Vec<(PictureSize, Recognised)>, TaskFailure> {
    let most = engine.raster.pixels;
    let known: Vec<PictureSize> = sizes.iter().flatten().copied().filter(|size| size.pixels() <= most).collect();
    let input = file.open().classified()?;
    if known.len() < sizes.len()
        || !(2..=tools.settings.ocr_pages).contains(&known.len())
        || input.metadata().classified()?.len() > tools.settings.parser_image_bytes
    {
        return Ok(Vec::new());
    }
    // The number of the picture that begins is one more than that of those that are done.
    let begins = |number: u32| meter.set(number.saturating_sub(1) as usize, sizes.len(), "pages");
    match engine.recognise_all(&known, input, &begins).await {
        Ok(read) => Ok(known.into_iter().zip(read).collect()),
        Err(fault @ EngineError::Missing(_)) => Err(of_engine(&fault)),
        Err(fault) => {
            tracing::info!(error = %fault, "the OCR engine did not read all pictures of a file at once");
            Ok(Vec::new())
        }
    }
}

/// Has the engine read the picture at an index of a file, if its header keeps to the limits: nothing is unpacked before.
async fn read_file(
    tools: &Tools,
    engine: &Engine,
    file: &StoredFile,
    sizes: &[Option<PictureSize>],
    index: usize,
) -> Result<Page, TaskFailure> {
    let Some(size) = sizes.get(index).copied().flatten() else { return Ok(Page::NotDrawn(DAMAGED)) };
    if size.pixels() > engine.raster.pixels {
        return Ok(Page::NotDrawn("ocr_pixels"));
    }
    let input = file.open().classified()?;
    if input.metadata().classified()?.len() > tools.settings.parser_image_bytes {
        return Ok(Page::NotDrawn("image_bytes"));
    }
    let index = (sizes.len() > 1).then_some(index);
    Ok(match engine.recognise_file(&size, input, index).await {
        Ok(Some(recognised)) => Page::Read(size, recognised),
        // On a picture that it cannot unpack, the engine ends with an error or says nothing, and the next picture may be whole.
        Ok(None) => Page::NotDrawn(DAMAGED),
        Err(fault @ EngineError::Crashed { by_itself: true, .. }) => {
            tracing::info!(picture = index, error = %fault, "the OCR engine cannot read a picture");
            Page::NotDrawn(DAMAGED)
        }
        Err(fault) => Page::NotRead(fault),
    })
}

/// Has a reader draw a page.
async fn draw(tools: &Tools, engine: &Engine, input: File, page: u32) -> Result<(PictureSize, Vec<u8>), FormatError> {
    let mut limits = limits(&tools.settings);
    limits.cpu_time = limits.cpu_time.min(tools.settings.ocr_page_time);
    limits.wall_time = limits.wall_time.min(tools.settings.ocr_page_time);
    let request = Request::new(Step::Picture { page, raster: engine.raster }, limits);
    let mut reading = tools.reader.stream(input, &request)?;
    let (mut size, mut pixels) = (None, Vec::new());
    while let Some(answer) = reading.next().await? {
        match answer {
            Answer::Picture(drawn) => size = Some(drawn),
            Answer::Pixels(part) => pixels.extend(part),
            _ => return Err(FormatError::Crashed { reason: "it sent an answer of another kind".to_owned() }),
        }
    }
    // The engine is told the size, so it must be that of the pixels.
    match size {
        Some(size) if !pixels.is_empty() && size.pixels() == pixels.len() as u64 => Ok((size, pixels)),
        _ => Err(FormatError::Crashed { reason: "it sent a part of a picture".to_owned() }),
    }
}

/// The failure of a file of which the engine read nothing.
fn of_engine(fault: &EngineError) -> TaskFailure {
    let message = format!("the OCR engine gave nothing: {fault}");
    match fault {
        EngineError::Missing(_) => {
            TaskFailure { retry_after: Some(REFUSED), ..TaskFailure::away(fault.code(), message) }
        }
        EngineError::Timeout(_) => TaskFailure::new(ErrorClass::Timeout, fault.code(), message),
        EngineError::TooMuch | EngineError::Crashed { .. } | EngineError::Nonsense(_) => {
            TaskFailure::permanent(fault.code(), message)
        }
    }
}

/// What was read of a file's pages.
#[derive(Default)]
struct Pages {
    pages: BTreeMap<u32, ReadPage>,
    listed: Vec<Value>,
    boxes: Boxes,
    left_out: LeftOut,
    /// How many lines have a place.
    lines: usize,
    words: usize,
    low_confidence: usize,
    /// The sum of the words' confidences.
    confidence: f64,
    /// The last fault of the engine.
    fault: Option<EngineError>,
}

impl Pages {
    fn add(&mut self, number: u32, why: &str, size: &PictureSize, recognised: Recognised) {
        let Recognised { text, words, lines } = recognised;
        let confidence: f64 = words.iter().map(|word| f64::from(word.confidence)).sum();
        let low = words.iter().filter(|word| word.confidence < LOW_CONFIDENCE).count();
        if self.listed.len() < LISTED_PAGES {
            let mean = mean(confidence, words.len());
            let dpi = (why != PICTURE).then(|| size.dpi.round());
            self.listed.push(json!({
                "page": number, "why": why, "words": words.len(), "confidence": mean, "low_confidence": low, "dpi": dpi,
            }));
        }
        let lines: Vec<ReadLine> = match self.lines + lines.len() <= LINES {
            true => lines.iter().map(|line| placed(line, size)).collect(),
            false => Vec::new(),
        };
        self.lines += lines.len();
        self.words += words.len();
        self.low_confidence += low;
        self.confidence += confidence;
        self.boxes.add(number, size, &words);
        self.pages.insert(number, ReadPage { text, lines });
    }

    fn evidence(&self, engine: &Engine) -> Value {
        json!({
            "engine": engine.name(),
            "languages": engine.languages(),
            "pages": self.pages.len(),
            "words": self.words,
            "confidence": mean(self.confidence, self.words),
            "low_confidence": self.low_confidence,
            "by_page": self.listed,
        })
    }
}

/// A mean confidence with one decimal; null without words.
fn mean(sum: f64, count: usize) -> Option<f64> {
    (count > 0).then(|| (sum / count as f64 * 10.0).round() / 10.0)
}

/// A line with its place on its page.
fn placed(line: &Line, size: &PictureSize) -> ReadLine {
    let [left, top, width, height] = points(size, [line.left, line.top, line.width, line.height]);
    let area = Area { left, top, width, height };
    ReadLine { start: line.start, end: line.end, paragraph: line.paragraph, area }
}

/// Pixels of a picture as points of the page, with one decimal.
fn points<const N: usize>(size: &PictureSize, pixels: [u32; N]) -> [f64; N] {
    pixels.map(|pixels| (f64::from(pixels) / size.dpi * POINTS * 10.0).round() / 10.0)
}

/// The places of words on their pages, as many as there is room for.
#[derive(Default)]
struct Boxes {
    pages: Vec<Value>,
    bytes: usize,
    left_out: usize,
}

impl Boxes {
    /// Adds the words of a page, each with its place in points from the left and the top, and its confidence.
    fn add(&mut self, number: u32, size: &PictureSize, words: &[crate::ocr::Word]) {
        let mut kept = Vec::new();
        for (index, word) in words.iter().enumerate() {
            let [left, top, width, height] = points(size, [word.left, word.top, word.width, word.height]);
            let value = json!([word.text, left, top, width, height, word.confidence.round()]);
            let bytes = value.to_string().len() + 1;
            if self.bytes + bytes > WORDS_BYTES {
                self.left_out += words.len() - index;
                break;
            }
            self.bytes += bytes;
            kept.push(value);
        }
        if !kept.is_empty() {
            self.pages.push(json!({"page": number, "words": kept}));
        }
    }

    fn into_value(self) -> Value {
        if self.pages.is_empty() {
            return Value::Null;
        }
        json!({"pages": self.pages, "left_out": self.left_out})
    }
}

/// The pages that have no text because nobody read their pictures.
#[derive(Default)]
pub(super) struct LeftOut {
    pub count: usize,
    reasons: BTreeMap<&'static str, usize>,
    first: Vec<u32>,
}

impl LeftOut {
    pub(super) fn add(&mut self, number: u32, reason: &'static str) {
        self.count += 1;
        *self.reasons.entry(reason).or_default() += 1;
        if self.first.len() < NAMED_PAGES {
            self.first.push(number);
        }
    }

    /// Why a file has no text of which these pages were left out. No engine reads what is damaged.
    fn why_empty(&self) -> &'static str {
        if self.count == 0 {
            "no_text"
        } else if self.reasons.keys().all(|reason| [DAMAGED, CUT].contains(reason)) {
            DAMAGED
        } else {
            "needs_ocr"
        }
    }

    /// Null if there are none.
    pub(super) fn into_value(self) -> Value {
        if self.count == 0 {
            return Value::Null;
        }
        json!({"count": self.count, "reasons": self.reasons, "first": self.first})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ocr::Word;

    #[test]
    fn places_are_in_points_and_end_where_the_room_does() {
        let size = PictureSize { width: 2500, height: 3300, dpi: 300.0 };
        let word =
            |text: &str| Word { text: text.to_owned(), left: 300, top: 600, width: 150, height: 50, confidence: 95.6 };
        let mut boxes = Boxes::default();
        boxes.add(7, &size, &[word("heron")]);
        assert_eq!(boxes.pages, [json!({"page": 7, "words": [["heron", 72.0, 144.0, 36.0, 12.0, 96.0]]})]);
        boxes.add(8, &size, &vec![word("heron"); 20_000]);
        let value = boxes.into_value();
        assert!(value.to_string().len() < WORDS_BYTES + 1024);
        let kept: usize =
            value["pages"].as_array().unwrap().iter().map(|page| page["words"].as_array().unwrap().len()).sum();
        assert_eq!(value["left_out"].as_u64(), Some(20_001 - kept as u64));
        assert_eq!(Boxes::default().into_value(), Value::Null);
    }

    #[test]
    fn lines_have_places_as_long_as_there_is_room_and_unsure_words_are_counted() {
        let size = PictureSize { width: 2500, height: 3300, dpi: 300.0 };
        let word = |confidence| Word { text: "heron".to_owned(), left: 0, top: 0, width: 9, height: 9, confidence };
        let line = Line { start: 0, end: 5, paragraph: 0, left: 300, top: 600, width: 150, height: 50 };
        let read = |count: usize, words| Recognised { text: "heron".to_owned(), words, lines: vec![line; count] };
        let mut pages = Pages::default();
        pages.add(1, "scan", &size, read(1, vec![word(59.9), word(60.0), word(12.0)]));
        pages.add(2, "scan", &size, read(LINES, vec![word(95.0)]));
        pages.add(3, "scan", &size, read(LINES - 1, vec![word(30.0)]));
        let places: Vec<usize> = pages.pages.values().map(|page| page.lines.len()).collect();
        assert_eq!(places, [1, 0, LINES - 1], "all lines of a page or none");
        let area = Area { left: 72.0, top: 144.0, width: 36.0, height: 12.0 };
        assert_eq!(pages.pages[&1].lines[0], ReadLine { start: 0, end: 5, paragraph: 0, area });
        assert_eq!(pages.low_confidence, 3);
        assert_eq!(pages.listed[0]["low_confidence"], 2);
    }

    #[test]
    fn what_is_left_out_is_counted_by_its_reason_and_named_up_to_a_bound() {
        let mut left_out = LeftOut::default();
        assert_eq!(left_out.why_empty(), "no_text");
        for number in 1..=150 {
            left_out.add(number, if number == 1 { "damaged" } else { "ocr_pages" });
            assert_eq!(left_out.why_empty(), if number == 1 { "damaged" } else { "needs_ocr" });
        }
        let value = left_out.into_value();
        assert_eq!((&value["count"], &value["reasons"]), (&json!(150), &json!({"damaged": 1, "ocr_pages": 149})));
        assert_eq!(value["first"].as_array().unwrap().len(), NAMED_PAGES);
        assert_eq!(LeftOut::default().into_value(), Value::Null);
    }

    #[test]
    fn only_an_engine_that_is_away_or_slow_is_tried_again() {
        let class = |fault: EngineError| (of_engine(&fault).class, of_engine(&fault).counts);
        let crashed =
            EngineError::Crashed { status: "signal: 11".to_owned(), complaint: String::new(), by_itself: false };
        assert_eq!(class(EngineError::Missing("no such file".to_owned())), (ErrorClass::Retryable, false));
        assert_eq!(class(EngineError::Timeout(std::time::Duration::from_secs(60))), (ErrorClass::Timeout, true));
        for fault in [crashed, EngineError::TooMuch, EngineError::Nonsense("no columns".to_owned())] {
            assert_eq!(class(fault), (ErrorClass::Permanent, true));
        }
    }
}
