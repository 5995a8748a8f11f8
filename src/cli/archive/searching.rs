//! Search indexes and search contexts of an archive, which are the owner's to make. What they hold is made anew where they go.
use super::{
    CONTEXTS, INDEXES,
    checking::{Lines, read},
    exporting::{Export, Stage},
    importing::{Importing, refused},
};
use crate::cli::{CliError, patience::patient};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use svc_client::{
    Client, Code, Json, Remote,
    wire::{
        ContextConfig, IndexAnalyzer, IndexCapabilities, IndexPath, IndexResponse, NewContext, NewIndex, NewMembers,
        PageQuery, SearchFilter,
    },
};

/// The index that each store has by its own settings.
const DEFAULT: &str = "default";
/// The rows of a page.
const ROWS: u32 = 1_000;
/// The most members that one call names.
const MEMBERS: usize = 10_000;

/// A search index as an archive holds it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchivedIndex {
    name: String,
    k1: f64,
    b: f64,
    analyzer: IndexAnalyzer,
    title_weight: u32,
    title_paths: bool,
    capabilities: IndexCapabilities,
    /// The documents whose subtrees it covers, as far as the archive has them; absent if it covers everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<Vec<i64>>,
    /// How many more there were.
    #[serde(default)]
    pub outside: u64,
}

/// A search context as an archive holds it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchivedContext {
    name: String,
    config: ContextConfig,
    /// It names a document that is not in the archive.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
}

impl ArchivedContext {
    /// The documents that it names.
    pub fn documents(&self) -> Vec<i64> {
        let (mut config, mut ids) = (self.config.clone(), Vec::new());
        named(&mut config, &mut |id| ids.push(*id));
        ids
    }
}

/// Calls with each document that a context names.
fn named(config: &mut ContextConfig, each: &mut dyn FnMut(&mut i64)) {
    let ContextConfig { parent_id, filter, .. } = config;
    if let Some(id) = parent_id {
        each(id);
    }
    let mut open: Vec<&mut SearchFilter> = filter.iter_mut().collect();
    while let Some(SearchFilter { under, exclude, any, all, none, .. }) = open.pop() {
        for id in [under, exclude].into_iter().flatten().flatten() {
            each(id);
        }
        open.extend([any, all, none].into_iter().flatten().flatten());
    }
}

impl Export {
    /// Each index is a page of its own. Of a part of the tree, only those are of the archive that cover some of it and not everything.
    pub(super) async fn indexes(&mut self, client: &Client<Remote>) -> Result<(), CliError> {
        loop {
            let query = PageQuery { cursor: self.progress.cursor.clone(), limit: Some(1), ..PageQuery::default() };
            let page = match patient(async || client.list_indexes(query.clone()).await).await {
                Err(failure) if failure.code == Code::Forbidden => {
                    return self.write::<ArchivedIndex>(&[], None, Stage::Contexts);
                }
                page => page?,
            };
            let mut rows = Vec::new();
            for index in page.indexes.into_iter().filter(|index| index.name != DEFAULT) {
                rows.extend(self.index(client, index).await?);
            }
            for index in &rows {
                self.progress.counts.indexes += 1;
                self.progress.counts.members += index.members.as_ref().map_or(0, |members| members.len() as u64);
                self.progress.counts.members_outside += index.outside;
            }
            let is_last = page.next_cursor.is_none();
            self.write(&rows, page.next_cursor, Stage::Contexts)?;
            if is_last {
                return Ok(());
            }
        }
    }

    async fn index(&self, client: &Client<Remote>, index: IndexResponse) -> Result<Option<ArchivedIndex>, CliError> {
        let (mut members, mut outside) = (Vec::new(), 0);
        let (mut query, mut has_more) = (PageQuery { limit: Some(ROWS), ..PageQuery::default() }, index.restricted);
        while has_more {
            let path = IndexPath { id: index.id };
            let page = match patient(async || client.list_index_members(path, query.clone()).await).await {
                // It was deleted meanwhile.
                Err(failure) if failure.code == Code::NotFound => return Ok(None),
                page => page?,
            };
            for id in page.members {
                match self.has(id)? {
                    true => members.push(id),
                    false => outside += 1,
                }
            }
            query.cursor = page.next_cursor;
            has_more = query.cursor.is_some();
        }
        if self.progress.root.is_some() && members.is_empty() {
            return Ok(None);
        }
        let IndexResponse { name, k1, b, analyzer, title_weight, title_paths, capabilities, restricted, .. } = index;
        let members = restricted.then_some(members);
        Ok(Some(ArchivedIndex { name, k1, b, analyzer, title_weight, title_paths, capabilities, members, outside }))
    }

    /// Of a part of the tree, only those contexts are of the archive that name some of it.
    pub(super) async fn contexts(&mut self, client: &Client<Remote>) -> Result<(), CliError> {
        loop {
            let query = PageQuery { cursor: self.progress.cursor.clone(), limit: Some(100), ..PageQuery::default() };
            let page = patient(async || client.list_contexts(query.clone()).await).await?;
            let mut rows = Vec::new();
            for context in page.contexts {
                let mut context = ArchivedContext { name: context.name, config: context.config, outside: false };
                let (mut is_of_it, ids) = (self.progress.root.is_none(), context.documents());
                for id in ids {
                    let is_inside = self.has(id)?;
                    is_of_it |= is_inside;
                    context.outside |= !is_inside;
                }
                if is_of_it {
                    self.progress.counts.contexts += 1;
                    self.progress.counts.contexts_outside += u64::from(context.outside);
                    rows.push(context);
                }
            }
            let is_last = page.next_cursor.is_none();
            self.write(&rows, page.next_cursor, Stage::Predicates)?;
            if is_last {
                return Ok(());
            }
        }
    }
}

impl Importing<'_> {
    /// Makes the indexes that this store has not. One whose members were not imported would cover nothing.
    pub(super) async fn indexes(&mut self) -> Result<(), CliError> {
        let (path, client) = (self.folder.join(INDEXES), self.client);
        let mut lines = Lines::open(&path)?;
        while let Some((number, line)) = lines.next()? {
            let index: ArchivedIndex = read(&path, number, &line)?;
            let members = match &index.members {
                Some(members) => Some(self.here(members).await?),
                None => None,
            };
            let named = index.members.as_ref().map_or(0, Vec::len);
            let away = index.outside.saturating_add((named - members.as_ref().map_or(0, Vec::len)) as u64);
            self.summary.index_members_outside = self.summary.index_members_outside.saturating_add(away);
            if members.as_ref().is_some_and(Vec::is_empty) {
                self.summary.indexes.outside += 1;
                continue;
            }
            let mut parts = members.iter().flat_map(|members| members.chunks(MEMBERS));
            let new = NewIndex {
                name: index.name.clone(),
                k1: Some(index.k1),
                b: Some(index.b),
                analyzer: Some(index.analyzer),
                title_weight: Some(index.title_weight),
                title_paths: Some(index.title_paths),
                capabilities: Some(index.capabilities),
                members: parts.next().map(<[i64]>::to_vec),
            };
            let id = match self.presence.patient_again(async || client.create_index(Json(new.clone())).await).await {
                Ok(made) => {
                    self.summary.indexes.created += 1;
                    made.id
                }
                Err(failure) if failure.code == Code::Conflict => {
                    self.summary.indexes.existing += 1;
                    match self.unfinished(&index.name, members.as_deref().unwrap_or_default()).await? {
                        Some(id) => id,
                        None => continue,
                    }
                }
                Err(failure) if failure.code == Code::Forbidden => {
                    self.summary.searches_left_out = true;
                    return Ok(());
                }
                Err(failure) => return Err(refused(&path, Some(number), failure)),
            };
            for part in parts {
                let members = NewMembers { members: part.to_vec() };
                let call = async || client.add_index_members(IndexPath { id }, Json(members.clone())).await;
                self.presence.patient_again(call).await.map_err(|failure| refused(&path, Some(number), failure))?;
            }
        }
        Ok(())
    }

    /// The index of this name if an import of these members has begun to make it and was stopped: it covers some of them, and nothing else.
    async fn unfinished(&self, name: &str, members: &[i64]) -> Result<Option<i64>, CliError> {
        let client = self.client;
        if members.len() <= MEMBERS {
            return Ok(None);
        }
        let mut query = PageQuery { limit: Some(ROWS), ..PageQuery::default() };
        let found = loop {
            let page = self.presence.patient_again(async || client.list_indexes(query.clone()).await).await?;
            let found = page.indexes.into_iter().find(|index| index.name == name);
            query.cursor = page.next_cursor;
            if found.is_some() || query.cursor.is_none() {
                break found;
            }
        };
        let Some(index) = found.filter(|index| index.restricted) else { return Ok(None) };
        let (ours, path): (HashSet<i64>, IndexPath) = (members.iter().copied().collect(), IndexPath { id: index.id });
        let mut query = PageQuery { limit: Some(ROWS), ..PageQuery::default() };
        loop {
            let page =
                self.presence.patient_again(async || client.list_index_members(path, query.clone()).await).await?;
            if page.members.iter().any(|member| !ours.contains(member)) {
                return Ok(None);
            }
            query.cursor = page.next_cursor;
            if query.cursor.is_none() {
                return Ok(Some(index.id));
            }
        }
    }

    /// The documents that were imported of these.
    async fn here(&self, ids: &[i64]) -> Result<Vec<i64>, CliError> {
        let mut here = Vec::with_capacity(ids.len());
        for part in ids.chunks(ROWS as usize) {
            let found = self.found(part).await?;
            here.extend(part.iter().filter_map(|id| found.get(id)));
        }
        Ok(here)
    }

    /// Makes the contexts that this store has not.
    pub(super) async fn contexts(&mut self) -> Result<(), CliError> {
        let (path, client) = (self.folder.join(CONTEXTS), self.client);
        let mut lines = Lines::open(&path)?;
        while let Some((number, line)) = lines.next()? {
            let mut context: ArchivedContext = read(&path, number, &line)?;
            let (mut ids, mut found) = (context.documents(), std::collections::HashMap::new());
            ids.sort_unstable();
            ids.dedup();
            if !context.outside {
                for part in ids.chunks(ROWS as usize) {
                    found.extend(self.found(part).await?);
                }
            }
            if found.len() < ids.len() {
                self.summary.contexts.outside += 1;
                continue;
            }
            named(&mut context.config, &mut |id| *id = found.get(&*id).copied().unwrap_or(*id));
            let new = NewContext { name: context.name, config: context.config };
            match self.presence.patient_again(async || client.create_context(Json(new.clone())).await).await {
                Ok(_) => self.summary.contexts.created += 1,
                Err(failure) if failure.code == Code::Conflict => self.summary.contexts.existing += 1,
                Err(failure) if failure.code == Code::Forbidden => {
                    self.summary.searches_left_out = true;
                    return Ok(());
                }
                // The index that it names was left out.
                Err(failure) if failure.members.get("field").is_some_and(|field| field == "config.index") => {
                    self.summary.contexts.outside += 1;
                }
                Err(failure) => return Err(refused(&path, Some(number), failure)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_document_that_a_context_names_is_found_and_renumbered() {
        let config = json!({"parent_id": 1, "usetype": ["note"], "filter": {"under": [2, 3], "exclude": [4],
            "any": [{"under": [5]}, {"none": [{"exclude": [6], "all": [{"under": [7]}]}]}]}});
        let config: ContextConfig = serde_json::from_value(config).unwrap();
        let mut context = ArchivedContext { name: "c".to_owned(), config, outside: false };
        let mut ids = context.documents();
        ids.sort_unstable();
        assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7]);
        named(&mut context.config, &mut |id| *id += 10);
        let expected = json!({"parent_id": 11, "usetype": ["note"], "filter": {"under": [12, 13], "exclude": [14],
            "any": [{"under": [15]}, {"none": [{"exclude": [16], "all": [{"under": [17]}]}]}]}});
        assert_eq!(serde_json::to_value(&context.config).unwrap(), expected);
    }
}
