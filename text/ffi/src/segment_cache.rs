//! Ids of texts that were tokenized before, bounded in bytes. Any number of threads may use one; they wait for each
//! other only while an entry is looked up or put in.

use crate::error::Failure;
use ahash::AHashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of an entry besides its text and ids (allocations, table), as a bound.
const ENTRY_BYTES: usize = 160;
/// Bytes of the map of one `Whose`, as a bound. It stays until its generation goes.
const MAP_BYTES: usize = 320;

/// Salt of those whose texts these are, and whether they are the first ones: of two salts nobody finds out by time
/// what the other one has had tokenized.
pub type Whose = (u64, bool);

/// By whose it is, and by the text.
type Generation = AHashMap<Whose, AHashMap<Box<[u8]>, Arc<[u32]>>>;

/// Two generations: what is used is in the young one. When it has half of the bytes, it becomes the old one, and the
/// former old one goes: entries that were not used meanwhile.
#[derive(Default)]
struct Generations {
    young: Generation,
    old: Generation,
    young_bytes: usize,
    old_bytes: usize,
    hits: u64,
    misses: u64,
}

pub struct SegmentCache {
    max_bytes: usize,
    generations: Mutex<Generations>,
}

#[repr(C)]
pub struct Statistics {
    bytes: u64,
    hits: u64,
    misses: u64,
}

impl SegmentCache {
    pub fn new(max_bytes: usize) -> SegmentCache {
        SegmentCache { max_bytes, generations: Mutex::default() }
    }

    /// Returns the ids of a text. `compute` runs without the lock, so two threads may compute the same entry.
    pub fn get(
        &self,
        text: &[u8],
        whose: Whose,
        compute: impl FnOnce() -> Result<Vec<u32>, Failure>,
    ) -> Result<Arc<[u32]>, Failure> {
        if let Some(ids) = self.lock().find(text, whose, self.max_bytes) {
            return Ok(ids);
        }
        let ids: Arc<[u32]> = compute()?.into();
        self.lock().put(text.into(), whose, ids.clone(), self.max_bytes);
        Ok(ids)
    }

    pub fn statistics(&self) -> Statistics {
        let all = self.lock();
        Statistics { bytes: (all.young_bytes + all.old_bytes) as u64, hits: all.hits, misses: all.misses }
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        // Generations are whole between calls, so a panic of another thread leaves nothing half done.
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn find(&mut self, text: &[u8], whose: Whose, max_bytes: usize) -> Option<Arc<[u32]>> {
        if let Some(ids) = self.young.get(&whose).and_then(|texts| texts.get(text)) {
            self.hits += 1;
            return Some(ids.clone());
        }
        let Some((text, ids)) = self.old.get_mut(&whose).and_then(|texts| texts.remove_entry(text)) else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        self.old_bytes -= entry_bytes(&text, &ids);
        self.put(text, whose, ids.clone(), max_bytes);
        Some(ids)
    }

    fn put(&mut self, text: Box<[u8]>, whose: Whose, ids: Arc<[u32]>, max_bytes: usize) {
        let bytes = entry_bytes(&text, &ids);
        if bytes + MAP_BYTES > max_bytes / 2 {
            return;
        }
        if self.young_bytes + bytes + MAP_BYTES > max_bytes / 2 {
            self.old = std::mem::take(&mut self.young);
            self.old_bytes = std::mem::take(&mut self.young_bytes);
        }
        if !self.young.contains_key(&whose) {
            self.young_bytes += MAP_BYTES;
        }
        if self.young.entry(whose).or_default().insert(text, ids).is_none() {
            self.young_bytes += bytes;
        }
    }
}

fn entry_bytes(text: &[u8], ids: &[u32]) -> usize {
    ENTRY_BYTES + text.len() + std::mem::size_of_val(ids)
}
