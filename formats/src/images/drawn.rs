//! What the drawings of office files show: pictures and charts, which stand in parts of their own.

use super::{Gallery, Giver, MOST_REMEMBERED, read_part};
use crate::{
    Format, FormatError, chart,
    package::{Package, Relationship},
    xml::Element,
};
use std::{
    collections::{HashMap, HashSet},
    io::{Read, Seek},
};

/// The pictures and charts to which the parts of a file refer.
#[derive(Debug, Default)]
pub(crate) struct Drawn {
    /// Those of the part that is read, by the ids of its references.
    parts: HashMap<String, String>,
    /// Those of all parts that are charts.
    charts: HashSet<String>,
}

impl Drawn {
    /// Begins a part with what it is related to. Returns whether it refers to a picture or a chart.
    pub(crate) fn begin(&mut self, related: &[Relationship]) -> bool {
        self.parts.clear();
        for Relationship { id, kind, target } in related.iter().filter(|relation| is_drawn(relation)) {
            self.parts.insert(id.clone(), target.clone());
            // Many parts with many references each would fill the memory; no more are remembered of what they show either.
            if kind == "chart" && self.charts.len() < MOST_REMEMBERED {
                self.charts.insert(target.clone());
            }
        }
        !self.parts.is_empty()
    }

    /// The part that an element shows.
    pub(crate) fn shown(&self, element: &Element) -> Option<&str> {
        match element.name.as_str() {
            "blip" => self.part(element.attribute("embed")),
            "chart" => self.part(element.attribute("id")),
            _ => None,
        }
    }

    /// The part with an id.
    pub(crate) fn part(&self, id: Option<&str>) -> Option<&str> {
        self.parts.get(id?).map(String::as_str)
    }

    /// Gives the pictures of a gallery, and then its charts.
    pub(crate) fn give<R: Read + Seek>(
        &self,
        mut gallery: Gallery,
        package: &mut Package<R>,
        format: Format,
        giver: &mut Giver<'_, '_>,
    ) -> Result<(), FormatError> {
        let charts = gallery.take_out(&self.charts);
        giver.give_all(gallery, |name, most| {
            package.part(name)?.map(|part| read_part(part, most, format)).transpose()
        })?;
        chart::give(package, charts, giver)
    }
}

/// Whether a part refers to a picture or a chart.
pub(crate) fn is_drawn(relation: &Relationship) -> bool {
    matches!(relation.kind.as_str(), "image" | "chart")
}
