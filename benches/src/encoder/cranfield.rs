//! The Cranfield collection (abstracts, questions, judgements), and how well a ranking answers its questions.
use crate::figure::BoxError;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
};

/// How many results count.
const DEPTH: usize = 10;

/// That a document is relevant for a question, and the line that says so.
struct Judgement<'a> {
    line: usize,
    question: usize,
    document: &'a str,
}

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
        let judgements = judged(&judgements);
        let parsed = judgements.and_then(|judgements| Self::of(&documents, &questions, &judgements));
        parsed.map_err(|error| format!("{}: {error}", folder.join("cranqrel.trec.txt").display()).into())
    }

    fn of(documents: &str, questions: &str, judgements: &[Judgement<'_>]) -> Result<Self, String> {
        let (mut texts, mut places) = (Vec::new(), HashMap::new());
        for document in documents.split("<doc>").skip(1) {
            places.insert(between(document, "docno"), texts.len());
            texts.push(format!("{}\n{}", between(document, "title"), between(document, "text")));
        }
        let tops: Vec<&str> = questions.split("<top>").skip(1).collect();
        let numbers: HashMap<usize, usize> =
            tops.iter().enumerate().filter_map(|(place, top)| Some((number(top)?, place))).collect();
        // Those of Cranfield name a question by its position, from 1, whatever its number is.
        let are_positions = judgements.iter().any(|judgement| !numbers.contains_key(&judgement.question))
            && judgements.iter().all(|judgement| (1..=tops.len()).contains(&judgement.question));
        let mut relevant: BTreeMap<usize, HashSet<usize>> = BTreeMap::new();
        for Judgement { line, question, document } in judgements {
            let asked = match are_positions {
                true => question.checked_sub(1),
                false => numbers.get(question).copied(),
            };
            let asked =
                asked.ok_or_else(|| format!("line {line} is about the question {question}, which is not there"))?;
            let place = places
                .get(document)
                .ok_or_else(|| format!("line {line} names the document {document}, which is not there"))?;
            relevant.entry(asked).or_default().insert(*place);
        }
        let questions = tops.iter().map(|top| between(top, "title").to_owned()).collect();
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

/// The judgements of lines with a question, a column that is not used, a document and a grade; a grade of 0 or less says that it is not relevant.
fn judged(text: &str) -> Result<Vec<Judgement<'_>>, String> {
    let mut judgements = Vec::new();
    for (line, columns) in text.lines().enumerate() {
        let line = line + 1;
        let columns: Vec<&str> = columns.split_whitespace().collect();
        if columns.is_empty() {
            continue;
        }
        let [question, _, document, grade] = columns[..] else {
            return Err(format!("line {line} has {} columns instead of four", columns.len()));
        };
        let question: usize =
            question.parse().map_err(|_| format!("line {line}: the question {question} is no number"))?;
        let grade: i32 = grade.parse().map_err(|_| format!("line {line}: the grade {grade} is no number"))?;
        if grade > 0 {
            judgements.push(Judgement { line, question, document });
        }
    }
    Ok(judgements)
}

/// The number of a question, which may have the word for it before it, and no tag behind it.
fn number(top: &str) -> Option<usize> {
    let text = top.split_once("<num>")?.1.split('<').next()?;
    text.split_whitespace().next_back()?.parse().ok()
}

fn between<'a>(text: &'a str, tag: &str) -> &'a str {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let start = text.find(&open).map_or(0, |at| at + open.len());
    text[start..text[start..].find(&close).map_or(text.len(), |at| start + at)].trim()
}

#[cfg(test)]
mod tests {
    use super::{Cranfield, judged};
    use std::collections::{BTreeMap, HashSet};

    const DOCUMENTS: &str = "<doc><docno>a</docno><title>A</title><text>one</text></doc>
        <doc><docno>b</docno><title>B</title><text>two</text></doc>";

    fn relevant(numbers: [&str; 2], judgements: &str) -> Result<BTreeMap<usize, HashSet<usize>>, String> {
        let questions: String =
            numbers.iter().map(|number| format!("<top><num>{number}</num><title>?</title></top>")).collect();
        Ok(Cranfield::of(DOCUMENTS, &questions, &judged(judgements)?)?.relevant)
    }

    #[test]
    fn a_judgement_names_its_question_by_number_or_else_by_position() {
        let second = BTreeMap::from([(1, HashSet::from([0]))]);
        assert_eq!(relevant([" 301", "Number: 303"], "303 0 a 1\n\n301 0 b 0\n"), Ok(second.clone()));
        // The numbers of Cranfield have gaps, and its judgements have none.
        let both = BTreeMap::from([(0, HashSet::from([1])), (1, HashSet::from([0]))]);
        assert_eq!(relevant(["1", "4"], "1 0 b 1\n2 0 a 3\n"), Ok(both));
        assert_eq!(relevant(["", ""], "2\t0\ta\t1\n"), Ok(second));
    }

    #[test]
    fn a_judgement_of_what_is_not_there_is_refused_by_its_line() {
        for (judgements, refused) in [
            ("301 0 a 1\n9 0 a 1\n", "line 2 is about the question 9, which is not there"),
            ("0 0 a 1\n", "line 1 is about the question 0, which is not there"),
            ("301 0 c 1\n", "line 1 names the document c, which is not there"),
            ("301 0 a\n", "line 1 has 3 columns instead of four"),
            ("301 0 a high\n", "line 1: the grade high is no number"),
        ] {
            assert_eq!(relevant(["301", "303"], judgements), Err(refused.to_owned()));
        }
    }
}
