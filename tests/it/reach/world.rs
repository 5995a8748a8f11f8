//! Random trees with random grants, and what the definition of access says of them.
use crate::{
    access::{Naive, Random},
    principals::{Someone, grant},
    support::{TestApp, document, sample, until, workbook},
};
use std::collections::BTreeMap;
use svc_client::{
    FileUpload, Json,
    wire::{DocumentPath, GrantPath, GrantRight, NewDocument, UploadQuery, WaitQuery},
};

/// The tree as it is, and the rights as the definition has them.
pub struct World {
    pub settled: BTreeMap<i64, String>,
    /// What has a text and a vector, with its children.
    pub texts: Vec<(i64, Vec<i64>)>,
    /// Each with its id and both ends.
    pub links: Vec<(i64, i64, i64)>,
    pub naive: Naive,
    /// The grants of all principals.
    pub grants: BTreeMap<i64, BTreeMap<i64, bool>>,
}

impl World {
    /// Reads the tree; roots and grants stay those that the test made.
    pub async fn renew(&mut self, app: &TestApp) {
        let rows: Vec<(i64, Vec<i64>, String)> =
            sqlx::query_as("SELECT id, path, settled FROM documents").fetch_all(&app.pool).await.unwrap();
        self.settled = rows.iter().map(|(id, _, settled)| (*id, settled.clone())).collect();
        self.naive.path = rows.into_iter().map(|(id, path, _)| (id, path)).collect();
        self.naive.roots.retain(|id| self.naive.path.contains_key(id));
        self.texts = sqlx::query_as(
            "SELECT d.id, ARRAY(SELECT c.id FROM documents c WHERE c.parent_id = d.id) FROM documents d JOIN document_vectors v ON v.document_id = d.id
              WHERE d.settled = 'settled' AND d.content <> ''",
        )
        .fetch_all(&app.pool)
        .await
        .unwrap();
        self.links = sqlx::query_as("SELECT id, source_id, target_id FROM document_links ORDER BY id")
            .fetch_all(&app.pool)
            .await
            .unwrap();
    }

    pub fn ids(&self) -> Vec<i64> {
        self.naive.path.keys().copied().collect()
    }

    pub fn of(&self, who: &Someone) -> Naive {
        Naive { grants: self.grants.get(&who.id).cloned().unwrap_or_default(), ..self.naive.clone() }
    }

    /// Protects, unprotects, grants or takes a grant away, somewhere.
    pub async fn change(&mut self, app: &TestApp, random: &mut Random, principals: &[Someone]) {
        let ids = self.ids();
        let (id, who) = (ids[random.below(ids.len())], &principals[random.below(principals.len())]);
        match random.below(8) {
            0 | 1 => {
                app.client.protect_document(DocumentPath { id }).await.unwrap();
                self.naive.roots.insert(id);
            }
            2 if self.naive.roots.len() > 2 => {
                let roots: Vec<i64> = self.naive.roots.iter().copied().collect();
                let id = roots[random.below(roots.len())];
                app.client.unprotect_document(DocumentPath { id }).await.unwrap();
                self.naive.roots.remove(&id);
                for grants in self.grants.values_mut() {
                    grants.remove(&id);
                }
            }
            3 => {
                let Some(id) = self.grants.get(&who.id).and_then(|grants| grants.keys().next().copied()) else {
                    return;
                };
                app.client.delete_grant(GrantPath { id, principal_id: who.id }).await.unwrap();
                self.grants.get_mut(&who.id).unwrap().remove(&id);
            }
            _ => {
                let can_write = random.below(2) == 0;
                grant(app, who, id, if can_write { GrantRight::Write } else { GrantRight::Read }).await;
                self.naive.roots.insert(id);
                self.grants.entry(who.id).or_default().insert(id, can_write);
            }
        }
        // What is closed or opened within a file is found by other titles, once it is embedded anew.
        until("what changed to be embedded", async || {
            let left = "SELECT count(*) FROM task_queue WHERE task_type = 'embed:titles' AND NOT final";
            (sqlx::query_scalar::<_, i64>(left).fetch_one(&app.pool).await.unwrap() == 0).then_some(())
        })
        .await;
    }
}

/// Folders of the owner's with files and texts in them, all of them ingested, and links between them.
pub async fn grow(app: &TestApp, random: &mut Random) -> World {
    let mut folders: Vec<Option<i64>> = vec![None];
    for number in 0..10 {
        let parent_id = folders[random.below(folders.len())];
        let new = NewDocument { parent_id, ..document(&format!("Folder {number}"), "The heron waits by the water.") };
        folders.push(Some(
            app.client.create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(new)).await.unwrap().id,
        ));
    }
    let mut files = Vec::new();
    let notes =
        "# Birds\n\nThe heron stands in the reeds.\n\n# Fish\n\nThe heron eats fish of every kind it can catch.\n";
    let sheet = workbook(&[vec!["bird", "count"], vec!["heron", "3"], vec!["coot", "12"]]);
    for (name, bytes) in [
        ("birds.md", notes.as_bytes().to_vec()),
        ("birds.xlsx", sheet),
        ("corrupt.pdf", std::fs::read(sample("corrupt.pdf")).unwrap()),
    ] {
        let query = UploadQuery { parent_id: folders[random.below(folders.len())], ..UploadQuery::default() };
        let file = || FileUpload::from_bytes(name, bytes.clone(), None);
        let id = app.client.upload_file(query, file()).await.unwrap().document_id;
        app.settled(id).await;
        files.push(id);
        for folder in &folders[8..] {
            let query = UploadQuery { parent_id: *folder, ..UploadQuery::default() };
            app.client.upload_file(query, file()).await.unwrap();
        }
    }
    let naive = Naive::default();
    let mut world =
        World { settled: BTreeMap::new(), texts: Vec::new(), links: Vec::new(), naive, grants: BTreeMap::new() };
    world.renew(app).await;
    assert!(world.ids().len() > 15 && world.links.len() > 3, "{:?}", world.links);
    world
}
