//! Reads the constraints of shapes.
use super::{PATTERNS, Reader, faulty, literal};
use crate::rdf::{
    reading::Object,
    shapes::{Bound, Constraint, Kinds, SH, values::Literal},
};
use regex::RegexBuilder;
use std::sync::Arc;
use svc_client::Failure;

/// The most bytes of a compiled pattern, and as how many a small one counts.
const PATTERN_BYTES: usize = 1 << 20;
const LEAST_PATTERN_BYTES: usize = 16 << 10;
/// The most shapes that the values of a qualified one must not have.
const SIBLINGS: usize = 1_000;

/// The words of SHACL that say nothing about what is valid.
const SILENT: [&str; 6] = ["name", "description", "order", "group", "defaultValue", "declare"];

impl Reader<'_> {
    /// Reads what a word of SHACL demands, if it demands something.
    pub fn constraint(
        &mut self,
        node: usize,
        word: &str,
        object: &Object,
        has_path: bool,
        depth: usize,
        constraints: &mut Vec<Constraint>,
    ) -> Result<(), Failure> {
        let for_paths = ["minCount", "maxCount", "uniqueLang", "lessThan", "lessThanOrEquals", "qualifiedValueShape"];
        if for_paths.contains(&word) && !has_path {
            return Err(self.wrong(node, word, "needs an sh:path beside it"));
        }
        let constraint = match word {
            "class" => {
                let iri = self.named(node, word, object)?;
                Constraint::Class(self.iri(&iri))
            }
            "datatype" => Constraint::Datatype(self.named(node, word, object)?),
            "nodeKind" => {
                let iri = self.named(node, word, object)?;
                let kinds = iri.strip_prefix(SH).and_then(kinds);
                Constraint::Kind(kinds.ok_or_else(|| self.wrong(node, word, "takes a kind of node, such as sh:IRI"))?)
            }
            "minCount" => Constraint::MinCount(self.number(node, word, object)?),
            "maxCount" => Constraint::MaxCount(self.number(node, word, object)?),
            "minLength" => Constraint::MinLength(self.number(node, word, object)?),
            "maxLength" => Constraint::MaxLength(self.number(node, word, object)?),
            "minExclusive" => Constraint::Range(Bound::MinExclusive, self.bound(node, word, object)?),
            "minInclusive" => Constraint::Range(Bound::MinInclusive, self.bound(node, word, object)?),
            "maxExclusive" => Constraint::Range(Bound::MaxExclusive, self.bound(node, word, object)?),
            "maxInclusive" => Constraint::Range(Bound::MaxInclusive, self.bound(node, word, object)?),
            "pattern" => self.pattern(node, object)?,
            "languageIn" => {
                let members = self.list(node, word, object)?;
                let ranges = members.into_iter().map(|member| Ok(self.text(node, word, member)?.to_ascii_lowercase()));
                Constraint::LanguageIn(ranges.collect::<Result<_, Failure>>()?)
            }
            "uniqueLang" => match self.flag(node, word)? {
                true => Constraint::UniqueLanguage,
                false => return Ok(()),
            },
            "equals" | "disjoint" | "lessThan" | "lessThanOrEquals" => {
                let iri = self.named(node, word, object)?;
                let predicate = self.predicate(&iri);
                match word {
                    "equals" => Constraint::Equals(predicate),
                    "disjoint" => Constraint::Disjoint(predicate),
                    "lessThan" => Constraint::LessThan(predicate),
                    _ => Constraint::LessThanOrEquals(predicate),
                }
            }
            "not" => match self.other(node, word, object, depth)? {
                Some(shape) => Constraint::Not(shape),
                None => Constraint::Not(self.empty()),
            },
            "and" => Constraint::And(self.others(node, word, object, depth)?),
            "or" => Constraint::Or(self.others(node, word, object, depth)?),
            "xone" => Constraint::ExactlyOne(self.others(node, word, object, depth)?),
            "node" => match self.other(node, word, object, depth)? {
                Some(shape) => Constraint::Node(shape),
                None => return Ok(()),
            },
            "property" => match self.other(node, word, object, depth)? {
                Some(shape) if self.shapes.shapes[shape].path.is_none() => {
                    return Err(self.wrong(node, word, "takes a shape with an sh:path"));
                }
                Some(shape) => Constraint::Property(shape),
                None => return Ok(()),
            },
            "qualifiedValueShape" => match self.qualified(node, object, depth)? {
                Some(constraint) => constraint,
                None => return Ok(()),
            },
            "closed" => match self.flag(node, word)? {
                true => self.closed(node)?,
                false => return Ok(()),
            },
            "hasValue" => Constraint::HasValue(self.constant(object)),
            "in" => {
                let members = self.list(node, word, object)?;
                Constraint::In(members.into_iter().map(|member| self.constant(member)).collect())
            }
            "path"
            | "severity"
            | "message"
            | "deactivated"
            | "flags"
            | "ignoredProperties"
            | "qualifiedMinCount"
            | "qualifiedMaxCount"
            | "qualifiedValueShapesDisjoint"
            | "targetNode"
            | "targetClass"
            | "targetSubjectsOf"
            | "targetObjectsOf" => return Ok(()),
            word if SILENT.contains(&word) => return Ok(()),
            word => {
                self.unknown.insert(word.chars().take(100).collect());
                return Ok(());
            }
        };
        constraints.push(constraint);
        Ok(())
    }

    fn bound(&self, node: usize, word: &str, object: &Object) -> Result<Literal, Failure> {
        match object {
            Object::Literal { .. } => Ok(literal(object)),
            Object::Node(_) => Err(self.wrong(node, word, "takes a literal")),
        }
    }

    fn pattern(&mut self, node: usize, object: &Object) -> Result<Constraint, Failure> {
        let pattern = self.text(node, "pattern", object)?;
        let flags = match self.graph.values(node, SH, "flags").next() {
            None => String::new(),
            Some(object) => self.text(node, "flags", object)?,
        };
        if let Some(flag) = flags.chars().find(|flag| !"smixq".contains(*flag)) {
            return Err(self.wrong(node, "flags", &format!("has `{flag}`, and only s, m, i, x and q are known")));
        }
        if let Some(known) = self.patterns.get(&(pattern.clone(), flags.clone())) {
            return Ok(Constraint::Pattern(Arc::clone(known)));
        }
        let has = |flag: char| flags.contains(flag);
        let text = if has('q') { regex::escape(&pattern) } else { pattern.clone() };
        let build = |most: usize| {
            RegexBuilder::new(&text)
                .case_insensitive(has('i'))
                .multi_line(has('m'))
                .dot_matches_new_line(has('s'))
                .ignore_whitespace(has('x') && !has('q'))
                .size_limit(most)
                .build()
        };
        // How large it is nobody tells, so it counts as the first size that is enough.
        let mut most = LEAST_PATTERN_BYTES;
        let built = loop {
            match build(most) {
                Err(regex::Error::CompiledTooBig(_)) if most < PATTERN_BYTES => most *= 4,
                built => break built,
            }
        };
        self.pattern_bytes += most;
        if self.pattern_bytes > PATTERNS {
            return Err(faulty(format!("the patterns of the shapes take more than {PATTERNS} bytes")));
        }
        match built {
            Ok(regex) => {
                let regex = Arc::new(regex);
                self.patterns.insert((pattern, flags), Arc::clone(&regex));
                Ok(Constraint::Pattern(regex))
            }
            Err(error) => {
                let shown: String = error.to_string().chars().take(500).collect();
                Err(self.wrong(node, "pattern", &format!("is no pattern that is known here: {shown}")))
            }
        }
    }

    fn qualified(&mut self, node: usize, object: &Object, depth: usize) -> Result<Option<Constraint>, Failure> {
        let graph = self.graph;
        let word = "qualifiedValueShape";
        let Some(shape) = self.other(node, word, object, depth)? else { return Ok(None) };
        let count = |word: &str| match graph.values(node, SH, word).next() {
            None => Ok(None),
            Some(object) => self.number(node, word, object).map(Some),
        };
        let (min, max) = (count("qualifiedMinCount")?, count("qualifiedMaxCount")?);
        let mut others = Vec::new();
        if self.flag(node, "qualifiedValueShapesDisjoint")? {
            let mut beside: Vec<usize> = Vec::new();
            for parent in graph.parents(node) {
                for sibling in graph.values(*parent, SH, "property") {
                    let Object::Node(sibling) = sibling else { continue };
                    for shape in graph.values(*sibling, SH, word) {
                        if let (true, Object::Node(shape)) = (*sibling != node, shape) {
                            beside.push(*shape);
                        }
                    }
                    if beside.len() > SIBLINGS {
                        return Err(self.wrong(node, word, &format!("stands beside more than {SIBLINGS} others")));
                    }
                }
            }
            beside.sort_unstable();
            beside.dedup();
            let own = |other: &usize| matches!(object, Object::Node(own) if own == other);
            for other in beside.into_iter().filter(|other| !own(other)) {
                others.extend(self.shape(other, depth + 1)?);
            }
        }
        Ok(Some(Constraint::Qualified { shape, others, min, max }))
    }

    fn closed(&mut self, node: usize) -> Result<Constraint, Failure> {
        let graph = self.graph;
        let mut allowed = Vec::new();
        for list in graph.values(node, SH, "ignoredProperties") {
            for member in self.list(node, "ignoredProperties", list)? {
                allowed.push(self.named(node, "ignoredProperties", member)?);
            }
        }
        for property in graph.values(node, SH, "property") {
            let Object::Node(property) = property else { continue };
            for path in graph.values(*property, SH, "path") {
                if let Object::Node(path) = path {
                    allowed.extend(graph.iri(*path).map(str::to_owned));
                }
            }
        }
        Ok(Constraint::Closed(allowed.iter().map(|iri| self.predicate(iri)).collect()))
    }
}

fn kinds(word: &str) -> Option<Kinds> {
    let (iri, blank, literal) = match word {
        "IRI" => (true, false, false),
        "BlankNode" => (false, true, false),
        "Literal" => (false, false, true),
        "BlankNodeOrIRI" => (true, true, false),
        "BlankNodeOrLiteral" => (false, true, true),
        "IRIOrLiteral" => (true, false, true),
        _ => return None,
    };
    Some(Kinds { iri, blank, literal })
}
