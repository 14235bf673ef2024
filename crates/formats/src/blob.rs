//! [`Blob`]: shared, immutable bytes that keep their owner (a mapping or a buffer) alive.

use crate::error::FormatError;
use crate::map;
use memmap2::Mmap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

/// How files are opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Map the file (the default) instead of reading it. While it is mapped it must not be shortened or rewritten:
    /// reading a page that is gone ends the process.
    pub map: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions { map: true }
    }
}

/// Alignment in bytes of the start of a file that [`Blob::open`] has read or mapped.
pub const FILE_ALIGN: usize = 64;

/// A range of shared, immutable bytes. Clones are cheap and keep the mapping or the buffer alive.
///
/// No alignment is promised beyond that of the place in the file: bytes that a caller brings may start anywhere, so read
/// wider types with unaligned loads or check first.
#[derive(Clone)]
pub struct Blob {
    owner: Arc<Owner>,
    range: Range<usize>,
}

enum Owner {
    Map(Mmap),
    Bytes(Box<dyn AsRef<[u8]> + Send + Sync>),
}

impl Owner {
    fn bytes(&self) -> &[u8] {
        match self {
            Owner::Map(map) => map,
            Owner::Bytes(bytes) => bytes.as_ref().as_ref(),
        }
    }
}

impl Blob {
    /// The whole of a regular file, starting at a multiple of [`FILE_ALIGN`].
    pub fn open(path: &Path, options: OpenOptions) -> Result<Blob, FormatError> {
        open(path, options).map_err(|source| FormatError::Io { file: path.display().to_string(), source })
    }

    /// Shares bytes in memory without a copy: a `Vec<u8>`, an `Arc<[u8]>`, a `&'static [u8]`.
    pub fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Blob {
        let owner = Owner::Bytes(Box::new(bytes));
        let range = 0..owner.bytes().len();
        Blob { owner: Arc::new(owner), range }
    }

    /// A part of this blob; `None` if `range` is inverted or reaches past the end.
    pub fn slice(&self, range: Range<usize>) -> Option<Blob> {
        if range.start > range.end || range.end > self.len() {
            return None;
        }
        let start = self.range.start;
        Some(Blob { owner: self.owner.clone(), range: start + range.start..start + range.end })
    }

    /// Where these bytes lie in their file or buffer.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Whether the bytes are a mapped file, so that their memory is the system's page cache.
    pub fn is_mapped(&self) -> bool {
        matches!(*self.owner, Owner::Map(_))
    }

    /// Gives the pages of a mapped blob back to the system, which reads them again on the next access. Of use after
    /// weights have been repacked. Pages shared with neighbouring blobs go too. Nothing happens for other blobs.
    pub fn release(&self) {
        if let Owner::Map(map) = &*self.owner
            && !self.range.is_empty()
        {
            map::release(map, self.range.start, self.range.len());
        }
    }
}

fn open(path: &Path, options: OpenOptions) -> io::Result<Blob> {
    let mut file = File::open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let len = usize::try_from(meta.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    if len == 0 {
        return Ok(Blob::new(Vec::new()));
    }
    if options.map {
        let map = map::map(&file)?;
        let range = 0..map.len();
        return Ok(Blob { owner: Arc::new(Owner::Map(map)), range });
    }
    let mut bytes = Vec::<u8>::new();
    bytes.try_reserve_exact(len.saturating_add(FILE_ALIGN)).map_err(io::Error::other)?;
    let pad = bytes.as_ptr().align_offset(FILE_ALIGN).min(FILE_ALIGN);
    bytes.resize(pad + len, 0);
    file.read_exact(&mut bytes[pad..])?;
    Ok(Blob { owner: Arc::new(Owner::Bytes(Box::new(bytes))), range: pad..pad + len })
}

impl Deref for Blob {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.owner.bytes()[self.range.clone()]
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = if self.is_mapped() { "file" } else { "memory" };
        write!(f, "Blob({owner} {:?})", self.range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_checked_and_nest() {
        let blob = Blob::new(vec![0, 1, 2, 3, 4]);
        let part = blob.slice(1..4).unwrap();
        assert_eq!(&*part, &[1, 2, 3]);
        assert_eq!(&*part.slice(1..3).unwrap(), &[2, 3]);
        assert!(part.slice(2..4).is_none());
        #[expect(clippy::reversed_empty_ranges)]
        let inverted = 2..1;
        assert!(part.slice(inverted).is_none());
    }

    #[test]
    fn files_are_the_same_mapped_and_read() {
        let path = std::env::temp_dir().join(format!("frit-blob-{}", std::process::id()));
        std::fs::write(&path, [7u8; 10_000]).unwrap();
        for map in [true, false] {
            let blob = Blob::open(&path, OpenOptions { map }).unwrap();
            assert_eq!(blob.is_mapped(), map);
            assert_eq!(blob.as_ptr().align_offset(FILE_ALIGN), 0);
            blob.slice(5000..10_000).unwrap().release();
            assert!(blob.len() == 10_000 && blob.iter().all(|b| *b == 7));
        }
        std::fs::remove_file(&path).unwrap();
        let e = Blob::open(&path, OpenOptions::default()).unwrap_err();
        assert!(e.to_string().contains("frit-blob"), "{e}");
        let e = Blob::open(&std::env::temp_dir(), OpenOptions::default()).unwrap_err();
        assert!(e.to_string().ends_with("not a regular file"), "{e}");
    }

    #[test]
    fn blobs_cross_threads() {
        fn check<T: Send + Sync + Clone + 'static>() {}
        check::<Blob>();
    }
}
