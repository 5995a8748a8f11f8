//! IRIs and tags of languages as RDF has them. What callers name is held against the parser that reads exports back, so that no export has a term
//! that an import refuses.
use oxrdf::{Literal, NamedNodeRef};
use svc_client::Failure;

/// Refuses what is no IRI.
pub fn check_iri(field: &str, iri: &str) -> Result<(), Failure> {
    NamedNodeRef::new(iri).map(|_| ()).map_err(|error| {
        Failure::field(field, format!("is no IRI: {error}"))
            .with("remedy", "send an absolute IRI by RFC 3987, such as https://schema.org/author")
    })
}

/// Refuses what is no tag of a language.
pub fn check_language(field: &str, tag: &str) -> Result<(), Failure> {
    Literal::new_language_tagged_literal("", tag).map(|_| ()).map_err(|error| {
        Failure::field(field, format!("is no tag of a language: {error}"))
            .with("remedy", "send a tag by BCP 47, such as en or de-CH")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxttl::NTriplesParser;
    use svc_client::constraint::{Constraint, Form};

    #[test]
    fn what_is_let_in_is_what_the_parser_reads_back() {
        for (iri, fits) in [
            ("https://schema.org/author", true),
            ("urn:x:ä", true),
            ("http://[2001:db8::1]:80/a?b#c", true),
            ("mailto:a@b.example", true),
            ("mailto:", true),
            ("http://e/New\u{a0}York", true),
            ("http://e/東京\u{3000}都", true),
            ("http://[", false),
            ("urn:x:[", false),
            ("http://ex/%zz", false),
            ("http://ex:port/", false),
            ("x:\u{fdd0}", false),
            ("author", false),
        ] {
            let line = format!("<http://e/s> <{iri}> <http://e/o> .");
            let is_read = NTriplesParser::new().for_slice(line.as_bytes()).all(|triple| triple.is_ok());
            assert_eq!((check_iri("iri", iri).is_ok(), is_read), (fits, fits), "{iri}");
            // What came in with a graph must come in again with an archive.
            let form = Constraint::Text(1, 2048, Form::Iri).check("iri", &iri.to_owned());
            assert!(form.is_ok() || !fits, "{iri}: {form:?}");
        }
        for (tag, fits) in [
            ("en", true),
            ("de-CH-1996", true),
            ("FR-ca", true),
            ("x-mine", true),
            ("i-klingon", true),
            ("abcdefghij", false),
            ("en-abcdefghij", false),
            ("a", false),
            ("en-x", false),
        ] {
            let line = format!("<http://e/s> <http://e/p> \"o\"@{tag} .");
            let is_read = NTriplesParser::new().for_slice(line.as_bytes()).all(|triple| triple.is_ok());
            assert_eq!((check_language("object_language", tag).is_ok(), is_read), (fits, fits), "{tag}");
        }
        let refused = check_iri("iri", "http://ex/%zz").expect_err("no IRI");
        assert!(refused.status == 422 && refused.members["field"] == "iri", "{refused:?}");
    }
}
