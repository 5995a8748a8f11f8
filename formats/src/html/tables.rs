//! Gives the tables of a page the form that Markdown needs: as many cells in each row, and no table within a cell. Otherwise the
//! words of neighbouring cells would run together.

use dom_query::NodeRef;
use dom_smoothie::Readability;
use std::collections::HashSet;

/// A table with more columns becomes lines.
const MOST_COLUMNS: usize = 200;
/// So does a table whose cells and blanks together would be more than this many times its cells, and a few more.
const MOST_TIMES: usize = 4;
const FEW: usize = 16;
/// The most rows or columns that a cell may span.
const LONGEST_SPAN: usize = 65_534;
/// What lays out a page where it stands in a cell.
const BLOCKS: [&str; 8] = ["blockquote", "h1", "h2", "h3", "h4", "h5", "h6", "pre"];
/// What stands between a table and its rows.
const PARTS: [&str; 3] = ["thead", "tbody", "tfoot"];

/// Writes an empty cell in each place that another cell spans, and turns a table that Markdown cannot have into lines.
pub(super) fn square(page: &Readability) {
    let tree = &page.doc.tree;
    // A table that holds another one lays out the page, or reads as if it did.
    let mut layouts = HashSet::new();
    // The walk upwards from a table stops where the walk from an earlier one has passed.
    let mut seen = HashSet::new();
    for inner in page.doc.select("table").nodes() {
        let mut around = inner.parent();
        while let Some(node) = around.filter(|node| seen.insert(node.id)) {
            if node.has_name("table") {
                layouts.insert(node.id);
                break;
            }
            around = node.parent();
        }
    }
    let mut lines = Vec::new();
    for table in page.doc.select("table").nodes() {
        if layouts.contains(&table.id) {
            lines.push(*table);
            continue;
        }
        let rows = table.find(&["tr"]);
        let cells = rows.iter().map(|row| {
            let children = row.element_children().into_iter();
            children.filter(|cell| cell.has_name("td") || cell.has_name("th")).collect()
        });
        let cells: Vec<Vec<_>> = cells.collect();
        // A table of one column without a head lays out the page, and so does one with blocks that no cell of Markdown can have.
        let is_column = |row: &Vec<NodeRef<'_>>| row.len() <= 1 && row.iter().all(|cell| !cell.has_name("th"));
        let is_layout =
            cells.iter().all(is_column) || table.descendants().iter().any(|node| is_block(node) && !is_in_head(node));
        if is_layout {
            lines.push(*table);
            continue;
        }
        // The heads of columns are no headings of the page.
        let in_heads: Vec<_> = table.descendants_it().filter(is_heading).collect();
        in_heads.iter().for_each(|heading| heading.rename("div"));
        let spans = cells.iter().map(|row| {
            let spans =
                row.iter().map(|cell| (span(cell.attr("colspan").as_deref()), span(cell.attr("rowspan").as_deref())));
            spans.collect()
        });
        let Some(blanks) = blanks(&spans.collect::<Vec<Vec<_>>>()) else {
            lines.push(*table);
            continue;
        };
        for ((row, cells), blanks) in rows.iter().zip(&cells).zip(&blanks) {
            if cells.is_empty() {
                row.remove_from_parent();
                continue;
            }
            let name = if cells.iter().all(|cell| cell.has_name("th")) { "th" } else { "td" };
            for (cell, count) in cells.iter().zip(blanks) {
                (0..*count).for_each(|_| cell.insert_before(&tree.new_element(name)));
            }
            (0..blanks[cells.len()]).for_each(|_| row.append_child(&tree.new_element(name)));
        }
    }
    for table in lines {
        for part in table.element_children() {
            let is_part = PARTS.iter().any(|name| part.has_name(name));
            for row in if is_part { part.element_children() } else { vec![part] } {
                for cell in row.element_children() {
                    if cell.has_name("td") || cell.has_name("th") {
                        cell.rename("div");
                    }
                }
                if row.has_name("tr") {
                    row.rename("div");
                }
            }
        }
        table.rename("div");
    }
}

fn is_block(node: &NodeRef<'_>) -> bool {
    BLOCKS.iter().any(|name| node.has_name(name))
}

fn is_heading(node: &NodeRef<'_>) -> bool {
    BLOCKS.iter().any(|name| name.starts_with('h') && node.has_name(name))
}

/// Whether a heading stands in the head of a column.
fn is_in_head(node: &NodeRef<'_>) -> bool {
    let mut above = node.parent().filter(|_| is_heading(node));
    while let Some(cell) = above.filter(|cell| !cell.has_name("table")) {
        if cell.has_name("th") || cell.has_name("td") {
            return cell.has_name("th");
        }
        above = cell.parent();
    }
    false
}

fn span(value: Option<&str>) -> usize {
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(1).clamp(1, LONGEST_SPAN)
}

/// For each row, how many empty cells come before each of its cells and after the last one, so that all rows are equally long. A
/// cell is given by how many columns and rows it spans. `None` if the cells would be too many, or would overlap.
fn blanks(rows: &[Vec<(usize, usize)>]) -> Option<Vec<Vec<usize>>> {
    let (mut width, mut count, mut filled) = (0, 0, 0);
    // For each cell that reaches into the next row, how many more it reaches into.
    let mut reaching: Vec<usize> = Vec::new();
    for row in rows {
        if !row.is_empty() {
            (width, count, filled) = (width.max(row.len() + reaching.len()), count + row.len(), filled + 1);
        }
        reaching.retain_mut(|left| {
            *left -= 1;
            *left > 0
        });
        reaching.extend(row.iter().map(|(_, down)| down - 1).filter(|left| *left > 0));
        if reaching.len() > MOST_COLUMNS {
            return None;
        }
    }
    if width > MOST_COLUMNS || filled * width > MOST_TIMES * count + FEW {
        return None;
    }
    // For each column, how many more rows the cell above reaches into.
    let mut above = vec![0; width];
    let of_row = |row: &Vec<(usize, usize)>| {
        let mut blanks = Vec::with_capacity(row.len() + 1);
        let (mut column, mut before) = (0, 0);
        for (index, (across, down)) in row.iter().enumerate() {
            while let Some(left) = above.get_mut(column).filter(|left| **left > 0) {
                *left -= 1;
                (column, before) = (column + 1, before + 1);
            }
            blanks.push(before);
            // What a cell spans beyond the longest row does not exist.
            let taken = above.iter().skip(column).filter(|left| **left > 0).count();
            let room = width.saturating_sub(column + taken + row.len() - index - 1);
            let across = (*across).min(room).max(1);
            above.iter_mut().skip(column).take(across).for_each(|left| *left = down - 1);
            (column, before) = (column + across, across - 1);
        }
        for left in above.iter_mut().skip(column) {
            *left = left.saturating_sub(1);
            before += 1;
        }
        blanks.push(before);
        (column <= width).then_some(blanks)
    };
    rows.iter().map(of_row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cells_span_is_empty_and_rows_are_equally_long() {
        let one = (1, 1);
        // Names over two columns each, beside one over two rows.
        let names = [vec![(1, 2), (2, 1), (2, 1)], vec![one; 4], vec![one; 5]];
        assert_eq!(blanks(&names), Some(vec![vec![0, 0, 1, 1], vec![1, 0, 0, 0, 0], vec![0; 6]]));
        // A row that is too short, and one without cells.
        let short = [vec![one; 3], vec![], vec![one]];
        assert_eq!(blanks(&short), Some(vec![vec![0; 4], vec![3], vec![0, 2]]));
        // All rows span equally many columns, of which there is one.
        assert_eq!(blanks(&[vec![(5, 1)], vec![(5, 9)]]), Some(vec![vec![0, 0], vec![0, 0]]));
        assert_eq!(blanks(&[]), Some(Vec::new()));
    }

    #[test]
    fn what_would_be_too_large_is_no_table() {
        let one = (1, 1);
        let narrow = vec![vec![one]; 1000];
        assert!(blanks(&narrow).is_some());
        assert_eq!(blanks(&[vec![vec![one; 100]], narrow].concat()), None, "mostly empty");
        assert_eq!(blanks(&[vec![one; MOST_COLUMNS + 1]]), None);
        assert_eq!(blanks(&vec![vec![(1, LONGEST_SPAN)]; MOST_COLUMNS + 2]), None);
    }
}
