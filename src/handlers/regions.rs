//! Held and awaited regions as boxes in pictures of their files.
use super::documents::id_cursor;
use crate::{
    access::Caller,
    error::OrFail,
    registry::Handle,
    service::Service,
    store::{
        self,
        regions::{COLUMNS, Column, FileRegions, RegionRow},
    },
};
use sqlx::PgConnection;
use std::collections::HashMap;
use svc_client::{
    Call, Failure, ops,
    wire::{RegionBox, RegionColumn, RegionFile, RegionMap, WriteMode},
};
use svc_ids::RootId;

/// Files in a page by default, and at most.
const FILES: u32 = 12;

impl Handle<ops::draw_regions> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::draw_regions>) -> Result<RegionMap, Failure> {
        let limit = i64::from(call.query.limit.unwrap_or(FILES).min(FILES));
        let skip = id_cursor(call.query.cursor.as_deref())?.max(0);
        let mut conn = self.pool.acquire().await.or_fail()?;
        let (page, all) = store::regions::files(&mut conn, call.query.root_id, skip, limit).await.or_fail()?;
        let mut files = Vec::new();
        for file in &page {
            files.push(draw(&mut conn, file).await.or_fail()?);
        }
        let next = skip.saturating_add(limit);
        Ok(RegionMap {
            files,
            held: all.held,
            tasks_waiting: all.waiting,
            files_total: all.files,
            next_cursor: (next < all.files).then(|| next.to_string()),
        })
    }
}

async fn draw(conn: &mut PgConnection, file: &FileRegions) -> sqlx::Result<RegionFile> {
    let mut children = store::regions::columns(conn, file.root_id).await?;
    let more_columns = children.len() > COLUMNS as usize;
    children.truncate(COLUMNS as usize);
    let columns = columns(children);
    let rows = store::regions::regions(conn, file.root_id).await?;
    let picture = Picture::of(conn, file.root_id, &columns, &rows).await?;
    let (held, waiting) = rows.into_iter().map(|row| picture.draw(row)).partition(|region| region.worker.is_some());
    Ok(RegionFile {
        root_id: file.root_id.0,
        title: file.title.clone(),
        columns,
        more_columns,
        held,
        waiting,
        tasks_waiting: file.waiting,
    })
}

/// Gives each child a width by the number of its own children.
fn columns(children: Vec<Column>) -> Vec<RegionColumn> {
    let weight = |child: &Column| child.children.max(1) as f64;
    let whole: f64 = children.iter().map(weight).sum();
    let mut edge = 0.0;
    let place = |child: Column| {
        let from = edge / whole;
        edge += weight(&child);
        RegionColumn { id: child.id, title: child.title, children: child.children, from, to: edge / whole }
    };
    children.into_iter().map(place).collect()
}

/// Where the nodes of a file lie from left to right.
struct Picture {
    root_id: RootId,
    /// The left and the right edge of a child or a grandchild.
    edges: HashMap<i64, (f64, f64)>,
}

impl Picture {
    async fn of(
        conn: &mut PgConnection,
        root_id: RootId,
        columns: &[RegionColumn],
        rows: &[RegionRow],
    ) -> sqlx::Result<Picture> {
        let edges = columns.iter().map(|column| (column.id, (column.from, column.to))).collect();
        let mut picture = Picture { root_id, edges };
        let ends = rows.iter().flat_map(|row| {
            let (first, last) = row.leaves().unwrap_or_default();
            [row.path(), first, last]
        });
        // Of the grandchildren only those with a region are placed.
        let wanted: Vec<i64> = ends.filter_map(|path| picture.below(&path).get(1).copied()).collect();
        let children: HashMap<i64, i64> = columns.iter().map(|column| (column.id, column.children)).collect();
        for (id, parent, before) in store::regions::ranks(conn, &wanted).await? {
            if let (Some((from, to)), Some(siblings)) = (picture.edges.get(&parent).copied(), children.get(&parent)) {
                let width = (to - from) / (*siblings).max(1) as f64;
                let left = from + width * before as f64;
                picture.edges.insert(id, (left, left + width));
            }
        }
        Ok(picture)
    }

    /// The part of a path below the file.
    fn below<'a>(&self, path: &'a [i64]) -> &'a [i64] {
        let at = path.iter().position(|id| *id == self.root_id.0).map_or(path.len(), |at| at + 1);
        &path[at..]
    }

    /// The edges of a node, or of the nearest one above it that is drawn. What has no place is drawn at the right edge.
    fn edges(&self, path: &[i64]) -> (f64, f64) {
        let below = self.below(path);
        let near = below.iter().take(2).rev().find_map(|id| self.edges.get(id));
        near.copied().unwrap_or(if below.is_empty() { (0.0, 1.0) } else { (0.99, 1.0) })
    }

    fn draw(&self, row: RegionRow) -> RegionBox {
        let path = row.path();
        let depth = i32::try_from(self.below(&path).len()).unwrap_or(i32::MAX);
        let (from, to, top, bottom) = match row.leaves() {
            Some((first, last)) => (self.edges(&first).0, self.edges(&last).1, depth + 1, None),
            None => {
                let (from, to) = self.edges(&path);
                let bottom = match row.write_mode.0 {
                    WriteMode::Itself => Some(depth + 1),
                    WriteMode::Children => Some(depth + 2),
                    WriteMode::Subtree => None,
                };
                (from, to, depth, bottom)
            }
        };
        RegionBox {
            task_id: row.task_id,
            task_type: row.task_type,
            document_id: row.document_id,
            title: row.title,
            write_mode: row.write_mode.0,
            from,
            to,
            top,
            bottom,
            some_leaves: row.first_leaf.is_some(),
            worker: row.worker,
            since: row.since,
            lapsed: row.lapsed,
            behind: row.behind,
            tasks_waiting: row.tasks_waiting,
        }
    }
}
