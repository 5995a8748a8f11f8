//! Links and grants of an archive.
use super::importing::imported;
use crate::{
    access::Caller,
    error::OrFail,
    registry::Handle,
    service::Service,
    store::{
        self,
        archive::{self, RestoredLink},
        audit::Entry,
        links::CONTAINS,
        places::Place,
        triples::write,
    },
};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use svc_client::{
    Call, Failure, ops,
    wire::{ArchivedLink, AuditAct, ImportedRows},
};
use svc_ids::{DocumentId, PrincipalId};

impl Handle<ops::import_links> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::import_links>) -> Result<ImportedRows, Failure> {
        let (of, links) = (call.query, call.body.0.links);
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let ends: Vec<i64> = links.iter().flat_map(|link| [link.source, link.target]).collect();
        let (known, _) = imported(&mut tx, caller, &of, &ends).await?;
        let inside: Vec<(&ArchivedLink, DocumentId, DocumentId)> = links
            .iter()
            .filter_map(|link| Some((link, *known.get(&link.source)?, *known.get(&link.target)?)))
            .filter(|(_, source, target)| source != target)
            .collect();
        let all: HashSet<DocumentId> = inside.iter().flat_map(|(_, source, target)| [*source, *target]).collect();
        let all: Vec<DocumentId> = all.into_iter().collect();
        // None of them is deleted before the links are there.
        write::lock_ends(&mut tx, &caller.readable(), &all).await.or_fail()?;
        let places: HashMap<DocumentId, Place> = write::places(&mut tx, &caller.writable(), &all)
            .await
            .or_fail()?
            .into_iter()
            .map(|place| (place.id(), place))
            .collect();
        let (mut rows, mut existing) = (Vec::with_capacity(inside.len()), 0);
        let mut outside = u32::try_from(links.len() - inside.len()).unwrap_or(u32::MAX);
        for (link, source, target) in inside {
            let Some(place) = places.get(&source) else {
                return Err(caller.refusal(&mut tx, source).await.or_fail()?);
            };
            let metadata = Value::Object(link.metadata.clone());
            let row = RestoredLink {
                source: place,
                target_id: target,
                link_type: &link.link_type,
                score: link.score,
                metadata,
            };
            if link.link_type != CONTAINS {
                rows.push(row);
            } else if store::links::contains(&mut tx, &caller.readable(), target, source).await.or_fail()? {
                // Such a link would close a circle, so that it says nothing that another store could have said.
                outside += 1;
            } else {
                // The next one may close a circle with it.
                existing += u32::from(archive::add_links(&mut tx, &[row]).await.or_fail()? == 0);
            }
        }
        let asked = u32::try_from(links.len()).unwrap_or(u32::MAX);
        let plain = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let made = u32::try_from(archive::add_links(&mut tx, &rows).await.or_fail()?).unwrap_or(u32::MAX);
        existing += plain - made;
        tx.commit().await.or_fail()?;
        Ok(ImportedRows { created: asked - outside - existing, existing, outside })
    }
}

impl Handle<ops::import_grants> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::import_grants>) -> Result<ImportedRows, Failure> {
        let (of, grants) = (call.query, call.body.0.grants);
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let documents: Vec<i64> = grants.iter().map(|grant| grant.document).collect();
        let (known, _) = imported(&mut tx, caller, &of, &documents).await?;
        let names: HashSet<&str> = grants.iter().map(|grant| grant.principal.as_str()).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let principals: HashMap<String, PrincipalId> =
            archive::principals(&mut tx, &names).await.or_fail()?.into_iter().collect();
        let documents: Vec<DocumentId> = known.values().copied().collect();
        let mut granted: HashSet<(DocumentId, PrincipalId)> =
            archive::granted(&mut tx, &documents).await.or_fail()?.into_iter().collect();
        let mut rows = ImportedRows::default();
        for grant in &grants {
            let ends = known.get(&grant.document).zip(principals.get(&grant.principal));
            let Some((document, principal)) = ends else {
                rows.outside += 1;
                continue;
            };
            // What somebody was granted here, perhaps less than there, stays.
            if !granted.insert((*document, *principal)) {
                rows.existing += 1;
                continue;
            }
            match store::access::grant(&mut tx, *principal, *document, grant.right).await.or_fail()? {
                None => rows.outside += 1,
                Some(_) => {
                    let entry =
                        Entry::new(AuditAct::GrantPut).principal(*principal, &grant.principal).document(*document);
                    caller.record(&mut tx, entry.with("right", grant.right.as_str())).await.or_fail()?;
                    rows.created += 1;
                }
            }
        }
        tx.commit().await.or_fail()?;
        self.rights_changed();
        Ok(rows)
    }
}
