//! Views beside the definition of access: each shows all that its reader may read, and names nothing else.
use super::{World, json_of};
use crate::access::Naive;
use std::collections::BTreeSet;
use svc_client::{
    OperationInfo,
    wire::{
        BackReferencePage, BlockKind, BreadcrumbList, ChildrenMode, Crumb, ReferenceKind, ViewBlock, ViewChildren,
        ViewResponse,
    },
};

/// The ids of what blocks show, and of what they only name.
fn shown(blocks: &[ViewBlock]) -> BTreeSet<i64> {
    let of = |block: &ViewBlock| {
        let rows = block.rows.iter().map(|row| row.document_id);
        rows.chain([block.document_id]).chain(block.continued_by.iter().copied()).collect::<Vec<_>>()
    };
    blocks.iter().flat_map(of).collect()
}

/// Holds a page of what is under a document to the tree: all of it that is readable, but for what is under closed summaries.
fn compare_children(children: &ViewChildren, world: &World, rights: &Naive, id: i64) {
    let got = shown(&children.blocks);
    assert!(got.iter().all(|id| rights.may(*id, false)), "{got:?} under {id}");
    assert!(children.next_cursor.is_none(), "the trees of this test fit a page");
    let closed: Vec<i64> = children
        .blocks
        .iter()
        .filter(|block| block.kind == BlockKind::Document)
        .map(|block| block.document_id)
        .collect();
    let expected: BTreeSet<i64> = world
        .ids()
        .into_iter()
        .filter(|node| rights.may(*node, false))
        .filter(|node| match children.mode {
            ChildrenMode::Inline => {
                let path = &rights.path[node];
                path.contains(&id) && !path.iter().any(|above| closed.contains(above))
            }
            _ => rights.path[node].last() == Some(&id),
        })
        .collect();
    assert_eq!(got, expected, "under {id}, {:?}", children.mode);
}

fn compare_crumbs(crumbs: &[Crumb], rights: &Naive, id: i64) {
    let got: Vec<Option<i64>> = crumbs.iter().map(|crumb| crumb.id).collect();
    let expected: Vec<Option<i64>> =
        rights.path[&id].iter().map(|above| Some(*above).filter(|above| rights.may(*above, false))).collect();
    assert_eq!(got, expected, "above {id}");
    assert!(crumbs.iter().all(|crumb| crumb.id.is_some() == crumb.title.is_some()));
}

/// Holds the answer of one operation of the family to the definition.
pub async fn compare(row: &OperationInfo, request: reqwest::RequestBuilder, world: &World, rights: &Naive, id: i64) {
    match row.name {
        "view_document" => {
            let view: ViewResponse = json_of(request).await;
            compare_crumbs(&view.breadcrumbs, rights, id);
            if matches!(view.children.mode, ChildrenMode::Inline | ChildrenMode::List) {
                compare_children(&view.children, world, rights, id);
            }
            let beside = [view.previous, view.next].into_iter().flatten().filter_map(|crumb| crumb.id);
            let source = view.source.map(|source| source.document_id);
            for other in beside.chain(source).chain(shown(&view.blocks)) {
                assert!(rights.may(other, false), "{other} in the view of {id}");
            }
            let of = |(_, source, target): &&(i64, i64, i64)| {
                (*source == id && rights.may(*target, false)) || (*target == id && rights.may(*source, false))
            };
            let expected: Vec<i64> = world.links.iter().filter(of).map(|(link, ..)| *link).collect();
            assert_eq!(view.links.links.iter().map(|link| link.id).collect::<Vec<_>>(), expected, "links of {id}");
        }
        "expand_children" => compare_children(&json_of(request).await, world, rights, id),
        "list_breadcrumbs" => {
            let list: BreadcrumbList = json_of(request).await;
            compare_crumbs(&list.breadcrumbs, rights, id);
        }
        _ => {
            let page: BackReferencePage = json_of(request).await;
            let links = page.references.iter().filter(|reference| reference.kind == ReferenceKind::Link);
            let got: Vec<Option<i64>> = links.map(|reference| reference.id).collect();
            let of = |(_, source, target): &&(i64, i64, i64)| *target == id && rights.may(*source, false);
            let expected: Vec<Option<i64>> = world.links.iter().filter(of).map(|(link, ..)| Some(*link)).collect();
            assert_eq!(got, expected, "to {id}");
        }
    }
}
