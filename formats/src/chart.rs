//! Charts of office files, as tables of the values that they keep: categories, or places on the axis across, in the first column, and
//! each series in a column of its own.
//!
//! Charts stand in parts of their own, each of which is read once. They are given beside the pictures, and are no text of their file.

use crate::{
    FormatError, Limit, charset,
    images::{self, Giver, ImageLeftOut, Shown},
    markdown::one_line,
    package::Package,
    tables::{CELL_BYTES, MOST_BYTES, MOST_BYTES_OF_ALL, MOST_COLUMNS, MOST_ROWS, MOST_TABLES, Table, TableRule},
    xlsx::{CachedNumbers, DateEpoch},
    xml::{Element, Node, XmlReader},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    io::{Read, Seek},
};

/// Categories within categories, and what else would be a level of one axis.
const MOST_LEVELS: usize = 16;
/// Two axes across and two up; no chart has more.
const MOST_AXES: usize = 4;
/// The most tables of the charts of a file.
pub const MOST_CHART_TABLES: usize = MOST_TABLES;
/// A longer name or title is cut where it is told.
const TITLE_CHARACTERS: usize = 255;

/// A table of values that a chart keeps. A chart has several where series do not share an axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChartTable {
    /// The place of the chart among the charts of the file.
    pub chart: u64,
    /// What the file calls the chart. It is a label: nothing is ever opened by it.
    pub name: String,
    /// The title of the chart, else its caption, else what its author says that it shows; empty if it has none of these.
    pub title: String,
    /// The slide or the sheet that shows it first, counted from 1.
    pub page: Option<u32>,
    /// The first row names the columns; the first name is the title, followed by those of the axes.
    pub table: Table,
}

/// The rows of a chart's tables.
#[derive(Debug)]
struct Chart {
    title: String,
    /// The titles of its axes.
    axes: Vec<String>,
    tables: Vec<Vec<Vec<String>>>,
    bytes: usize,
}

/// Why a chart has no table.
enum Fault {
    LeftOut(ImageLeftOut),
    /// The file fails.
    Failed(FormatError),
}

impl From<FormatError> for Fault {
    fn from(error: FormatError) -> Self {
        match error {
            FormatError::Corrupt { .. } | FormatError::Encrypted { .. } => Self::LeftOut(ImageLeftOut::Damaged),
            error => match error.limit() {
                Some(Limit::ZipRatio) => Self::LeftOut(ImageLeftOut::ZipRatio),
                Some(Limit::XmlDepth) => Self::LeftOut(ImageLeftOut::XmlDepth),
                // The package counts over all parts, so that each part after this one is left out at its first bytes.
                Some(Limit::UnpackedBytes) => Self::LeftOut(ImageLeftOut::UnpackedBytes),
                _ => Self::Failed(error),
            },
        }
    }
}

/// Gives the tables of charts, each chart once, or says why it has none.
pub(crate) fn give<R: Read + Seek>(
    package: &mut Package<R>,
    charts: Vec<Shown>,
    giver: &mut Giver<'_, '_>,
) -> Result<(), FormatError> {
    let mut known = HashSet::new();
    let (mut index, mut tables, mut bytes) = (0, 0, 0);
    for shown in charts {
        // Names that differ in case alone are those of one part.
        if !known.insert(shown.name.to_ascii_lowercase()) {
            continue;
        }
        let read = match known.len() > MOST_CHART_TABLES {
            true => Err(Fault::LeftOut(ImageLeftOut::Charts)),
            false => chart(package, &shown),
        };
        let fitting = read.and_then(|chart| {
            if tables + chart.tables.len() > MOST_CHART_TABLES {
                Err(Fault::LeftOut(ImageLeftOut::Charts))
            } else if bytes + chart.bytes > MOST_BYTES_OF_ALL {
                Err(Fault::LeftOut(ImageLeftOut::Bytes))
            } else {
                Ok(chart)
            }
        });
        match fitting {
            Ok(chart) => {
                (tables, bytes) = (tables + chart.tables.len(), bytes + chart.bytes);
                let name = images::one_line(&shown.name, TITLE_CHARACTERS);
                let title = images::one_line(&chart.title, TITLE_CHARACTERS);
                for rows in chart.tables {
                    giver.chart(ChartTable {
                        chart: index,
                        name: name.clone(),
                        title: title.clone(),
                        page: shown.pages.first().copied(),
                        table: Table { ranges: Vec::new(), rule: TableRule::Chart, has_header: true, rows, parts: 1 },
                    })?;
                }
            }
            Err(Fault::LeftOut(reason)) => giver.leave_out(&shown.name, reason)?,
            Err(Fault::Failed(error)) => return Err(error),
        }
        index += 1;
    }
    Ok(())
}

fn chart<R: Read + Seek>(package: &mut Package<R>, shown: &Shown) -> Result<Chart, Fault> {
    let Some(xml) = package.xml(&shown.name)? else { return Err(Fault::LeftOut(ImageLeftOut::Missing)) };
    let otherwise = if shown.caption.is_empty() { &shown.alt } else { &shown.caption };
    Reader { xml, epoch: DateEpoch::default(), held: 0 }.read(otherwise)
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
    /// Reads the chart. One without a title has another.
    fn read(mut self, otherwise: &str) -> Result<Chart, Fault> {
        let (mut title, mut series, mut axes) = (String::new(), Vec::new(), Vec::new());
        while let Some(node) = self.xml.next()? {
            let Node::Start(element) = node else { continue };
            match element.name.as_str() {
                "chartSpace" | "chart" | "plotArea" => {}
                "date1904" => {
                    let is_on = !matches!(element.value(), Some("0" | "false"));
                    self.epoch = if is_on { DateEpoch::From1904 } else { DateEpoch::From1900 };
                }
                "title" => title = self.words()?,
                "ser" if series.len() >= MOST_COLUMNS => return Err(Fault::LeftOut(ImageLeftOut::Columns)),
                "ser" => {
                    let one = self.series()?;
                    series.push(one);
                }
                "catAx" | "dateAx" | "valAx" | "serAx" if axes.len() < MOST_AXES => {
                    let title = images::one_line(&self.axis()?, TITLE_CHARACTERS);
                    if !title.is_empty() && !axes.contains(&title) {
                        axes.push(title);
                    }
                }
                // A plot of any kind; several lie upon each other.
                name if name.ends_with("Chart") => {}
                _ => self.xml.skip()?,
            }
        }
        Chart::new(if title.is_empty() { otherwise.to_owned() } else { title }, axes, series)
    }

    /// The title of the axis that just began; empty if it shows none.
    fn axis(&mut self) -> Result<String, Fault> {
        let (mut title, mut is_hidden) = (String::new(), false);
        while let Some(element) = self.child()? {
            match element.name.as_str() {
                "title" => title = self.words()?,
                name => {
                    is_hidden |= name == "delete" && !matches!(element.value(), Some("0" | "false"));
                    self.xml.skip()?;
                }
            }
        }
        Ok(if is_hidden { String::new() } else { title })
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
                        return Err(Fault::LeftOut(ImageLeftOut::Levels));
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
                        return Err(Fault::LeftOut(ImageLeftOut::Rows));
                    }
                    self.hold(CELL_BYTES)?;
                    let text = match element.attribute("formatCode") {
                        _ if !are_numbers => words,
                        // A cell that is formatted in another way than the first one says so.
                        Some(code) => CachedNumbers::new(code.trim(), self.epoch).text(&words),
                        None => numbers.text(&words),
                    };
                    points.insert(place, text);
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
        if self.held > MOST_BYTES { Err(Fault::LeftOut(ImageLeftOut::Bytes)) } else { Ok(()) }
    }
}

impl Chart {
    fn new(title: String, axes: Vec<String>, mut series: Vec<Series>) -> Result<Self, Fault> {
        series.retain(|one| !one.values.is_empty());
        for (one, number) in series.iter_mut().zip(1u32..) {
            if one.name.is_empty() {
                one.name = format!("Series {number}");
            }
        }
        let mut chart = Self { title, axes, tables: Vec::new(), bytes: 0 };
        for (axis, group) in groups(&series) {
            let table = chart.rows(axis, &group)?;
            chart.tables.push(table);
        }
        if chart.tables.is_empty() { Err(Fault::LeftOut(ImageLeftOut::Values)) } else { Ok(chart) }
    }

    /// The rows of a table of series that share an axis.
    fn rows(&mut self, axis: &[Points], group: &[&Series]) -> Result<Vec<Vec<String>>, Fault> {
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
        if count > MOST_ROWS {
            return Err(Fault::LeftOut(ImageLeftOut::Rows));
        }
        if width > MOST_COLUMNS {
            return Err(Fault::LeftOut(ImageLeftOut::Columns));
        }
        if count * width * CELL_BYTES > MOST_BYTES {
            return Err(Fault::LeftOut(ImageLeftOut::Bytes));
        }
        let corner = self.corner(&names);
        let mut header = vec![self.cell(corner)?];
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

    /// The titles of the chart and of its axes, which stand where the name of the first column would. One that is the name of another
    /// column is not said twice.
    fn corner(&self, names: &[String]) -> String {
        let title = if names.contains(&self.title) { "" } else { self.title.as_str() };
        let axes = self.axes.iter().filter(|axis| **axis != self.title && !names.contains(axis));
        let axes = axes.map(String::as_str).collect::<Vec<_>>().join(", ");
        match (title, axes.as_str()) {
            (title, "") => title.to_owned(),
            ("", _) => axes,
            (title, axes) => format!("{title} ({axes})"),
        }
    }

    /// A cell, which counts.
    fn cell(&mut self, text: String) -> Result<String, Fault> {
        self.bytes += text.len() + CELL_BYTES;
        if self.bytes > MOST_BYTES { Err(Fault::LeftOut(ImageLeftOut::Bytes)) } else { Ok(text) }
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
