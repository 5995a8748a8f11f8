//! Which rule shows a document: those that the service brings, and those that the owner made.
use crate::usetype::Usetype;
use svc_client::wire::{
    ChildrenMode, ChildrenRule, LinksMode, LinksRule, NewPresentation, PresentationResponse, Renderer, ShownField,
};

/// For a usetype without a rule of its own.
const REST: &str = "*";
/// How many documents a page of texts has, and one of names.
const TEXTS: u32 = 100;
const NAMES: u32 = 50;

/// A rule that the service brings: usetype, renderer, children, links, what is shown, and its name.
type Seed = (&'static str, Renderer, ChildrenMode, LinksMode, &'static [ShownField], &'static str);

const SEEDS: &[Seed] = {
    use ChildrenMode::{Collapsed, Inline, List};
    use LinksMode::Footnotes;
    use Renderer::{Code, Conversation, Image, Markdown, Plain, Record, Source, Table, Transcript};
    use ShownField::{CreatedAt, EventTime, StructuredContent, UpdatedAt};
    &[
        (REST, Markdown, List, Footnotes, &[EventTime, StructuredContent], "Document"),
        (Usetype::Markdown.as_str(), Markdown, List, Footnotes, &[EventTime, UpdatedAt], "Text"),
        (Usetype::Raw.as_str(), Plain, Inline, Footnotes, &[EventTime, CreatedAt], "Plain text"),
        (Usetype::Conversation.as_str(), Conversation, Inline, Footnotes, &[EventTime], "Conversation"),
        (Usetype::Transcript.as_str(), Transcript, Inline, Footnotes, &[EventTime], "Transcript"),
        ("wiki:*", Source, Inline, LinksMode::Inline, &[EventTime, CreatedAt], "Page"),
        (Usetype::WikiUrl.as_str(), Source, Inline, LinksMode::Inline, &[EventTime, CreatedAt], "Web page"),
        (Usetype::WikiArxiv.as_str(), Source, Inline, LinksMode::Inline, &[EventTime, CreatedAt], "Paper"),
        (Usetype::WikiPdf.as_str(), Source, Inline, LinksMode::Inline, &[EventTime, CreatedAt], "Fetched PDF"),
        (Usetype::File.as_str(), Source, Inline, Footnotes, &[EventTime, CreatedAt], "File"),
        (Usetype::Section.as_str(), Source, Inline, Footnotes, &[EventTime], "Section"),
        (Usetype::Chunk.as_str(), Source, List, Footnotes, &[EventTime], "Passage"),
        (Usetype::Table.as_str(), Markdown, List, Footnotes, &[EventTime], "Table"),
        (Usetype::Sheet.as_str(), Table, Inline, Footnotes, &[], "Sheet"),
        (Usetype::Record.as_str(), Record, Inline, Footnotes, &[], "Row"),
        (Usetype::Profile.as_str(), Plain, List, Footnotes, &[], "Sheet's profile"),
        (Usetype::Image.as_str(), Image, List, Footnotes, &[StructuredContent], "Picture"),
        (Usetype::Raptor.as_str(), Markdown, Collapsed, Footnotes, &[], "Summaries"),
        (Usetype::Summary.as_str(), Markdown, List, Footnotes, &[], "Summary"),
        (Usetype::Entity.as_str(), Markdown, List, LinksMode::Inline, &[StructuredContent], "Thing"),
        ("ontology", Code, Collapsed, Footnotes, &[CreatedAt], "Ontology"),
        ("template", Code, List, Footnotes, &[StructuredContent, UpdatedAt], "Template"),
    ]
};

/// The rules that the service brings.
pub fn seeds() -> Vec<PresentationResponse> {
    let rule = |(usetype, renderer, mode, links, show, title): &Seed| {
        let limit = if *mode == ChildrenMode::Inline { TEXTS } else { NAMES };
        PresentationResponse {
            usetype: (*usetype).to_owned(),
            renderer: *renderer,
            children: ChildrenRule { mode: *mode, limit },
            links: LinksRule { mode: *links, types: Vec::new() },
            show: show.to_vec(),
            title: (*title).to_owned(),
            seeded: true,
            changed_at: None,
        }
    };
    SEEDS.iter().map(rule).collect()
}

/// The rule that the service brings for this usetype or beginning of usetypes.
pub fn seed(usetype: &str) -> Option<PresentationResponse> {
    seeds().into_iter().find(|rule| rule.usetype == usetype)
}

/// The whole rule that a caller wishes.
pub fn complete(new: NewPresentation) -> PresentationResponse {
    let title = new.title.unwrap_or_else(|| new.usetype.clone());
    PresentationResponse {
        renderer: new.renderer,
        children: new.children.unwrap_or(ChildrenRule { mode: ChildrenMode::List, limit: NAMES }),
        links: new.links.unwrap_or(LinksRule { mode: LinksMode::Footnotes, types: Vec::new() }),
        show: new.show,
        title,
        seeded: seed(&new.usetype).is_some(),
        changed_at: None,
        usetype: new.usetype,
    }
}

/// Every rule: one that the owner made stands in the place of one that the service brings.
pub struct Rules(Vec<PresentationResponse>);

impl Rules {
    pub fn new(made: Vec<PresentationResponse>) -> Rules {
        let is_made = |seed: &PresentationResponse| made.iter().any(|rule| rule.usetype == seed.usetype);
        let mut all: Vec<_> = seeds().into_iter().filter(|seed| !is_made(seed)).collect();
        all.extend(made);
        all.sort_unstable_by(|one, other| one.usetype.cmp(&other.usetype));
        Rules(all)
    }

    pub fn all(self) -> Vec<PresentationResponse> {
        self.0
    }

    /// The rule of this name, which need not fit any document.
    pub fn named(&self, usetype: &str) -> Option<&PresentationResponse> {
        self.0.iter().find(|rule| rule.usetype == usetype)
    }

    /// The rule of a usetype: its own, else that of the longest beginning. There is one for every usetype.
    pub fn of(&self, usetype: &str) -> Option<&PresentationResponse> {
        let begins = |rule: &&PresentationResponse| {
            rule.usetype.strip_suffix('*').is_some_and(|beginning| usetype.starts_with(beginning))
        };
        self.named(usetype).or_else(|| self.0.iter().filter(begins).max_by_key(|rule| rule.usetype.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_name_wins_over_beginnings_and_the_longer_beginning_over_the_shorter() {
        let made = |usetype: &str| {
            let new: NewPresentation =
                serde_json::from_value(serde_json::json!({"usetype": usetype, "renderer": "plain"})).unwrap();
            complete(new)
        };
        let rules = Rules::new(vec![made("wiki:pdf*"), made("note"), made("chunk")]);
        let of = |usetype: &str| rules.of(usetype).unwrap().usetype.clone();
        assert_eq!(
            ["wiki:pdf", "wiki:pdfs", "wiki:other", "note", "notes", ""].map(of),
            ["wiki:pdf", "wiki:pdf*", "wiki:*", "note", "*", "*"]
        );
        // A changed rule keeps its kind.
        assert!(rules.of("chunk").unwrap().seeded && !rules.of("note").unwrap().seeded);
        assert_eq!(rules.of("chunk").unwrap().renderer, Renderer::Plain);
        assert_eq!(rules.all().len(), seeds().len() + 2);
    }

    #[test]
    fn every_usetype_that_the_service_gives_has_a_rule() {
        for usetype in Usetype::ALL {
            assert!(seed(usetype.as_str()).is_some(), "{usetype:?}");
        }
    }
}
