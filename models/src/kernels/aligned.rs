use std::ops::{Deref, DerefMut};

/// The bytes of a line of the processor's cache.
const LINE: usize = 64;

/// Numbers that begin where a line of the cache begins. A tile of AMX reads 64 bytes of each row, which would otherwise lie in two lines.
pub(super) struct Aligned<T> {
    /// There are as many too many as may come before a line begins.
    numbers: Vec<T>,
    start: usize,
    count: usize,
}

impl<T: Copy> Aligned<T> {
    pub fn new(number: T, count: usize) -> Self {
        let spare = LINE / size_of::<T>() - 1;
        let numbers = vec![number; count + spare];
        // If no number begins with a line, tiles only read the rows more slowly.
        let start = numbers.as_ptr().align_offset(LINE).min(spare);
        Self { numbers, start, count }
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.numbers[self.start..][..self.count]
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.numbers[self.start..][..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_with_a_line_and_are_as_many_as_asked_for() {
        for count in 0..40 {
            let mut numbers = Aligned::new([7u8; 4], count);
            assert!(numbers.as_ptr().addr().is_multiple_of(LINE));
            assert_eq!(numbers.to_vec(), vec![[7; 4]; count]);
            numbers.as_flattened_mut().fill(8);
            assert_eq!(numbers.to_vec(), vec![[8; 4]; count]);
        }
    }
}
