//! Suggests the name that a misspelt one most likely meant.

/// The nearest of `names`, if it is near enough to be worth suggesting.
pub(crate) fn nearest(wrong: &str, names: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    // The cost is quadratic in the length, and both texts may come from outside.
    if wrong.len() > 80 {
        return None;
    }
    let (distance, name) = names.map(|name| (distance(wrong, name), name)).min()?;
    (distance <= (name.len() / 4).max(2)).then_some(name)
}

/// Insertions, deletions and substitutions between two texts.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let substitution = diagonal + usize::from(left != *right);
            diagonal = row[j + 1];
            row[j + 1] = substitution.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        let names = || ["SVC_LISTEN", "SVC_LLM_MODEL", "SVC_BM25_B"].into_iter();
        assert_eq!(nearest("SVC_LISEN", names()), Some("SVC_LISTEN"));
        assert_eq!(nearest("SVC_LLM_MODLE", names()), Some("SVC_LLM_MODEL"));
        assert_eq!(nearest("SVC_SOMETHING_ELSE", names()), None);
        assert_eq!(nearest(&"x".repeat(1 << 20), names()), None);
    }
}
