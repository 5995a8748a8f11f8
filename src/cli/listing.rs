//! Listings, which come in pages.
use super::output::Output;
use serde::Serialize;
use std::io;

/// How many rows a table has unless its reader says so.
const ROWS: usize = 200;

/// A listing: JSON lines are printed page by page, and the rows of a table are kept until all have come.
pub struct Listing<T> {
    output: Output,
    /// How many more rows are shown.
    room: usize,
    is_cut: bool,
    /// The rows of a table.
    pub kept: Vec<T>,
}

impl<T: Serialize> Listing<T> {
    /// A listing of at most so many rows. If nobody says how many, a program gets all, because nothing in the lines would tell it that some are missing.
    pub fn new(output: Output, most: Option<usize>) -> Listing<T> {
        let usual = match output {
            Output::Table => ROWS,
            Output::Json => usize::MAX,
        };
        Listing { output, room: most.unwrap_or(usual), is_cut: false, kept: Vec::new() }
    }

    /// Takes a page, after which others may come; returns whether the next one is wanted.
    pub fn take(&mut self, page: Vec<T>, goes_on: bool) -> io::Result<bool> {
        let shown = page.len().min(self.room);
        self.is_cut = goes_on || shown < page.len();
        self.room -= shown;
        let mut rows = page.into_iter().take(shown);
        match self.output {
            Output::Json => rows.try_for_each(|row| Output::line(&row))?,
            Output::Table => self.kept.extend(rows),
        }
        Ok(goes_on && self.room > 0)
    }

    /// Says that there are more rows than those that were shown, if so.
    pub fn end(&self) {
        if self.is_cut {
            crate::cli::output::tell!("… and more; raise --most to see them");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_wants_pages_while_it_has_room_and_knows_of_what_it_left_out() {
        let mut listing = Listing::new(Output::Table, Some(3));
        assert!(listing.take(vec![1, 2], true).unwrap());
        assert!(!listing.take(vec![3, 4], false).unwrap());
        assert_eq!((listing.kept, listing.is_cut), (vec![1, 2, 3], true));
        let mut listing = Listing::new(Output::Table, Some(2));
        assert!(!listing.take(vec![1, 2], false).unwrap());
        assert!(!listing.is_cut);
        assert!(Listing::new(Output::Json, None).take(Vec::<i32>::new(), true).unwrap());
        assert_eq!(Listing::<i32>::new(Output::Table, None).room, ROWS);
    }
}
