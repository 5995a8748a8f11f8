//! Puts the documents of a ranking together into groups, for which their containers stand.
use super::Ranked;
use crate::{store::search::groups::Member, usetype::Usetype};
use std::collections::{HashMap, HashSet};
use svc_client::wire::GroupBy;
use svc_ids::DocumentId;

/// Whether documents of this usetype belong to the document above them, so that it may stand for them.
fn is_part(usetype: &str, group_by: GroupBy) -> bool {
    match Usetype::named(usetype) {
        Some(
            Usetype::Chunk
            | Usetype::Table
            | Usetype::Record
            | Usetype::Profile
            | Usetype::Image
            | Usetype::Summary
            | Usetype::Raptor,
        ) => group_by != GroupBy::None,
        Some(Usetype::Section | Usetype::Sheet) => group_by == GroupBy::File,
        _ => false,
    }
}

/// The usetypes of what belongs to the document above it.
pub(super) fn parts(group_by: GroupBy) -> Vec<&'static str> {
    Usetype::ALL.iter().map(|usetype| usetype.as_str()).filter(|usetype| is_part(usetype, group_by)).collect()
}

/// The sections of how many best results are read along, if `limit` results are shown; it is more, because containers stand between the texts. Where
/// sections are groups themselves, no section comes instead of its texts.
pub(super) fn looked_at(group_by: GroupBy, limit: u32) -> usize {
    match group_by {
        GroupBy::File => (4 * limit as usize).max(40),
        GroupBy::Section | GroupBy::None => 0,
    }
}

/// What is known of the documents of a ranking and of those above them.
pub(super) struct Tree {
    members: HashMap<DocumentId, Member>,
    group_by: GroupBy,
    /// Only what is under one document of each of these lists stands for anything.
    under: Vec<Vec<i64>>,
}

/// Some documents of a ranking with one container.
#[derive(Debug, PartialEq)]
pub(super) struct Group {
    /// What tells it from other groups, whatever has settled.
    pub key: DocumentId,
    /// The container, or the topmost one that may be shown.
    pub shown: DocumentId,
    /// The best result of the ranking in this group, with its score.
    pub first: (DocumentId, f64),
    /// The texts of the ranking in this group, best first, each with its score if the ranking has one.
    pub texts: Vec<Text>,
}

/// A text of a group.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Text {
    pub shown: DocumentId,
    pub score: Option<f64>,
    /// The texts that it comes instead of, best first.
    pub merged: Vec<DocumentId>,
}

impl Text {
    /// The document whose words are shown.
    pub fn spoken_by(&self) -> DocumentId {
        self.merged.first().copied().unwrap_or(self.shown)
    }
}

impl Tree {
    pub fn new(group_by: GroupBy, under: Vec<Vec<i64>>) -> Tree {
        Tree { members: HashMap::new(), group_by, under }
    }

    pub fn learn(&mut self, members: Vec<Member>) {
        self.members.extend(members.into_iter().map(|member| (member.id, member)));
    }

    /// Those documents of which nothing is known yet.
    pub fn unknown(&self, ranked: &Ranked) -> Vec<DocumentId> {
        ranked.iter().map(|(id, _)| *id).filter(|id| !self.members.contains_key(id)).collect()
    }

    /// How many texts are children of this document, if that is known.
    pub fn texts_in(&self, id: DocumentId) -> Option<i64> {
        self.members.get(&id)?.texts
    }

    pub fn has_text(&self, id: DocumentId) -> bool {
        self.members.get(&id).is_some_and(|member| member.has_text)
    }

    /// The document and what may stand for it, upwards: as long as it is a part, what is above it. It ends below the documents under
    /// which the search looks.
    fn upwards(&self, id: DocumentId) -> impl Iterator<Item = &Member> {
        let document = self.members.get(&id);
        let path: &[i64] = document.map_or(&[], |document| &document.path);
        let tops = self.under.iter().filter_map(|under| path.iter().position(|id| under.contains(id)));
        let below = tops.max().map_or(0, |at| at + 1);
        let above = path[below..].iter().rev().map(|id| self.members.get(&DocumentId(*id)));
        let mut was_part = true;
        document
            .into_iter()
            .chain(above.map_while(|member| member))
            .take_while(move |member| std::mem::replace(&mut was_part, is_part(&member.usetype, self.group_by)))
    }

    /// What tells the document's group from others: the topmost that the caller may read of what stands for it. The caller does not learn
    /// from it what two documents have in common above that.
    pub fn key(&self, id: DocumentId) -> DocumentId {
        self.upwards(id).filter(|member| member.readable).last().map_or(id, |member| member.id)
    }

    fn shown(&self, id: DocumentId) -> DocumentId {
        self.upwards(id).filter(|member| member.may_be_shown).last().map_or(id, |member| member.id)
    }

    fn is_above(&self, above: DocumentId, id: DocumentId) -> bool {
        self.members.get(&id).is_some_and(|member| member.path.contains(&above.0))
    }

    /// The first `most` groups in the order of their best results, and what tells each of all groups from others.
    pub fn groups(&self, ranked: &Ranked, most: usize) -> (Vec<Group>, Vec<DocumentId>) {
        let (mut groups, mut places): (Vec<Group>, HashMap<DocumentId, usize>) = Default::default();
        for (id, score) in ranked {
            let count = places.len();
            let key = self.key(*id);
            let place = *places.entry(key).or_insert(count);
            if place >= most {
                continue;
            }
            if place == groups.len() {
                groups.push(Group { key, shown: self.shown(*id), first: (*id, *score), texts: Vec::new() });
            }
            if let Some(group) =
                groups.get_mut(place).filter(|group| self.is_above(group.shown, *id) && self.has_text(*id))
            {
                group.texts.push(Text { shown: *id, score: Some(*score), merged: Vec::new() });
            }
        }
        (groups, places.into_keys().collect())
    }

    /// Orders the groups that are among these best results by the sum of two scores: that of the whole, which stands for the group, and that of its best part.
    /// If one of the two is not among these results, the score of the last result stands in for it. A text without parts among them is both.
    pub fn put_by_wholes(&self, best: &[(DocumentId, f64)], groups: &mut Vec<Group>) {
        let Some((_, last)) = best.last() else { return };
        let places: HashMap<DocumentId, usize> =
            groups.iter().enumerate().map(|(at, group)| (self.key(group.first.0), at)).collect();
        let mut scores: Vec<(Option<f64>, Option<f64>)> = vec![(None, None); groups.len()];
        for (id, score) in best {
            let Some(at) = places.get(&self.key(*id)) else { continue };
            let (whole, part) = &mut scores[*at];
            let place = if groups[*at].shown == *id { whole } else { part };
            place.get_or_insert(*score);
        }
        let together = |(whole, part): (Option<f64>, Option<f64>), is_text: bool| match (whole, part) {
            (Some(whole), None) if is_text => 2.0 * whole,
            (whole, part) => whole.unwrap_or(*last) + part.unwrap_or(*last),
        };
        let among = scores.iter().take_while(|(whole, part)| whole.or(*part).is_some()).count();
        let behind = groups.split_off(among);
        let mut scored: Vec<(f64, Group)> = std::mem::take(groups)
            .into_iter()
            .zip(scores)
            .map(|(group, scores)| (together(scores, self.has_text(group.shown)), group))
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        groups.extend(scored.into_iter().map(|(_, group)| group).chain(behind));
    }

    /// The sections of which at least two texts are among the best `most` texts of the ranking, with these texts.
    pub fn crowded(&self, ranked: &Ranked, most: usize) -> HashMap<DocumentId, Vec<DocumentId>> {
        let mut sections: HashMap<DocumentId, Vec<DocumentId>> = HashMap::new();
        for (id, _) in ranked.iter().filter(|(id, _)| self.has_text(*id)).take(most) {
            // A part in the middle is no container for anything but its own texts.
            let mut upwards = self.upwards(*id).skip(1);
            let Some(parent) = upwards.next() else { continue };
            let usetype = Usetype::named(&parent.usetype);
            let is_section = usetype.is_some_and(|usetype| Usetype::SECTIONS.contains(&usetype)) && parent.may_be_shown;
            if is_section {
                sections.entry(parent.id).or_default().push(*id);
            }
        }
        sections.retain(|_, texts| texts.len() > 1);
        sections
    }

    /// The `most` texts that a group shows: sections in place of their texts, and nothing beside what is under it.
    pub fn choose(&self, group: &Group, merged: &HashMap<DocumentId, Vec<DocumentId>>, most: usize) -> Vec<Text> {
        let mut section_of: HashMap<DocumentId, DocumentId> = HashMap::new();
        for (section, texts) in merged.iter().filter(|(section, _)| **section != group.shown) {
            section_of.extend(texts.iter().map(|text| (*text, *section)));
        }
        let (mut chosen, mut seen): (Vec<Text>, HashSet<DocumentId>) = Default::default();
        for text in &group.texts {
            if chosen.len() >= most {
                break;
            }
            let section = section_of.get(&text.shown);
            let shown = section.copied().unwrap_or(text.shown);
            let beside = |other: &Text| self.is_above(other.shown, shown) || self.is_above(shown, other.shown);
            if seen.insert(shown) && !chosen.iter().any(beside) {
                let merged = section.and_then(|section| merged.get(section)).cloned().unwrap_or_default();
                chosen.push(Text { shown, score: text.score, merged });
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node, what is above it, its usetype, and marks: `t` has a text, `h` is hidden, `f` is in flight.
    fn tree(group_by: GroupBy, under: Option<i64>, nodes: &[(i64, &[i64], &str, &str)]) -> Tree {
        let mut tree = Tree::new(group_by, under.map(|id| vec![id]).into_iter().collect());
        let member = |(id, path, usetype, marks): &(i64, &[i64], &str, &str)| Member {
            id: DocumentId(*id),
            path: path.to_vec(),
            usetype: (*usetype).to_owned(),
            has_text: marks.contains('t'),
            readable: !marks.contains('h'),
            may_be_shown: !marks.contains('h') && !marks.contains('f'),
            texts: None,
        };
        tree.learn(nodes.iter().map(member).collect());
        tree
    }

    /// A file in a folder with two sections, one in the other, beside a note with a chunk.
    fn nodes() -> Vec<(i64, &'static [i64], &'static str, &'static str)> {
        vec![
            (1, &[], "markdown", "t"),
            (2, &[1], "file", ""),
            (3, &[1, 2], "section", ""),
            (4, &[1, 2, 3], "chunk", "t"),
            (5, &[1, 2, 3], "chunk", "t"),
            (6, &[1, 2, 3], "section", ""),
            (7, &[1, 2, 3, 6], "chunk", "t"),
            (8, &[1], "note", "t"),
            (9, &[1, 8], "chunk", "t"),
        ]
    }

    fn ranked(ids: &[i64]) -> Ranked {
        ids.iter().enumerate().map(|(at, id)| (DocumentId(*id), 1.0 / (at + 1) as f64)).collect()
    }

    fn shown(tree: &Tree, ids: &[i64], most: usize) -> (Vec<(i64, Vec<i64>)>, usize) {
        let (groups, keys) = tree.groups(&ranked(ids), most);
        let texts = |group: &Group| group.texts.iter().map(|text| text.shown.0).collect();
        (groups.iter().map(|group| (group.shown.0, texts(group))).collect(), keys.len())
    }

    #[test]
    fn what_was_stored_as_one_stands_for_its_parts_and_folders_for_nothing() {
        let file = tree(GroupBy::File, None, &nodes());
        let ranking = [7, 9, 2, 3, 4, 1, 8];
        assert_eq!(shown(&file, &ranking, 9), (vec![(2, vec![7, 4]), (8, vec![9]), (1, vec![])], 3));
        assert_eq!(shown(&file, &ranking, 1), (vec![(2, vec![7, 4])], 3), "further groups are counted");
        let section = tree(GroupBy::Section, None, &nodes());
        let expected = vec![(6, vec![7]), (8, vec![9]), (2, vec![]), (3, vec![4]), (1, vec![])];
        assert_eq!(shown(&section, &ranking, 9), (expected, 5));
    }

    #[test]
    fn what_is_hidden_joins_nothing_and_what_is_in_flight_is_not_shown() {
        let hide = |hidden: &[i64], mark: &'static str| {
            let mut nodes = nodes();
            nodes.iter_mut().filter(|node| hidden.contains(&node.0)).for_each(|node| node.3 = mark);
            tree(GroupBy::File, None, &nodes)
        };
        assert_eq!(shown(&hide(&[2], "h"), &[7, 4], 9), (vec![(3, vec![7, 4])], 1));
        assert_eq!(shown(&hide(&[2, 3], "h"), &[7, 4, 5], 9), (vec![(6, vec![7]), (4, vec![]), (5, vec![])], 3));
        assert_eq!(
            shown(&hide(&[3], "h"), &[7, 4], 9),
            (vec![(2, vec![7, 4])], 1),
            "a hidden one in between hides no other"
        );
        assert_eq!(shown(&hide(&[2], "f"), &[7, 4], 9), (vec![(3, vec![7, 4])], 1));
        assert_eq!(shown(&hide(&[2, 3, 6], "f"), &[7, 4], 9), (vec![(7, vec![])], 1), "it is one group all the same");
    }

    #[test]
    fn a_search_under_a_document_has_groups_below_it() {
        assert_eq!(shown(&tree(GroupBy::File, Some(2), &nodes()), &[7, 4], 9), (vec![(3, vec![7, 4])], 1));
        let expected = (vec![(6, vec![7]), (4, vec![]), (5, vec![])], 3);
        assert_eq!(shown(&tree(GroupBy::File, Some(3), &nodes()), &[7, 4, 5], 9), expected);
        assert_eq!(shown(&tree(GroupBy::File, Some(8), &nodes()), &[9], 9), (vec![(9, vec![])], 1));
    }

    #[test]
    fn groups_are_ordered_by_their_wholes_and_their_best_parts_together() {
        let tree = tree(GroupBy::File, None, &nodes());
        let order = |ranked: &[(i64, f64)], compared: usize| -> Vec<i64> {
            let ranked: Ranked = ranked.iter().map(|(id, score)| (DocumentId(*id), *score)).collect();
            let (mut groups, _) = tree.groups(&ranked, 9);
            tree.put_by_wholes(&ranked[..compared.min(ranked.len())], &mut groups);
            groups.iter().map(|group| group.shown.0).collect()
        };
        let ranked = [(9, 0.9), (7, 0.8), (2, 0.7), (8, 0.3), (4, 0.3), (1, 0.2)];
        assert_eq!(order(&ranked, 9), [2, 8, 1], "0.7 and 0.8 are more than 0.3 and 0.9");
        assert_eq!(order(&ranked, 3), [8, 2, 1], "a whole that is further behind counts as the last, 0.7");
        assert_eq!(order(&ranked[..2], 2), [8, 2]);
        let lone = [(1, 0.6), (7, 0.59), (2, 0.5), (9, 0.1)];
        assert_eq!(order(&lone, 9), [1, 2, 8], "what has no parts is its own best part");
        let wholes = [(2, 0.9), (9, 0.8), (8, 0.75), (1, 0.2)];
        assert_eq!(order(&wholes, 9), [8, 2, 1], "a whole without a text is no part");
        assert!(order(&[], 9).is_empty());
    }

    #[test]
    fn a_section_comes_instead_of_its_texts_and_nothing_stands_beside_what_is_under_it() {
        let tree = tree(GroupBy::File, None, &nodes());
        let ranking = ranked(&[2, 5, 7, 4]);
        let crowded = tree.crowded(&ranking, 3);
        assert_eq!(crowded, HashMap::from([(DocumentId(3), vec![DocumentId(5), DocumentId(4)])]));
        assert!(tree.crowded(&ranking, 2).is_empty(), "the third text is too far behind, and the file is no text");
        let (groups, _) = tree.groups(&ranking, 1);
        let chosen = tree.choose(&groups[0], &crowded, 9);
        assert_eq!(chosen.len(), 1, "7 is under 3: {chosen:?}");
        assert_eq!(
            (chosen[0].shown, &chosen[0].merged[..], chosen[0].score),
            (DocumentId(3), &[DocumentId(5), DocumentId(4)][..], Some(0.5))
        );
        let apart: Vec<i64> = tree.choose(&groups[0], &HashMap::new(), 2).iter().map(|text| text.shown.0).collect();
        assert_eq!(apart, [5, 7]);
    }
}
