//! The usetypes that the service itself gives to documents. Callers may give theirs others.

/// What of a document is embedded and indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexed {
    TitleAndContent,
    /// For content that says by itself what it belongs to.
    Content,
}

macro_rules! usetypes { ($( $(#[doc = $doc:literal])* $variant:ident = $name:literal, leaf: $leaf:literal, $indexed:ident; )*) => {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Usetype { $( $(#[doc = $doc])* $variant, )* }

    impl Usetype {
        pub const ALL: &[Usetype] = &[$( Usetype::$variant, )*];

        /// Its name in the database and on the wire.
        pub const fn as_str(self) -> &'static str {
            match self { $( Usetype::$variant => $name, )* }
        }

        /// Whether ingestion makes it as a leaf.
        pub const fn is_leaf(self) -> bool {
            match self { $( Usetype::$variant => $leaf, )* }
        }

        pub const fn indexed(self) -> Indexed {
            match self { $( Usetype::$variant => Indexed::$indexed, )* }
        }
    }
} }

usetypes! {
    /// A document that a caller creates and gives no usetype, or a text in Markdown.
    Markdown = "markdown", leaf: false, TitleAndContent;
    /// A plain text, stored through an entry of `POST /ingest`, as are those down to `wiki:pdf`.
    Raw = "raw", leaf: false, TitleAndContent;
    Conversation = "conversation", leaf: false, TitleAndContent;
    Transcript = "transcript", leaf: false, TitleAndContent;
    WikiUrl = "wiki:url", leaf: false, TitleAndContent;
    WikiArxiv = "wiki:arxiv", leaf: false, TitleAndContent;
    WikiPdf = "wiki:pdf", leaf: false, TitleAndContent;
    /// An uploaded file.
    File = "file", leaf: false, TitleAndContent;
    /// A heading or page of a file, with what is under it.
    Section = "section", leaf: false, TitleAndContent;
    /// A piece of text that fits the model's window.
    Chunk = "chunk", leaf: true, Content;
    /// A table in the text of a file, or of the values of a chart. One of a text is a container if it is too long and has chunks of its own.
    Table = "table", leaf: true, Content;
    /// A sheet of a workbook.
    Sheet = "sheet", leaf: false, TitleAndContent;
    /// A row of a sheet. It is a container if it is too long and has chunks of its own.
    Record = "record", leaf: true, Content;
    /// What a sheet holds, column by column.
    Profile = "profile", leaf: true, Content;
    /// A picture of a file, with its bytes. Its text is what stands beside it.
    Image = "image", leaf: true, Content;
    /// Holds the summaries of the leaves under its parent, and is never a result.
    Raptor = "raptor", leaf: false, TitleAndContent;
    /// A thing that facts are about, such as a node of an imported graph.
    Entity = "entity", leaf: false, TitleAndContent;
    /// What other texts say, in short.
    Summary = "summary", leaf: false, TitleAndContent;
    /// The text of a prompt with variables.
    Template = "template", leaf: false, TitleAndContent;
}

impl Usetype {
    /// The containers that hold the texts of a file together, and stand for them.
    pub const SECTIONS: [Usetype; 2] = [Usetype::Section, Usetype::Sheet];

    /// Whether it is a part of the document above it, whose title then stands above the chunks in the part too.
    pub const fn is_part(self) -> bool {
        matches!(self, Usetype::Section | Usetype::Sheet | Usetype::Record | Usetype::Table | Usetype::Chunk)
    }

    /// The names of these.
    pub fn parts() -> Vec<&'static str> {
        Usetype::ALL.iter().filter(|usetype| usetype.is_part()).map(|usetype| usetype.as_str()).collect()
    }

    /// Whether what is ingested as one comes with bytes, which are stored; a text in Markdown may, too. What a caller creates has none, whatever its
    /// usetype.
    pub const fn has_bytes(self) -> bool {
        matches!(
            self,
            Usetype::File
                | Usetype::Raw
                | Usetype::Conversation
                | Usetype::Transcript
                | Usetype::WikiUrl
                | Usetype::WikiArxiv
                | Usetype::WikiPdf
                | Usetype::Image
        )
    }

    /// Whether a leaf of it is found by the titles above it too.
    pub const fn is_titled(self) -> bool {
        matches!(self, Usetype::Chunk | Usetype::Table)
    }

    /// The names of these.
    pub fn titled() -> Vec<&'static str> {
        Usetype::ALL.iter().filter(|usetype| usetype.is_titled()).map(|usetype| usetype.as_str()).collect()
    }

    /// The names of the leaves.
    pub fn leaves() -> Vec<&'static str> {
        Usetype::ALL.iter().filter(|usetype| usetype.is_leaf()).map(|usetype| usetype.as_str()).collect()
    }

    /// The names of the leaves that rollups read; what stands beside a picture is in another leaf already.
    pub fn texts() -> Vec<&'static str> {
        Usetype::leaves().into_iter().filter(|usetype| *usetype != Usetype::Image.as_str()).collect()
    }

    /// The built-in usetype of this name; `None` if it is a caller's own.
    pub fn named(name: &str) -> Option<Usetype> {
        Usetype::ALL.iter().copied().find(|usetype| usetype.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_usetype_has_a_name_of_its_own() {
        let names: BTreeSet<_> = Usetype::ALL.iter().map(|usetype| usetype.as_str()).collect();
        assert_eq!(names.len(), Usetype::ALL.len());
        assert!(Usetype::ALL.iter().all(|usetype| Usetype::named(usetype.as_str()) == Some(*usetype)));
        assert_eq!(Usetype::named("a_caller's_own"), None);
    }

    #[test]
    fn a_leaf_is_indexed_by_its_content_alone() {
        assert_eq!(Usetype::leaves(), ["chunk", "table", "record", "profile", "image"]);
        assert_eq!(Usetype::texts(), ["chunk", "table", "record", "profile"]);
        for usetype in Usetype::ALL {
            assert_eq!(usetype.is_leaf(), usetype.indexed() == Indexed::Content, "{usetype:?}");
        }
        assert_eq!(Usetype::titled(), ["chunk", "table"]);
    }
}
