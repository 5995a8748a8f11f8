//! Looks for many words in a text at once, in one pass over it however many there are: the automaton of Aho and Corasick (1975).

/// The most bytes of words that one automaton is made of, which bounds its memory.
const PORTION: usize = 1 << 20;
const NONE: u32 = u32::MAX;
const ROOT: u32 = 0;

/// Where each of these words begins first in a text, in bytes; `None` for one that is not in it, and for one that is empty. This takes time in the
/// length of the text and of the words, and not in their product.
pub fn first(text: &str, words: &[&str]) -> Vec<Option<usize>> {
    let mut sorted: Vec<usize> = (0..words.len()).filter(|at| !words[*at].is_empty()).collect();
    sorted.sort_unstable_by_key(|at| words[*at]);
    let mut places = vec![None; words.len()];
    let mut rest = sorted.as_slice();
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |at: &&usize| {
            bytes += words[**at].len();
            bytes <= PORTION
        };
        let (portion, more) = rest.split_at(rest.iter().take_while(fits).count().max(1));
        rest = more;
        let mut distinct: Vec<&str> = portion.iter().map(|at| words[*at]).collect();
        distinct.dedup();
        let found = Automaton::of(&distinct).first(text, &distinct);
        let mut word = 0;
        for at in portion {
            if distinct[word] != words[*at] {
                word += 1;
            }
            places[*at] = found[word];
        }
    }
    places
}

/// The beginnings of words. Node 0 is the empty one, and the nodes after it stand in the order of their lengths.
struct Automaton {
    /// The byte that leads to each node but the first. Those of the children of a node are beside each other, in their order.
    bytes: Vec<u8>,
    /// Where the children of each node begin in `bytes`, and where those of the last one end.
    children: Vec<u32>,
    /// The children of the first node, by their byte.
    from_root: Vec<u32>,
    /// The longest other node that each one ends with.
    fails: Vec<u32>,
    /// The word that each node is.
    words: Vec<u32>,
    /// The longest other node that each one ends with and that is a word; the first node if there is none.
    shorter: Vec<u32>,
}

impl Automaton {
    /// The automaton of distinct words in their order, none of which is empty.
    fn of(words: &[&str]) -> Automaton {
        let mut automaton = Automaton {
            bytes: Vec::new(),
            children: Vec::new(),
            from_root: vec![ROOT; 256],
            fails: Vec::new(),
            words: Vec::new(),
            shorter: Vec::new(),
        };
        // The words that begin as each node does, and its length.
        let mut nodes: Vec<(usize, usize, usize)> = vec![(0, words.len(), 0)];
        let mut node = 0;
        while let Some((mut from, to, length)) = nodes.get(node).copied() {
            automaton.children.push(automaton.bytes.len() as u32);
            let is_word = from < to && words[from].len() == length;
            automaton.words.push(if is_word { from as u32 } else { NONE });
            from += usize::from(is_word);
            while from < to {
                let byte = words[from].as_bytes()[length];
                let same = words[from..to].partition_point(|word| word.as_bytes()[length] <= byte);
                automaton.bytes.push(byte);
                nodes.push((from, from + same, length + 1));
                from += same;
            }
            node += 1;
        }
        automaton.children.push(automaton.bytes.len() as u32);
        for at in 0..automaton.children[1] {
            automaton.from_root[usize::from(automaton.bytes[at as usize])] = at + 1;
        }
        automaton.fails = vec![ROOT; node];
        automaton.shorter = vec![ROOT; node];
        for node in 0..node {
            for child in automaton.children[node] + 1..=automaton.children[node + 1] {
                let byte = automaton.bytes[child as usize - 1];
                let fail = if node == 0 { ROOT } else { automaton.next(automaton.fails[node], byte) };
                automaton.fails[child as usize] = fail;
                automaton.shorter[child as usize] = automaton.word_at(fail);
            }
        }
        automaton
    }

    /// A node if it is a word, or else the longest word that it ends with.
    fn word_at(&self, node: u32) -> u32 {
        if self.words[node as usize] == NONE { self.shorter[node as usize] } else { node }
    }

    /// The longest node that a node with one more byte ends with.
    fn next(&self, mut node: u32, byte: u8) -> u32 {
        while node != ROOT {
            let from = self.children[node as usize] as usize;
            let bytes = &self.bytes[from..self.children[node as usize + 1] as usize];
            match bytes.binary_search(&byte) {
                Ok(at) => return (from + at) as u32 + 1,
                Err(_) => node = self.fails[node as usize],
            }
        }
        self.from_root[usize::from(byte)]
    }

    /// Where each word begins first.
    fn first(&self, text: &str, words: &[&str]) -> Vec<Option<usize>> {
        let mut places = vec![None; words.len()];
        let (mut node, mut missing) = (ROOT, words.len());
        for (at, byte) in text.bytes().enumerate() {
            node = self.next(node, byte);
            let mut end = self.word_at(node);
            // All that a word which was found ends with was found with it, so that no end is looked at twice.
            while end != ROOT {
                let word = self.words[end as usize] as usize;
                if places[word].is_some() {
                    break;
                }
                places[word] = Some(at + 1 - words[word].len());
                missing -= 1;
                end = self.shorter[end as usize];
            }
            if missing == 0 {
                break;
            }
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_word_is_found_where_it_is_first(text in "[abä ]{0,60}", words in prop::collection::vec("[abä ]{0,6}", 0..30)) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let one_by_one: Vec<Option<usize>> = words.iter().map(|word| text.find(word).filter(|_| !word.is_empty())).collect();
            prop_assert_eq!(first(&text, &words), one_by_one);
        }
    }

    #[test]
    fn words_that_end_with_each_other_and_nearly_stand_everywhere_take_one_pass() {
        let text = "a".repeat(200_000);
        let words: Vec<String> = (1..1_000).map(|length| "a".repeat(length)).collect();
        let nearly: Vec<String> = words.iter().map(|word| format!("{word}b")).collect();
        let all: Vec<&str> = words.iter().chain(&nearly).map(String::as_str).collect();
        let found = first(&text, &all);
        assert!(found[..words.len()].iter().all(|place| *place == Some(0)));
        assert!(found[words.len()..].iter().all(Option::is_none));
    }

    #[test]
    fn words_of_several_portions_are_all_found() {
        let long = "x".repeat(PORTION);
        let text = format!("{long}yz");
        assert_eq!(
            first(&text, &["yz", &long, "y", "yz", "q"]),
            [Some(PORTION), Some(0), Some(PORTION), Some(PORTION), None]
        );
    }
}
