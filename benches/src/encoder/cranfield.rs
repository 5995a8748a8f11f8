//! The Cranfield collection (abstracts, questions, judgements), and how well a ranking answers its questions.
use crate::figure::BoxError;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
};

/// How many results count.
const DEPTH: usize = 10;

pub struct Cranfield {
    /// Title and text.
    pub documents: Vec<String>,
    pub questions: Vec<String>,
    /// For each question the positions of its relevant documents; questions without any are absent.
    relevant: BTreeMap<usize, HashSet<usize>>,
}

impl Cranfield {
    /// Reads the collection from `shared/ir` beside the repository.
    pub fn read() -> Result<Self, BoxError> {
        Self::read_from(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/ir"))
    }

    /// Reads another collection in the same form, whose files have the same names.
    pub fn read_from(folder: &Path) -> Result<Self, BoxError> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}; this bench needs it", path.display()))
        };
        let (documents, questions, judgements) =
            (read("cran.all.1400.xml")?, read("cran.qry.xml")?, read("cranqrel.trec.txt")?);
        let (mut texts, mut places) = (Vec::new(), HashMap::new());
        for document in documents.split("<doc>").skip(1) {
            places.insert(between(document, "docno"), texts.len());
            texts.push(format!("{}\n{}", between(document, "title"), between(document, "text")));
        }
        let mut relevant: BTreeMap<usize, HashSet<usize>> = BTreeMap::new();
        for line in judgements.lines() {
            let columns: Vec<&str> = line.split_whitespace().collect();
            if let [question, _, document, grade] = columns[..]
                && grade.parse::<i32>()? > 0
                && let Some(&place) = places.get(document)
            {
                // Questions are numbered by their position, from 1.
                relevant.entry(question.parse::<usize>()? - 1).or_default().insert(place);
            }
        }
        let questions =
            questions.split("<top>").skip(1).map(|question| between(question, "title").to_owned()).collect();
        Ok(Self { documents: texts, questions, relevant })
    }

    /// The positions of the relevant documents by those of the questions that have some.
    pub fn relevant(&self) -> &BTreeMap<usize, HashSet<usize>> {
        &self.relevant
    }

    /// The mean nDCG@10 over the questions that have relevant documents and scores. `score` returns the scores of all
    /// documents for a question.
    pub fn ndcg(&self, score: impl Fn(usize) -> Option<Vec<f32>>) -> f64 {
        let discount = |place: usize| 1.0 / (place as f64 + 2.0).log2();
        let of_question = |(&question, relevant): (&usize, &HashSet<usize>)| {
            let scores = score(question)?;
            let found = first(&scores);
            let found = found.iter().enumerate().filter(|(_, document)| relevant.contains(document));
            let gain: f64 = found.map(|(place, _)| discount(place)).sum();
            Some(gain / (0..relevant.len().min(DEPTH)).map(discount).sum::<f64>())
        };
        let of_questions: Vec<f64> = self.relevant.iter().filter_map(of_question).collect();
        of_questions.iter().sum::<f64>() / of_questions.len() as f64
    }
}

/// The best documents, best first.
pub fn first(scores: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&left, &right| scores[right].total_cmp(&scores[left]).then(left.cmp(&right)));
    order.truncate(DEPTH);
    order
}

fn between<'a>(text: &'a str, tag: &str) -> &'a str {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let start = text.find(&open).map_or(0, |at| at + open.len());
    text[start..text[start..].find(&close).map_or(text.len(), |at| start + at)].trim()
}
