//! Papers of arXiv, by id or by address.
use super::{
    HTML, Made,
    pages::{fetch, parse, pdf_at, read, unusable},
};
use crate::{access::Caller, admission::Admission, core::Core, fetch::Url, store::evidence::Evidence};
use serde_json::{Map, Value, json};
use svc_client::{Code, Failure, wire::EntrySource};

/// The hosts whose addresses name papers, besides the one of the setting.
const HOSTS: &[&str] = &["arxiv.org", "www.arxiv.org", "export.arxiv.org"];

/// Fetches the page that describes a paper, and its PDF file.
pub(super) async fn made(
    core: &Core,
    admission: &Admission,
    caller: &Caller,
    paper: &str,
    source: EntrySource,
    accepts: &[&str],
) -> Result<Made, Failure> {
    let base = &core.settings.arxiv_url;
    if base.is_empty() {
        let detail = "no papers can be fetched here, because SVC_ARXIV_URL is blank";
        return Err(Failure::new(Code::NotConfigured, detail).with("setting", "SVC_ARXIV_URL"));
    }
    let id = match source {
        EntrySource::Url => id_in(&parse(paper)?, base),
        _ => id(paper),
    };
    let id = id.ok_or_else(|| {
        let takes = "takes a paper such as 2301.00001, 2301.00001v2 or hep-th/9901001, or the address of one";
        Failure::field(source.as_str(), takes)
    })?;
    let described = fetch(core, parse(&format!("{base}/abs/{id}"))?, HTML).await?;
    let page = read(core, admission, caller, &described).await?;
    let facts = facts(&id, &page.citation);
    let Some(title) = facts.get("title").and_then(Value::as_str).map(str::to_owned) else {
        return Err(unusable(&described.url, &format!("its page of {id} does not describe a paper")));
    };
    let mut made = pdf_at(core, parse(&format!("{base}/pdf/{id}"))?, accepts).await?;
    made.title = Some(title);
    made.evidence.push((Evidence::Arxiv, facts.into()));
    Ok(made)
}

/// What the page of a paper says of it.
fn facts(id: &str, citation: &[(String, String)]) -> Map<String, Value> {
    let all = |name: &str| citation.iter().filter(|(other, _)| other == name).map(|(_, value)| value.clone()).collect();
    let first = |name: &str| citation.iter().find(|(other, _)| other == name).map(|(_, value)| json!(value));
    let authors: Vec<String> = all("citation_author");
    let facts = [
        ("id", Some(json!(id))),
        ("title", first("citation_title").filter(|title| title != "")),
        ("authors", (!authors.is_empty()).then(|| json!(authors))),
        ("abstract", first("citation_abstract")),
        ("date", first("citation_date")),
        ("updated", first("citation_online_date")),
        ("doi", first("citation_doi")),
    ];
    facts.into_iter().filter_map(|(name, fact)| Some((name.to_owned(), fact?))).collect()
}

/// The id of the paper at an address of arXiv: the last part of `/abs/2301.00001`, `/pdf/hep-th/9901001v1.pdf` and the
/// like.
fn id_in(url: &Url, base: &str) -> Option<String> {
    let host = url.host_str()?;
    let own = Url::parse(base).ok().is_some_and(|base| base.host_str() == Some(host) && base.port() == url.port());
    if !own && !HOSTS.contains(&host) {
        return None;
    }
    let (kind, paper) = url.path().trim_start_matches('/').split_once('/')?;
    if !["abs", "pdf", "html", "format"].contains(&kind) {
        return None;
    }
    id(paper.trim_end_matches('/').trim_end_matches(".pdf"))
}

/// The id of a paper in its written forms, without the prefix `arXiv:`.
fn id(text: &str) -> Option<String> {
    let text = text.trim();
    let text = match text.get(..6) {
        Some(prefix) if prefix.eq_ignore_ascii_case("arxiv:") => text[6..].trim_start(),
        _ => text,
    };
    let (paper, version) = match text.rsplit_once('v') {
        Some((paper, version)) if digits(version, 1, 3) => (paper, Some(version)),
        _ => (text, None),
    };
    let known = match (paper.split_once('/'), paper.split_once('.')) {
        // The older form: archive, perhaps a class, year and number.
        (Some((archive, number)), _) => {
            let (archive, class) = archive.split_once('.').unwrap_or((archive, "AA"));
            let is_archive = !archive.is_empty() && archive.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            let is_class = class.len() == 2 && class.chars().all(|c| c.is_ascii_uppercase());
            archive.len() <= 20 && is_archive && is_class && digits(number, 7, 7)
        }
        (None, Some((month, number))) => digits(month, 4, 4) && digits(number, 4, 5),
        (None, None) => false,
    };
    known.then(|| version.map_or(paper.to_owned(), |version| format!("{paper}v{version}")))
}

fn digits(text: &str, least: usize, most: usize) -> bool {
    (least..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paper_has_an_old_or_a_new_id() {
        for (text, expected) in [
            ("2301.00001", "2301.00001"),
            (" arXiv:2301.00001v12 ", "2301.00001v12"),
            ("0704.0001", "0704.0001"),
            ("hep-th/9901001", "hep-th/9901001"),
            ("math.GT/0309136v1", "math.GT/0309136v1"),
            ("ARXIV: cs/0112017", "cs/0112017"),
        ] {
            assert_eq!(id(text).as_deref(), Some(expected), "{text}");
        }
        for bad in [
            "",
            "2301",
            "2301.001",
            "2301.000001",
            "2301.00001v",
            "2301.00001v1000",
            "hep-th/99",
            "../etc/passwd",
            "HEP/9901001",
            "a/b/9901001",
            "math.gt/0309136",
            "2301.00001?x=1",
            "é301.00001",
            "arXiv",
        ] {
            assert_eq!(id(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_address_of_arxiv_names_its_paper() {
        for (url, expected) in [
            ("https://arxiv.org/abs/2301.00001", Some("2301.00001")),
            ("http://www.arxiv.org/pdf/2301.00001v2.pdf", Some("2301.00001v2")),
            ("https://export.arxiv.org/abs/hep-th/9901001", Some("hep-th/9901001")),
            ("http://127.0.0.1:81/html/2301.00001/", Some("2301.00001")),
            ("http://127.0.0.1:82/abs/2301.00001", None),
            ("https://example.org/abs/2301.00001", None),
            ("https://arxiv.org/list/2301.00001", None),
            ("https://arxiv.org/abs/", None),
        ] {
            let url = crate::fetch::parse(url).expect("an address");
            assert_eq!(id_in(&url, "http://127.0.0.1:81").as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn what_a_page_cites_becomes_facts() {
        let tag = |name: &str, value: &str| (format!("citation_{name}"), value.to_owned());
        let tags =
            [tag("title", "Herons"), tag("author", "Onym, Ann"), tag("author", "Body, Some"), tag("doi", "10/x")];
        let expected =
            json!({"id": "2301.00001", "title": "Herons", "authors": ["Onym, Ann", "Body, Some"], "doi": "10/x"});
        assert_eq!(Value::from(facts("2301.00001", &tags)), expected);
    }
}
