//! Charts of office files, as tables of the values that they keep: categories, or places on the axis across, in the first column, and
//! each series in a column of its own.
//!
//! Charts stand in parts of their own. A part is read once, and its table stands where the file first refers to it.

use crate::{
    FormatError, charset,
    markdown::{Block, Table, one_line},
    package::{Package, Relationship},
    tables::{CELL_BYTES, MOST_BYTES, MOST_BYTES_OF_ALL, MOST_COLUMNS, MOST_ROWS, MOST_TABLES, over},
    xlsx::{CachedNumbers, DateEpoch},
    xml::{Element, Node, XmlReader},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    io::{Read, Seek},
};

/// Categories within categories, and what else would be a level of one axis.
const MOST_LEVELS: usize = 16;

/// The charts of a file.
#[derive(Debug, Default)]
pub(crate) struct Charts {
    /// The parts that were read, in lower case.
    known: HashSet<String>,
    bytes: usize,
    tables: u64,
    /// How many have no table, by the reason: `charts`, `rows`, `columns`, `levels`, `bytes` (the limit that they exceed), `values` (they
    /// keep none), `missing` or `damaged`.
    left_out: BTreeMap<&'static str, u64>,
}

/// The charts that a part refers to.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    /// The parts by the ids of the references.
    parts: HashMap<String, String>,
    charts: HashMap<String, Chart>,
}

/// The rows of its tables. There are several where series do not share an axis.
#[derive(Debug)]
pub(crate) struct Chart {
    tables: Vec<Vec<Vec<String>>>,
    bytes: usize,
}

/// Why a chart has no table.
enum Fault {
    LeftOut(&'static str),
    /// The file fails.
    Failed(FormatError),
}

impl From<FormatError> for Fault {
    fn from(error: FormatError) -> Self {
        match error {
            FormatError::Corrupt { .. } | FormatError::Encrypted { .. } => Self::LeftOut("damaged"),
            error => Self::Failed(error),
        }
    }
}

impl Charts {
    /// Reads the charts to which a part is related, but for those that were read before.
    pub(crate) fn read<R: Read + Seek>(
        &mut self,
        package: &mut Package<R>,
        related: &[Relationship],
    ) -> Result<Placed, FormatError> {
        let mut placed = Placed::default();
        for relation in related.iter().filter(|relation| relation.kind == "chart") {
            let part = relation.target.to_ascii_lowercase();
            if !self.known.contains(&part) {
                let read = match self.known.len() < MOST_TABLES {
                    true => self.chart(package, &relation.target),
                    false => Err(Fault::LeftOut("charts")),
                };
                self.known.insert(part.clone());
                match read {
                    Ok(chart) => {
                        self.bytes += chart.bytes;
                        self.tables += chart.tables.len() as u64;
                        placed.charts.insert(part.clone(), chart);
                    }
                    Err(Fault::LeftOut(reason)) => *self.left_out.entry(reason).or_default() += 1,
                    Err(Fault::Failed(error)) => return Err(error),
                }
            }
            placed.parts.insert(relation.id.clone(), part);
        }
        Ok(placed)
    }

    fn chart<R: Read + Seek>(&self, package: &mut Package<R>, part: &str) -> Result<Chart, Fault> {
        let Some(xml) = package.xml(part)? else { return Err(Fault::LeftOut("missing")) };
        let chart = Reader { xml, epoch: DateEpoch::default(), held: 0 }.read()?;
        match self.bytes + chart.bytes > MOST_BYTES_OF_ALL {
            true => Err(Fault::LeftOut("bytes")),
            false => Ok(chart),
        }
    }

    /// Records how many tables were made, and what was left out; nothing of a file without charts.
    pub(crate) fn record(self, facts: &mut BTreeMap<String, Value>) {
        if self.tables > 0 || !self.left_out.is_empty() {
            facts.insert("charts".to_owned(), json!({"tables": self.tables, "left_out": self.left_out}));
        }
    }
}

impl Placed {
    /// Takes the chart with an id, which then stands nowhere else.
    pub(crate) fn take(&mut self, id: Option<&str>) -> Option<Chart> {
        self.charts.remove(self.parts.get(id?)?)
    }
}

impl Chart {
    /// The tables of the chart.
    pub(crate) fn into_tables(self) -> impl Iterator<Item = Block> {
        self.tables.into_iter().map(|rows| {
            let mut table = Table::default();
            for row in rows {
                row.iter().for_each(|cell| table.cell(cell));
                table.end_row();
            }
            Block::Table(table)
        })
    }

    /// The chart as a text, for places where no table can stand.
    pub(crate) fn into_text(self) -> Block {
        let rows: Vec<String> = self.tables.iter().flatten().map(|row| one_line(&row.join(" "))).collect();
        Block::Paragraph(rows.join("; "))
    }
}

/// The texts that are kept for the places of a series or an axis.
type Points = BTreeMap<usize, String>;

#[derive(Debug, Default)]
struct Series {
    name: String,
    /// The levels of its categories or of its places on the axis across, the innermost first.
    axis: Vec<Points>,
    /// Its points lie anywhere on the axis across.
    is_scattered: bool,
    values: Points,
    /// The sizes of bubbles.
    sizes: Points,
}

struct Reader<R: Read> {
    xml: XmlReader<R>,
    epoch: DateEpoch,
    /// The bytes that were taken in so far.
    held: usize,
}

impl<R: Read> Reader<R> {
    fn read(mut self) -> Result<Chart, Fault> {
        let (mut title, mut series) = (String::new(), Vec::new());
        while let Some(node) = self.xml.next()? {
            let Node::Start(element) = node else { continue };
            match element.name.as_str() {
                "chartSpace" | "chart" | "plotArea" => {}
                "date1904" => {
                    let is_on = !matches!(element.value(), Some("0" | "false"));
                    self.epoch = if is_on { DateEpoch::From1904 } else { DateEpoch::From1900 };
                }
                "title" => title = self.words()?,
                "ser" if series.len() >= MOST_COLUMNS => return Err(Fault::LeftOut("columns")),
                "ser" => {
                    let one = self.series()?;
                    series.push(one);
                }
                // A plot of any kind; several lie upon each other.
                name if name.ends_with("Chart") => {}
                _ => self.xml.skip()?,
            }
        }
        Chart::new(&title, series)
    }

    fn series(&mut self) -> Result<Series, Fault> {
        let mut series = Series::default();
        while let Some(element) = self.child()? {
            match element.name.as_str() {
                "tx" => series.name = self.words()?,
                "cat" => series.axis = self.levels()?,
                "val" => series.values = self.levels()?.into_iter().next().unwrap_or_default(),
                "xVal" => (series.axis, series.is_scattered) = (self.levels()?, true),
                "yVal" => {
                    series.values = self.levels()?.into_iter().next().unwrap_or_default();
                    series.is_scattered = true;
                }
                "bubbleSize" => series.sizes = self.levels()?.into_iter().next().unwrap_or_default(),
                // Labels, trends and bars of errors have texts and points too.
                _ => self.xml.skip()?,
            }
        }
        Ok(series)
    }

    /// The next element within the one that is open; `None` at its end.
    fn child(&mut self) -> Result<Option<Element>, FormatError> {
        loop {
            match self.xml.next()? {
                Some(Node::Start(element)) => return Ok(Some(element)),
                Some(Node::Text(_)) => {}
                Some(Node::End) | None => return Ok(None),
            }
        }
    }

    /// What is kept within the element that just began, level by level.
    fn levels(&mut self) -> Result<Vec<Points>, Fault> {
        let mut levels = Vec::new();
        let mut depth = 1u32;
        while depth > 0 {
            match self.xml.next()? {
                Some(Node::Start(element)) => match element.name.as_str() {
                    "strRef" | "numRef" | "multiLvlStrRef" | "multiLvlStrCache" => depth += 1,
                    "strCache" | "numCache" | "strLit" | "numLit" | "lvl" if levels.len() >= MOST_LEVELS => {
                        return Err(Fault::LeftOut("levels"));
                    }
                    "strCache" | "strLit" | "lvl" => levels.push(self.points(false)?),
                    "numCache" | "numLit" => levels.push(self.points(true)?),
                    _ => self.xml.skip()?,
                },
                Some(Node::Text(_)) => {}
                Some(Node::End) => depth -= 1,
                None => break,
            }
        }
        Ok(levels)
    }

    fn points(&mut self, are_numbers: bool) -> Result<Points, Fault> {
        let mut points = Points::new();
        let mut numbers = CachedNumbers::new("General", self.epoch);
        while let Some(element) = self.child()? {
            match element.name.as_str() {
                "formatCode" => {
                    let code = self.text()?;
                    numbers = CachedNumbers::new(code.trim(), self.epoch);
                }
                "pt" => {
                    let place = element.attribute("idx").and_then(|place| place.parse::<usize>().ok());
                    let words = self.words()?;
                    let Some(place) = place.filter(|_| !words.is_empty()) else { continue };
                    // The first row has the names.
                    if place >= MOST_ROWS - 1 {
                        return Err(Fault::LeftOut("rows"));
                    }
                    self.hold(CELL_BYTES)?;
                    points.insert(place, if are_numbers { numbers.text(&words) } else { words });
                }
                _ => self.xml.skip()?,
            }
        }
        Ok(points)
    }

    /// The words within the element that just began, in one line.
    fn words(&mut self) -> Result<String, Fault> {
        let mut words = String::new();
        let mut depth = 1u32;
        while depth > 0 {
            match self.xml.next()? {
                Some(Node::Start(element)) => match element.name.as_str() {
                    "t" => words.push_str(&self.text()?),
                    "v" => {
                        self.hold(1)?;
                        words.push(' ');
                        words.push_str(&self.text()?);
                    }
                    "txPr" | "extLst" => self.xml.skip()?,
                    name => {
                        if matches!(name, "p" | "br") {
                            self.hold(1)?;
                            words.push(' ');
                        }
                        depth += 1;
                    }
                },
                Some(Node::Text(_)) => {}
                Some(Node::End) => depth -= 1,
                None => break,
            }
        }
        Ok(one_line(&charset::clean(&words)))
    }

    /// The text of the element that just began.
    fn text(&mut self) -> Result<String, Fault> {
        let mut text = String::new();
        loop {
            match self.xml.next()? {
                Some(Node::Start(_)) => self.xml.skip()?,
                Some(Node::Text(piece)) => {
                    self.hold(piece.len())?;
                    text.push_str(&piece);
                }
                Some(Node::End) | None => return Ok(text),
            }
        }
    }

    fn hold(&mut self, bytes: usize) -> Result<(), Fault> {
        self.held += bytes;
        if self.held > MOST_BYTES { Err(Fault::LeftOut("bytes")) } else { Ok(()) }
    }
}

impl Chart {
    fn new(title: &str, mut series: Vec<Series>) -> Result<Self, Fault> {
        series.retain(|one| !one.values.is_empty());
        for (one, number) in series.iter_mut().zip(1u32..) {
            if one.name.is_empty() {
                one.name = format!("Series {number}");
            }
        }
        let mut chart = Self { tables: Vec::new(), bytes: 0 };
        for (axis, group) in groups(&series) {
            let table = chart.rows(title, axis, &group)?;
            chart.tables.push(table);
        }
        if chart.tables.is_empty() { Err(Fault::LeftOut("values")) } else { Ok(chart) }
    }

    /// The rows of a table of series that share an axis.
    fn rows(&mut self, title: &str, axis: &[Points], group: &[&Series]) -> Result<Vec<Vec<String>>, Fault> {
        let mut names = Vec::new();
        let mut columns = Vec::new();
        for one in group {
            names.push(self.cell(one.name.clone())?);
            columns.push(&one.values);
            if !one.sizes.is_empty() {
                names.push(self.cell(format!("{} (size)", one.name))?);
                columns.push(&one.sizes);
            }
        }
        let places: BTreeSet<usize> =
            columns.iter().copied().chain(axis.first()).flat_map(|points| points.keys().copied()).collect();
        let (count, width) = (1 + places.len(), 1 + columns.len());
        if let Some(limit) = over(count, width, count * width * CELL_BYTES) {
            return Err(Fault::LeftOut(limit));
        }
        // The title stands where the name of the first column would, unless it is that of another one.
        let corner = if names.iter().any(|name| name == title) { "" } else { title };
        let mut header = vec![self.cell(corner.to_owned())?];
        header.append(&mut names);
        let mut rows = vec![header];
        for place in places {
            let mut row = Vec::with_capacity(width);
            row.push(self.cell(label(axis, place))?);
            for points in &columns {
                row.push(self.cell(points.get(&place).cloned().unwrap_or_default())?);
            }
            rows.push(row);
        }
        Ok(rows)
    }

    /// A cell, which counts.
    fn cell(&mut self, text: String) -> Result<String, Fault> {
        self.bytes += text.len() + CELL_BYTES;
        if self.bytes > MOST_BYTES { Err(Fault::LeftOut("bytes")) } else { Ok(text) }
    }
}

/// The series by their axes, in their order. A series without categories has those of the first one that has some.
fn groups(series: &[Series]) -> Vec<(&[Points], Vec<&Series>)> {
    let mut groups: Vec<(&[Points], Vec<&Series>)> = Vec::new();
    let mut known: HashMap<&[Points], usize> = HashMap::new();
    let shared = series.iter().find(|one| !one.is_scattered && !one.axis.is_empty());
    let shared = shared.map(|one| one.axis.as_slice()).unwrap_or_default();
    // The shared axis is looked up once, however many series have none.
    let mut of_shared = None;
    for one in series {
        let is_shared = one.axis.is_empty() && !one.is_scattered;
        let axis: &[Points] = if is_shared { shared } else { &one.axis };
        let at = match of_shared.filter(|_| is_shared) {
            Some(at) => at,
            None => *known.entry(axis).or_insert_with(|| {
                groups.push((axis, Vec::new()));
                groups.len() - 1
            }),
        };
        if is_shared {
            of_shared = Some(at);
        }
        groups[at].1.push(one);
    }
    groups
}

/// The name of a place on an axis, within those of the levels around it, each of which goes on to the next; without an axis its number.
fn label(axis: &[Points], place: usize) -> String {
    let Some((inner, outer)) = axis.split_first() else { return (place + 1).to_string() };
    let around = outer.iter().rev().filter_map(|level| level.range(..=place).next_back().map(|(_, name)| name));
    around.chain(inner.get(&place)).map(String::as_str).collect::<Vec<_>>().join(" / ")
}

#[cfg(test)]
mod tests;
