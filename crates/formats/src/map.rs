//! Memory mapping: the only `unsafe` code of this crate.
//!
//! A mapping shows the file as it is: if another program shortens the file while it is mapped, reading a lost page ends
//! the process (SIGBUS on Unix). Whoever cannot exclude that opens files with `map: false`.

use memmap2::Mmap;
use std::fs::File;
use std::io;

/// Maps a whole regular file for reading. The file must not be empty.
pub(crate) fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: the mapping is read-only and private to this process. That nobody shortens or rewrites the file while it
    // is mapped is the documented condition of opening with `map: true`.
    unsafe { Mmap::map(file) }
}

/// Tells the system that the pages of a range are not needed soon; their content is read from the file again if they are.
pub(crate) fn release(map: &Mmap, offset: usize, len: usize) {
    #[cfg(unix)]
    {
        // SAFETY: the mapping is read-only and file-backed, so dropped pages come back with the same content.
        // A failure means that the pages stay, which is harmless.
        let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, len) };
    }
    #[cfg(not(unix))]
    let _ = (map, offset, len);
}
