//! The only source of chance here: a small generator seeded by one number. Owns nothing else; must never read the
//! system's randomness, so that a seed is the whole truth about a run.

/// xoshiro256++, seeded through splitmix64.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

/// One round of splitmix64: a good mixer for seeds and for hashes of small tuples.
pub const fn splitmix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

impl Rng {
    /// A generator of one seed.
    pub fn new(seed: u64) -> Rng {
        let mut state = [0; 4];
        let mut last = seed;
        for word in &mut state {
            last = splitmix(last);
            *word = last;
        }
        Rng { state }
    }

    /// A generator of its own for a purpose named by numbers: its draws do not depend on what else was drawn.
    pub fn of(seed: u64, parts: &[u64]) -> Rng {
        Rng::new(parts.iter().fold(splitmix(seed), |hash, part| splitmix(hash ^ *part)))
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        let (b, a) = (b ^ c, a ^ d);
        self.state = [a, b, c ^ (self.state[1] << 17), d.rotate_left(45)];
        result
    }

    /// A number in `0..bound`; `bound` must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `from..=until`.
    pub fn between(&mut self, from: u64, until: u64) -> u64 {
        from + self.below(until - from + 1)
    }

    /// True `permille` times of a thousand.
    pub fn chance(&mut self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }

    /// A position in a sequence of `len`; `len` must not be 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// One of them; the slice must not be empty.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.index(of.len())]
    }

    /// 16 bytes, as for a request id.
    pub fn id(&mut self) -> [u8; 16] {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.draw().to_be_bytes());
        id[8..].copy_from_slice(&self.draw().to_be_bytes());
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_sequence_and_another_seed_another() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            (0..100).map(|_| rng.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn bounds_hold_and_all_values_occur() {
        let mut rng = Rng::new(7);
        let mut seen = [0; 10];
        for _ in 0..10_000 {
            seen[rng.between(10, 19) as usize - 10] += 1;
        }
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
        let heads = (0..10_000).filter(|_| rng.chance(250)).count();
        assert!((2300..2700).contains(&heads), "{heads}");
    }
}
