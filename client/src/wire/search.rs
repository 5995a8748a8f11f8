//! Finding documents.
use crate::{
    Failure,
    constraint::{CURSOR, Constraint, Form, NAME, constrain, shows_embed},
    operation::{Params, Wire},
    wire::{
        ContextConfig, DocumentField, Facet, SearchFilter, SortBy, SortOrder, Sorting,
        facets::FACETS,
        fields::{FIELD_LIST, FIELDS, check_alone, check_list},
        filter::filter_constraints,
        sorting::{SORT_TOP, check_sorting},
    },
    words::wire_words,
};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

macro_rules! search_body { ($(#[doc = $doc:literal])* $name:ident by $group:ident { $( $(#[doc = $fdoc:literal])* $field:ident: $type:ty, )* } $(own { $( $(#[doc = $odoc:literal])* $own:ident: $otype:ty, )* })? constrain { $($constraints:tt)* } check $check:expr) => {
    $(#[doc = $doc])*
    #[derive(Clone, Debug, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(ToSchema))]
    #[serde(deny_unknown_fields)]
    pub struct $name {
        /// The query, not all of it white space.
        pub query: String,
        /// The name of a search context, whose values stand for what is absent here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub context: Option<String>,
        /// Finds only documents under this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent_id: Option<i64>,
        /// The number of results; 10 by default.
        #[serde(default = "default_limit")]
        pub limit: u32,
        /// Finds only documents with these usetypes; by default with any but those that `SVC_SEARCH_EXCLUDE_USETYPES` names.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub usetype: Option<Vec<String>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub filter: Option<SearchFilter>,
        /// Ranks the best candidates again by a closer look; if that is impossible, the request fails.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub rerank: Option<bool>,
        /// How to rank again; `cross_encoder` by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub rerank_method: Option<RerankMethod>,
        /// How many candidates are ranked again, never fewer than `limit`; 50 by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub rerank_top: Option<u32>,
        /// Below 1, results that are like earlier ones come later (maximal marginal relevance).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub mmr_lambda: Option<f64>,
        /// With each span of so many days a result counts half.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub recency_half_life_days: Option<f64>,
        /// What decides the order of the best `sort_top` results; `score` by default. It does not go with `rerank`, `mmr_lambda` and `recency_half_life_days`, and
        /// takes the place of those of a context.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub sort: Option<SortBy>,
        /// By default `desc` for times and `asc` for titles.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub sort_order: Option<SortOrder>,
        /// How many of the best results, or groups of them, are sorted, never fewer than the `limit` of the first page; 100 by default. `sorted` says whether these are all that match.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub sort_top: Option<u32>,
        /// Whether to include the results' texts; true by default. What does not fit into 8 MiB (`SVC_PAGE_BYTES`) is left out, and `omitted` says so.
        #[serde(default = "include_content")]
        pub include_content: bool,
        /// Whether to include the results' 768-dimension vectors.
        #[serde(default)]
        pub include_embed: bool,
        /// What the answer shows of each document: these fields alone, also of `hits`. It takes the place of `include_content` and `include_embed`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub fields: Option<Vec<DocumentField>>,
        /// Whether a file or a section stands for the texts in it; by default `file` for `POST /search/auto`, otherwise `none`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub group_by: Option<GroupBy>,
        /// Whether groups are ordered by their whole and their best text together, in a search by `vector` or `hybrid`; by default, by their best result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub with_whole: Option<bool>,
        /// The most `hits` that a group shows; 1 by default.
        #[serde(default = "default_per_group")]
        pub per_group: u32,
        /// Whether to include the piece of each result that shows why it was found; by default if `group_by` is not `none`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub snippets: Option<bool>,
        /// Goes on behind an earlier page of the same search: its `next_cursor`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cursor: Option<String>,
        /// Whether each result says its rank and score in every stage that ranked it (`legs`). `hybrid` always does.
        #[serde(default)]
        pub include_scores: bool,
        /// Whether the answer says how the search came to it: its legs, their ways, and what took how long (`explanation`).
        #[serde(default)]
        pub explain: bool,
        /// Whether the nearest word stands for each word of the query that no text has which may be found (`searched_instead`).
        #[serde(default)]
        pub forgiving: bool,
        /// Counts of all that matches, 1 to 10. They count what `total` counts: documents, or groups of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub facets: Option<Vec<Facet>>,
        $( $(#[doc = $fdoc])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $field: Option<$type>, )*
        $($( $(#[doc = $odoc])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $own: Option<$otype>, )*)?
    }
    impl $name {
        /// A search with all defaults.
        pub fn new(query: &str) -> $name {
            $name {
                query: query.to_owned(), context: None, parent_id: None, limit: default_limit(), usetype: None, filter: None,
                rerank: None, rerank_method: None, rerank_top: None, mmr_lambda: None, recency_half_life_days: None,
                sort: None, sort_order: None, sort_top: None, include_content: true, include_embed: false, fields: None,
                group_by: None, with_whole: None, per_group: default_per_group(), snippets: None, cursor: None, include_scores: false, explain: false, forgiving: false, facets: None, $( $field: None, )* $($( $own: None, )*)?
            }
        }

        /// Takes from a context what is absent here.
        pub fn fill(&mut self, context: &ContextConfig) {
            self.parent_id = self.parent_id.or(context.parent_id);
            self.usetype = self.usetype.take().or_else(|| context.usetype.clone());
            self.filter = self.filter.take().or_else(|| context.filter.clone());
            if self.sorting().is_none() {
                self.rerank = self.rerank.or(context.rerank);
                self.rerank_method = self.rerank_method.or(context.rerank_method);
                self.rerank_top = self.rerank_top.or(context.rerank_top);
                self.mmr_lambda = self.mmr_lambda.or(context.mmr_lambda);
                self.recency_half_life_days = self.recency_half_life_days.or(context.recency_half_life_days);
            }
            self.group_by = self.group_by.or(context.group_by);
            self.with_whole = self.with_whole.or(context.with_whole);
            $( self.$field = self.$field.take().or_else(|| context.$field.clone()); )*
        }

        /// How the candidates are ranked again, if they are.
        pub fn second_stage(&self) -> Option<RerankMethod> {
            self.rerank.unwrap_or_default().then(|| self.rerank_method.unwrap_or_default())
        }

        /// How the results are sorted, if their scores do not decide.
        pub fn sorting(&self) -> Option<Sorting> {
            Sorting::of(self.sort, self.sort_order, self.sort_top)
        }

        /// What stands for the texts that are found.
        pub fn grouping(&self) -> GroupBy {
            self.group_by.unwrap_or(GroupBy::$group)
        }

        /// Whether to show snippets.
        pub fn shows_snippets(&self) -> bool {
            self.snippets.unwrap_or(self.grouping() != GroupBy::None)
        }

        /// How many results the first stage is asked for.
        pub fn depth(&self) -> u32 {
            if let Some(sorting) = self.sorting() {
                return sorting.top.max(self.limit);
            }
            let keeps_order = self.mmr_lambda.is_none_or(|lambda| lambda >= 1.0) && self.recency_half_life_days.is_none();
            match self.second_stage() {
                None if keeps_order => self.limit,
                _ => self.rerank_top.unwrap_or(RERANK_TOP).max(self.limit),
            }
        }
    }
    impl Wire for $name {
        shows_embed! {}
        fn constraints() -> Vec<(&'static str, Constraint)> {
            let mut all = vec![("query", QUERY), ("context", NAME), ("limit", LIMIT), ("usetype", USETYPES), ("rerank_top", LIMIT), ("sort_top", SORT_TOP), ("per_group", PER_GROUP), ("cursor", CURSOR), ("facets", FACETS), ("fields", FIELDS), ("mmr_lambda", SHARE), ("recency_half_life_days", HALF_LIFE)];
            all.extend(filter_constraints!("filter"));
            all.extend_from_slice(&[$($constraints)*]);
            all
        }
        fn check(&self) -> Result<(), Failure> {
            QUERY.check("query", &self.query)?;
            NAME.check("context", &self.context)?;
            LIMIT.check("limit", &self.limit)?;
            USETYPES.check("usetype", &self.usetype)?;
            self.filter.as_ref().map_or(Ok(()), |filter| filter.check("filter"))?;
            LIMIT.check("rerank_top", &self.rerank_top)?;
            PER_GROUP.check("per_group", &self.per_group)?;
            CURSOR.check("cursor", &self.cursor)?;
            SHARE.check("mmr_lambda", &self.mmr_lambda)?;
            HALF_LIFE.check("recency_half_life_days", &self.recency_half_life_days)?;
            check_sorting(self.sort, self.sort_order, self.sort_top, &[
                ("rerank", self.rerank == Some(true)),
                ("mmr_lambda", self.mmr_lambda.is_some()),
                ("recency_half_life_days", self.recency_half_life_days.is_some()),
            ])?;
            FIELDS.check("fields", &self.fields)?;
            check_alone(self.fields.is_some(), self.include_content, self.include_embed)?;
            FACETS.check("facets", &self.facets)?;
            for (place, facet) in self.facets.iter().flatten().enumerate() {
                facet.check(&format!("facets[{place}]"))?;
            }
            let check: fn(&$name) -> Result<(), Failure> = $check;
            check(self)
        }
    }
} }

/// The query.
pub(super) const QUERY: Constraint = Constraint::Text(1, 8000, Form::NotBlank);
/// The number of results, or of candidates for a second stage.
pub(super) const LIMIT: Constraint = Constraint::Whole(1, 100);
/// How many candidates a second stage ranks by default.
const RERANK_TOP: u32 = 50;
/// How many texts a language model reads.
const MAX_SOURCES: Constraint = Constraint::Whole(1, 20);
/// How many texts a group shows.
pub(super) const PER_GROUP: Constraint = Constraint::Whole(1, 10);
/// An empty list would find nothing, which nobody wants.
pub(super) const USETYPES: Constraint = Constraint::List(1, 100, Some(&NAME));
/// How much relevance counts.
pub(super) const SHARE: Constraint = Constraint::Number(0.0, 1.0);
/// In days, of which a thousandth is a minute and a half.
pub(super) const HALF_LIFE: Constraint = Constraint::Number(0.001, 100_000.0);
/// A cosine.
pub(super) const SIMILARITY: Constraint = Constraint::Number(-1.0, 1.0);
/// How much a leg counts.
pub(super) const WEIGHT: Constraint = Constraint::Number(0.0, 1000.0);

search_body! {
    /// Searches by cosine similarity; the score is the cosine.
    VectorSearch by None {
        /// Leaves out less similar documents; -1 to 1.
        min_similarity: f64,
    } constrain { ("min_similarity", SIMILARITY) } check |body| SIMILARITY.check("min_similarity", &body.min_similarity)
}
search_body! {
    /// Searches by PostgreSQL full text: words, "phrases", or, -not.
    FulltextSearch by None {} constrain {} check |_| Ok(())
}
search_body! {
    /// Searches by BM25; the score is BM25's.
    Bm25Search by None {
        /// The index to search; if absent, the index `default`.
        index: String,
        /// Whether terms of the best texts of a first search are added to the query (RM3); false by default.
        expand: bool,
    } constrain { ("index", NAME) } check |body| NAME.check("index", &body.index)
}
search_body! {
    /// Searches by late interaction: each of the query's tokens is matched with the nearest token of a document. The
    /// candidates are those of vector and BM25; the score is the sum of the cosines.
    MaxsimSearch by None {
        /// The BM25 index; if absent, the index `default`.
        index: String,
    } constrain { ("index", NAME) } check |body| NAME.check("index", &body.index)
}
search_body! {
    /// Searches by rank fusion: each leg adds `weight / (60 + rank)`. With `fusion` `score`, by the scores of the legs.
    HybridSearch by None {
        /// By default vector 0.86 and bm25 0.14; with an empty object, equal weights.
        weights: HybridWeights,
        /// By what the legs count together; `rank` by default.
        fusion: Fusion,
        /// The BM25 index; if absent, the index `default`.
        index: String,
        /// Whether terms of the best texts of a first search are added to the query of BM25 (RM3); false by default.
        expand: bool,
    } constrain { ("weights.vector", WEIGHT), ("weights.bm25", WEIGHT), ("index", NAME) } check |body| {
        NAME.check("index", &body.index)?;
        body.weights.map_or(Ok(()), |weights| weights.check())
    }
}
search_body! {
    /// Searches by the method that suits the query, or by that of the context.
    AutoSearch by File {
        /// How much each leg counts where the method is `hybrid`; equal weights by default.
        weights: HybridWeights,
        /// By what the legs count together where the method is `hybrid`; `rank` by default.
        fusion: Fusion,
        /// The BM25 index; if absent, the index `default`.
        index: String,
        /// Whether terms of the best texts of a first search are added to the query of BM25 (RM3), where the method is `bm25` or `hybrid`; by default, where the query and no context chooses `hybrid`, and at least three documents are among the first ten of both legs.
        expand: bool,
    } constrain { ("weights.vector", WEIGHT), ("weights.bm25", WEIGHT), ("index", NAME) } check |body| {
        NAME.check("index", &body.index)?;
        body.weights.map_or(Ok(()), |weights| weights.check())
    }
}

search_body! {
    /// Searches templates, by a method that suits the query unless the body names one.
    TemplateSearch by None {
        method: SearchMethod,
        /// Leaves out less similar templates in a search by `vector`; -1 to 1.
        min_similarity: f64,
        /// How much each leg counts where the method is `hybrid`; equal weights by default.
        weights: HybridWeights,
        /// By what the legs count together where the method is `hybrid`; `rank` by default.
        fusion: Fusion,
        /// The BM25 index; if absent, the index `default`.
        index: String,
        /// Whether terms of the best texts of a first search are added to the query of BM25 (RM3), where the method is `bm25` or `hybrid`; by default as in `POST /search/auto` if the body names no method, otherwise false.
        expand: bool,
    } constrain { ("min_similarity", SIMILARITY), ("weights.vector", WEIGHT), ("weights.bm25", WEIGHT), ("index", NAME) } check |body| {
        SIMILARITY.check("min_similarity", &body.min_similarity)?;
        NAME.check("index", &body.index)?;
        body.weights.map_or(Ok(()), |weights| weights.check())?;
        check_known(
            body.method,
            [body.min_similarity.is_some(), body.weights.is_some(), body.fusion.is_some(), body.index.is_some(), body.expand.is_some()],
        )
    }
}
search_body! {
    /// Searches for the sources of an answer, by a method that suits the question.
    SynthesizeSearch by None {
        /// How much each leg counts where the method is `hybrid`; equal weights by default.
        weights: HybridWeights,
        /// By what the legs count together where the method is `hybrid`; `rank` by default.
        fusion: Fusion,
        /// The BM25 index; if absent, the index `default`.
        index: String,
        /// Whether terms of the best texts of a first search are added to the query of BM25 (RM3), where the method is `bm25` or `hybrid`; by default, where the query and no context chooses `hybrid`, and at least three documents are among the first ten of both legs.
        expand: bool,
    } own {
        /// The most texts that the language model reads, 1 to 20; 8 by default.
        max_sources: u32,
    } constrain { ("max_sources", MAX_SOURCES), ("weights.vector", WEIGHT), ("weights.bm25", WEIGHT), ("index", NAME) } check |body| {
        MAX_SOURCES.check("max_sources", &body.max_sources)?;
        if body.cursor.is_some() {
            return Err(Failure::field("cursor", "is not for answers: they are made of the best texts"));
        }
        if body.facets.is_some() {
            return Err(Failure::field("facets", "is not for answers").with("remedy", "ask POST /search/auto for counts"));
        }
        if body.sort.is_some() {
            return Err(Failure::field("sort", "is not for answers: they are made of the best texts"));
        }
        if body.explain {
            return Err(Failure::field("explain", "is not for answers").with("remedy", "ask POST /search/auto to explain"));
        }
        if body.forgiving {
            return Err(Failure::field("forgiving", "is not for answers: they are of the question as it was asked"));
        }
        NAME.check("index", &body.index)?;
        body.weights.map_or(Ok(()), |weights| weights.check())
    }
}
search_body! {
    /// One of several searches: by the method that it names, or by the one that suits the query.
    MethodSearch by None {
        method: SearchMethod,
        /// Leaves out less similar documents in a search by `vector`; -1 to 1.
        min_similarity: f64,
        /// How much each leg counts where the method is `hybrid`; by default as in a search that is asked alone.
        weights: HybridWeights,
        /// By what the legs count together where the method is `hybrid`; by default as in a search that is asked alone.
        fusion: Fusion,
        /// The BM25 index; if absent, the index `default`.
        index: String,
        /// Whether terms of the best texts of a first search are added to the query of BM25 (RM3), where the method is `bm25` or `hybrid`; by default as in a search that is asked alone.
        expand: bool,
    } constrain { ("min_similarity", SIMILARITY), ("weights.vector", WEIGHT), ("weights.bm25", WEIGHT), ("index", NAME) } check |body| {
        SIMILARITY.check("min_similarity", &body.min_similarity)?;
        NAME.check("index", &body.index)?;
        body.weights.map_or(Ok(()), |weights| weights.check())?;
        check_known(
            body.method,
            [body.min_similarity.is_some(), body.weights.is_some(), body.fusion.is_some(), body.index.is_some(), body.expand.is_some()],
        )
    }
}

/// Refuses a field that is given and that the method, or the choice of one, does not know.
fn check_known(
    method: Option<SearchMethod>,
    [has_min_similarity, has_weights, has_fusion, has_index, has_expand]: [bool; 5],
) -> Result<(), Failure> {
    use SearchMethod::{Bm25, Hybrid, Maxsim, Vector};
    // Each with the methods that know it, and whether it goes without a method.
    let fields: [(&str, bool, &[SearchMethod], bool); 5] = [
        ("min_similarity", has_min_similarity, &[Vector], false),
        ("weights", has_weights, &[Hybrid], true),
        ("fusion", has_fusion, &[Hybrid], true),
        ("index", has_index, &[Bm25, Maxsim, Hybrid], true),
        ("expand", has_expand, &[Bm25, Hybrid], true),
    ];
    for (field, is_given, known_by, is_free) in fields {
        if is_given && !method.map_or(is_free, |method| known_by.contains(&method)) {
            let names: Vec<&str> = known_by.iter().map(|method| method.as_str()).collect();
            return Err(Failure::field(field, format!("is for a search that names the method {}", names.join(" or "))));
        }
    }
    Ok(())
}

/// The same search, by whatever method.
macro_rules! by_any_method { ($($name:ident),*) => { $(
    impl From<$name> for AutoSearch {
        fn from(body: $name) -> AutoSearch {
            AutoSearch {
                group_by: body.group_by, context: body.context, parent_id: body.parent_id, limit: body.limit, usetype: body.usetype,
                filter: body.filter, rerank: body.rerank, rerank_method: body.rerank_method, rerank_top: body.rerank_top,
                mmr_lambda: body.mmr_lambda, recency_half_life_days: body.recency_half_life_days,
                sort: body.sort, sort_order: body.sort_order, sort_top: body.sort_top, include_content: body.include_content,
                include_embed: body.include_embed, fields: body.fields, with_whole: body.with_whole, per_group: body.per_group, snippets: body.snippets, weights: body.weights,
                fusion: body.fusion, index: body.index, expand: body.expand, cursor: body.cursor, include_scores: body.include_scores, explain: body.explain, forgiving: body.forgiving,
                facets: body.facets, query: body.query,
            }
        }
    }
)* } }
by_any_method! { TemplateSearch, SynthesizeSearch, MethodSearch }

/// The same search by a method that is known, with its context already in it.
macro_rules! with_method { ($($name:ident { $($field:ident),* }),*) => { $(
    impl From<AutoSearch> for $name {
        fn from(auto: AutoSearch) -> $name {
            $name {
                parent_id: auto.parent_id, limit: auto.limit, usetype: auto.usetype, filter: auto.filter,
                rerank: auto.rerank, rerank_method: auto.rerank_method, rerank_top: auto.rerank_top, mmr_lambda: auto.mmr_lambda, recency_half_life_days: auto.recency_half_life_days,
                sort: auto.sort, sort_order: auto.sort_order, sort_top: auto.sort_top, include_content: auto.include_content,
                include_embed: auto.include_embed, fields: auto.fields, group_by: Some(auto.group_by.unwrap_or(GroupBy::File)), with_whole: auto.with_whole, per_group: auto.per_group,
                snippets: auto.snippets, cursor: auto.cursor, include_scores: auto.include_scores, explain: auto.explain, forgiving: auto.forgiving, facets: auto.facets, $( $field: auto.$field, )*
                ..$name::new(&auto.query)
            }
        }
    }
)* } }
with_method! { VectorSearch {}, FulltextSearch {}, Bm25Search { index, expand }, MaxsimSearch { index }, HybridSearch { weights, fusion, index, expand } }

/// How much each leg counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct HybridWeights {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vector: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bm25: Option<f64>,
}
impl HybridWeights {
    pub(super) fn check(&self) -> Result<(), Failure> {
        for (name, weight) in [("weights.vector", self.vector), ("weights.bm25", self.bm25)] {
            WEIGHT.check(name, &weight)?;
        }
        match (self.vector, self.bm25) {
            (Some(0.0), Some(0.0)) => Err(Failure::field("weights", "must not both be 0")),
            (None, None) | (Some(_), Some(_)) => Ok(()),
            _ => Err(Failure::field("weights", "give both `vector` and `bm25`, or neither")),
        }
    }
}

/// What ranks the candidates of a search again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RerankMethod {
    /// A model that reads query and document together; it works for any candidate.
    #[default]
    CrossEncoder,
    /// The stored token vectors; a candidate without them scores 0 and comes last.
    Maxsim,
}

pub(super) fn default_limit() -> u32 {
    10
}
pub(super) fn default_per_group() -> u32 {
    1
}
pub(super) fn include_content() -> bool {
    true
}

/// The convenience search.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct SearchQuery {
    /// The query.
    pub q: String,
    /// The name of a search context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Finds only documents under this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<i64>,
    /// The number of results, 1 to 100; 10 by default.
    #[serde(default = "default_limit")]
    pub limit: u32,
    /// What decides the order of the best `sort_top` results; `score` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sort: Option<SortBy>,
    /// By default `desc` for times and `asc` for titles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sort_order: Option<SortOrder>,
    /// How many of the best results, or groups of them, are sorted, never fewer than the `limit` of the first page; 100 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sort_top: Option<u32>,
    /// Whether to include the results' texts; true by default.
    #[serde(default = "include_content")]
    pub include_content: bool,
    /// Whether to include the results' 768-dimension vectors.
    #[serde(default)]
    pub include_embed: bool,
    /// What the answer shows of each document: these fields alone, with commas between them, such as `id,title`; in place of `include_content` and `include_embed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<String>,
    /// Whether a file or a section stands for the texts in it; `file` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_by: Option<GroupBy>,
    /// Whether groups are ordered by their whole and their best text together; by default, by their best result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_whole: Option<bool>,
    /// The most `hits` that a group shows, 1 to 10; 1 by default.
    #[serde(default = "default_per_group")]
    pub per_group: u32,
    /// Whether to include the piece of each result that shows why it was found; by default if `group_by` is not `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snippets: Option<bool>,
    /// Goes on behind an earlier page of the same search: its `next_cursor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Whether the nearest word stands for each word of the query that no text has which may be found (`searched_instead`).
    #[serde(default)]
    pub forgiving: bool,
    /// Whether terms of the best texts of a first search are added to the query of BM25 (RM3); by default, where at least three documents are among the first ten of both legs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expand: Option<bool>,
    /// By what the legs count together where the method is `hybrid`; `rank` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fusion: Option<Fusion>,
}
impl SearchQuery {
    /// A search with all defaults.
    pub fn new(q: &str) -> SearchQuery {
        SearchQuery {
            q: q.to_owned(),
            context: None,
            parent_id: None,
            limit: default_limit(),
            sort: None,
            sort_order: None,
            sort_top: None,
            include_content: true,
            include_embed: false,
            fields: None,
            group_by: None,
            with_whole: None,
            per_group: default_per_group(),
            snippets: None,
            cursor: None,
            forgiving: false,
            expand: None,
            fusion: None,
        }
    }
}
impl Params for SearchQuery {
    constrain! {
        q: QUERY, context: NAME, limit: LIMIT, sort_top: SORT_TOP, fields: FIELD_LIST, per_group: PER_GROUP, cursor: CURSOR;
        |query| {
            check_sorting(query.sort, query.sort_order, query.sort_top, &[])?;
            check_list(query.fields.as_deref(), query.include_content, query.include_embed)
        }
    }
}

wire_words! {
    /// Whether a total is the exact number of matches or a lower bound: a ranking that skips what cannot come first
    /// does not count the rest.
    TotalIs { Exact = "exact", AtLeast = "at_least", }
    /// What stands for the texts that are found. A group has the rank and the score of its best result, and its `hits` are its best texts.
    /// `file`: what a caller uploaded or created stands for its sections, sheets, records and chunks. `section`: each section or sheet
    /// does, and a file for the texts that are in none. `none`: each document stands for itself.
    GroupBy { File = "file", Section = "section", None = "none", }
    /// What of a document a snippet is a piece of: the title only if there is no content.
    SnippetOf { Content = "content", Title = "title", }
    /// By what two legs count together. `rank`: each adds `weight / (60 + rank)`. `score`: the scores of each leg are brought between 0 and 1, where its best result
    /// has 1 and what it does not list has 0, and added by their weights, so that it counts how far a result is before the next one.
    Fusion { Rank = "rank", Score = "score", }
    /// How the results were ranked.
    SearchMethod { Vector = "vector", Fulltext = "fulltext", Bm25 = "bm25", Maxsim = "maxsim", Hybrid = "hybrid", }
}
