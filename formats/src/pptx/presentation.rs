//! The main part: the slides in their order, and what they share.

use super::{
    comments::Authors,
    inheritance::{Inheritance, Layout},
    shapes,
    slide::Slide,
};
use crate::{
    FormatError, Limit, Limits,
    package::{Package, Relationship},
    xml::Node,
};
use std::{
    collections::HashMap,
    io::{Read, Seek},
    rc::Rc,
};

/// An open presentation: its slides' names, and the layouts and masters that slides have asked for.
#[derive(Default)]
pub(super) struct Presentation {
    /// `None` for a listed slide that refers to nothing.
    slides: Vec<Option<String>>,
    pub authors: Authors,
    layouts: HashMap<String, Rc<Layout>>,
    masters: HashMap<String, Rc<Layout>>,
}

impl Presentation {
    pub(super) fn open<R: Read + Seek>(package: &mut Package<R>, limits: &Limits) -> Result<Self, FormatError> {
        let main = package.main_part()?;
        let related = package.relationships(&main)?;
        let targets: HashMap<&str, &str> = related
            .iter()
            .filter(|relation| relation.kind == "slide")
            .map(|relation| (&*relation.id, &*relation.target))
            .collect();
        let mut presentation = Self::default();
        if let Some(mut xml) = package.xml(&main)? {
            while let Some(node) = xml.next()? {
                let Node::Start(element) = node else { continue };
                match element.name.as_str() {
                    // Sections of slides list them again.
                    "extLst" => xml.skip()?,
                    "sldId" => {
                        if presentation.slides.len() >= limits.pages as usize {
                            let detail = format_args!("over {} slides", limits.pages);
                            return Err(FormatError::over(Limit::Pages, detail));
                        }
                        // A slide has a number of its own and a relationship's id; both attributes have the same local
                        // name.
                        let target = element.attributes("id").find_map(|id| targets.get(id));
                        presentation.slides.push(target.map(|target| (*target).to_owned()));
                    }
                    _ => {}
                }
            }
        }
        for relation in related.iter().filter(|relation| matches!(&*relation.kind, "commentAuthors" | "authors")) {
            if let Some(xml) = package.xml(&relation.target)? {
                presentation.authors.read(xml)?;
            }
        }
        Ok(presentation)
    }

    /// Takes the slides' names, in order.
    pub(super) fn take_slides(&mut self) -> Vec<Option<String>> {
        std::mem::take(&mut self.slides)
    }

    /// Reads a slide with its notes; `None` if the package lacks it.
    pub(super) fn slide<R: Read + Seek>(
        &mut self,
        package: &mut Package<R>,
        name: &str,
        related: &[Relationship],
        limits: &Limits,
    ) -> Result<Option<Slide>, FormatError> {
        let inheritance = self.inheritance(package, related)?;
        let Some(xml) = package.xml(name)? else { return Ok(None) };
        let mut slide = shapes::read(xml, shapes::Part::Slide, &inheritance, limits)?;
        if let Some(notes) = related.iter().find(|relation| relation.kind == "notesSlide")
            && let Some(xml) = package.xml(&notes.target)?
        {
            slide.notes = shapes::read(xml, shapes::Part::Notes, &Inheritance::default(), limits)?.blocks;
        }
        Ok(Some(slide))
    }

    /// The layout of a slide and the layout's master, if they exist.
    fn inheritance<R: Read + Seek>(
        &mut self,
        package: &mut Package<R>,
        related: &[Relationship],
    ) -> Result<Inheritance, FormatError> {
        let Some(relation) = related.iter().find(|relation| relation.kind == "slideLayout") else {
            return Ok(Inheritance::default());
        };
        let layout = match self.layouts.get(&relation.target) {
            Some(layout) => Rc::clone(layout),
            None => {
                let master = package.relationships(&relation.target)?;
                let master = master.into_iter().find(|relation| relation.kind == "slideMaster");
                let layout = Rc::new(Layout::read(package, &relation.target, master.map(|master| master.target))?);
                self.layouts.insert(relation.target.clone(), Rc::clone(&layout));
                layout
            }
        };
        let master = match &layout.master {
            Some(name) => Some(match self.masters.get(name) {
                Some(master) => Rc::clone(master),
                None => {
                    let master = Rc::new(Layout::read(package, name, None)?);
                    self.masters.insert(name.clone(), Rc::clone(&master));
                    master
                }
            }),
            None => None,
        };
        Ok(Inheritance { layout: Some(layout), master })
    }
}
