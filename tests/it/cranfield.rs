//! Cranfield's abstracts, questions and judgements.
use std::collections::{BTreeSet, HashMap};

pub struct Cranfield {
    pub docs: Vec<(i64, String)>,
    /// Each question with what answers it.
    pub queries: Vec<(String, BTreeSet<i64>)>,
}

/// `None` if the collection is not beside the repository.
pub fn read() -> Option<Cranfield> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/ir");
    let Ok(docs) = std::fs::read_to_string(folder.join("cran.all.1400.xml")) else {
        crate::support::left_out("nDCG@10 on Cranfield (no ../shared/ir)");
        return None;
    };
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("beside the documents");
    let between = |text: &str, tag: &str| -> String {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        let start = text.find(&open).map_or(0, |at| at + open.len());
        text[start..text[start..].find(&close).map_or(text.len(), |at| start + at)].to_owned()
    };
    let docs = docs
        .split("<doc>")
        .skip(1)
        .map(|doc| {
            let id = between(doc, "docno").trim().parse().expect("a number");
            (id, format!("{}\n{}", between(doc, "title"), between(doc, "text")))
        })
        .collect();
    let mut relevant: HashMap<usize, BTreeSet<i64>> = HashMap::new();
    for line in read("cranqrel.trec.txt").lines() {
        let columns: Vec<&str> = line.split_whitespace().collect();
        if let [query, _, document, grade] = columns[..]
            && grade.parse::<i32>().is_ok_and(|grade| grade > 0)
        {
            let query: usize = query.parse().expect("a number");
            relevant.entry(query).or_default().insert(document.parse().expect("a number"));
        }
    }
    let questions = read("cran.qry.xml");
    let queries = questions.split("<top>").skip(1).map(|top| between(top, "title")).enumerate();
    let queries = queries.filter_map(|(at, query)| Some((query, relevant.remove(&(at + 1))?))).collect();
    Some(Cranfield { docs, queries })
}

/// nDCG@10 of what was found.
pub fn ndcg(found: &[i64], relevant: &BTreeSet<i64>) -> f64 {
    let discount = |rank: usize| 1.0 / (rank as f64 + 2.0).log2();
    let gained: f64 =
        found.iter().take(10).enumerate().filter(|(_, id)| relevant.contains(id)).map(|(rank, _)| discount(rank)).sum();
    gained / (0..relevant.len().min(10)).map(discount).sum::<f64>()
}
