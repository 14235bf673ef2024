//! Copies of a session's state, in memory and as bytes.
//!
//! The bytes, all numbers little-endian: `FRITSTAT`, version u32, identity of the model u64; number of tokens plus one u64 (0: a
//! session without tokens) and the tokens u32; number of rings u32 and the first position each holds u64; number of states
//! u32; for each state its type's name with its length u8, rank u8, extents u64 and data; then the FNV-1a hash of all that, u64.

use std::io::{self, Read, Write};

use frit_ir::DType;

use crate::error::{Error, Result};
use crate::fnv::Fnv;

const MAGIC: [u8; 8] = *b"FRITSTAT";
const VERSION: u32 = 1;

/// Type and extents of the part of a state that a snapshot holds, dense and row-major.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub dtype: DType,
    pub dims: Vec<usize>,
}

impl Part {
    /// Bytes of it.
    pub fn bytes(&self) -> Option<usize> {
        let n = self.dims.iter().try_fold(1usize, |a, d| a.checked_mul(*d))?;
        self.dtype.bytes_of(n)
    }

    /// Bytes of the last two dimensions, which lie together in a cache as well.
    pub fn line(&self) -> usize {
        let n = self.dims.iter().rev().take(2).product();
        self.dtype.bytes_of(n).unwrap_or(0)
    }
}

/// Memory for a part.
///
/// # Errors
/// There is not enough.
pub(crate) fn buffer(p: &Part) -> Result<Vec<u8>> {
    let bytes = p.bytes().unwrap_or(usize::MAX);
    let mut v = Vec::new();
    v.try_reserve_exact(bytes).map_err(|_| Error::OutOfMemory {
        message: format!("no memory for a copy of a state ({bytes} bytes)"),
        source: None,
    })?;
    v.resize(bytes, 0);
    Ok(v)
}

/// The state of a [`Session`](crate::Session) or [`Generator`](crate::Generator) at one moment. It holds only the positions in use, and
/// can be restored into any session of the same model.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) identity: u64,
    /// The tokens that a generator had run; `None`: of a session.
    pub(crate) tokens: Option<Vec<u32>>,
    pub(crate) kept: Vec<usize>,
    pub(crate) states: Vec<(Part, Vec<u8>)>,
}

/// What a session can take.
pub(crate) struct Taker<'a> {
    pub identity: u64,
    /// Of a generator: context and vocabulary.
    pub limits: Option<(usize, usize)>,
    pub rings: usize,
    /// The parts of the states for that many tokens.
    pub parts: Box<dyn Fn(usize) -> Result<Vec<Part>> + 'a>,
}

impl Snapshot {
    /// The tokens that a generator had run; none of a session.
    pub fn tokens(&self) -> &[u32] {
        self.tokens.as_deref().unwrap_or(&[])
    }

    /// Bytes of state that it holds.
    pub fn bytes(&self) -> usize {
        self.states.iter().map(|(_, b)| b.len()).sum()
    }

    /// Whether `t` can take it.
    pub(crate) fn check(&self, t: &Taker<'_>) -> Result<()> {
        t.identity(self.identity)?;
        let n = t.tokens(self.tokens.as_ref().map(Vec::len))?;
        let parts = (t.parts)(n)?;
        match parts.iter().eq(self.states.iter().map(|(p, _)| p)) && self.kept.len() == t.rings {
            true => Ok(()),
            false => Err(Error::shape("the snapshot's states have other extents than this session's")),
        }
    }

    /// Writes it.
    pub(crate) fn write(&self, to: impl Write) -> Result<()> {
        self.write_to(&mut Hashed { inner: to, hash: Fnv::new() })
            .map_err(|e| Error::io("a saved state".as_ref(), e))
    }

    fn write_to<W: Write>(&self, w: &mut Hashed<W>) -> io::Result<()> {
        w.put(&MAGIC)?;
        w.put(&VERSION.to_le_bytes())?;
        w.put(&self.identity.to_le_bytes())?;
        w.put(&self.tokens.as_ref().map_or(0, |t| t.len() as u64 + 1).to_le_bytes())?;
        let tokens: Vec<u8> = self.tokens().iter().flat_map(|t| t.to_le_bytes()).collect();
        w.put(&tokens)?;
        w.put(&(self.kept.len() as u32).to_le_bytes())?;
        self.kept.iter().try_for_each(|k| w.put(&(*k as u64).to_le_bytes()))?;
        w.put(&(self.states.len() as u32).to_le_bytes())?;
        for (p, bytes) in &self.states {
            let name = p.dtype.name();
            w.put(&[name.len() as u8])?;
            w.put(name.as_bytes())?;
            w.put(&[p.dims.len() as u8])?;
            p.dims.iter().try_for_each(|d| w.put(&(*d as u64).to_le_bytes()))?;
            w.put(bytes)?;
        }
        let hash = w.hash.value();
        w.inner.write_all(&hash.to_le_bytes())?;
        w.inner.flush()
    }

    /// Reads what [`Snapshot::write`] wrote, if `t` can take it. Nothing is allocated that `t` could not hold.
    ///
    /// # Errors
    /// [`Error::Format`] for bytes that are no saved state, cut short or changed; [`Error::Unsupported`] for another version,
    /// [`Error::Value`] for another model, [`Error::ContextFull`] for more tokens than fit, [`Error::Io`].
    pub(crate) fn read(from: impl Read, t: &Taker<'_>) -> Result<Snapshot> {
        let mut r = Hashed { inner: from, hash: Fnv::new() };
        if r.get::<8>()? != MAGIC {
            return Err(bad("it does not begin with FRITSTAT"));
        }
        let version = u32::from_le_bytes(r.get()?);
        if version != VERSION {
            let message = format!("a saved state of version {version}; this version of Frit reads {VERSION}");
            return Err(Error::Unsupported { message });
        }
        let identity = u64::from_le_bytes(r.get()?);
        t.identity(identity)?;
        let count = usize::try_from(u64::from_le_bytes(r.get()?)).unwrap_or(usize::MAX);
        let n = t.tokens(count.checked_sub(1))?;
        let mut tokens = Vec::with_capacity(n);
        for _ in 0..n {
            tokens.push(u32::from_le_bytes(r.get()?));
        }
        let vocabulary = t.limits.map_or(0, |l| l.1);
        if let Some(bad_token) = tokens.iter().find(|t| **t as usize >= vocabulary) {
            return Err(bad(&format!("token {bad_token} is outside the vocabulary of {vocabulary}")));
        }
        if u32::from_le_bytes(r.get()?) as usize != t.rings {
            return Err(bad("it has another number of sliding windows than the model"));
        }
        let mut kept = Vec::with_capacity(t.rings);
        for _ in 0..t.rings {
            kept.push(usize::try_from(u64::from_le_bytes(r.get()?)).unwrap_or(usize::MAX));
        }
        let states = read_states(&mut r, (t.parts)(n)?)?;
        let hash = r.hash.value();
        if u64::from_le_bytes(r.get()?) != hash {
            return Err(bad("its checksum does not fit its content"));
        }
        let tokens = t.limits.map(|_| tokens);
        Ok(Snapshot { identity, tokens, kept, states })
    }
}

fn read_states<R: Read>(r: &mut Hashed<R>, parts: Vec<Part>) -> Result<Vec<(Part, Vec<u8>)>> {
    if u32::from_le_bytes(r.get()?) as usize != parts.len() {
        return Err(bad("it has another number of states than the model"));
    }
    let mut states = Vec::with_capacity(parts.len());
    for p in parts {
        let [length] = r.get()?;
        let mut name = [0; u8::MAX as usize];
        let name = &mut name[..length.into()];
        r.fill(name)?;
        let [rank] = r.get()?;
        let mut same = *name == *p.dtype.name().as_bytes() && usize::from(rank) == p.dims.len();
        for d in &p.dims {
            same = same && u64::from_le_bytes(r.get()?) == *d as u64;
        }
        if !same {
            let at = states.len();
            return Err(bad(&format!("state {at} is not the {}{:?} of the model", p.dtype, p.dims)));
        }
        let mut bytes = buffer(&p)?;
        r.fill(&mut bytes)?;
        states.push((p, bytes));
    }
    Ok(states)
}

impl Taker<'_> {
    fn identity(&self, other: u64) -> Result<()> {
        match other == self.identity {
            true => Ok(()),
            false => Err(Error::value(format!(
                "the state is of another model or of other load options (its identity is {other:016x}, this model's {:016x})",
                self.identity
            ))),
        }
    }

    /// Checks the number of tokens.
    fn tokens(&self, n: Option<usize>) -> Result<usize> {
        match (self.limits, n) {
            (None, None) => Ok(0),
            (Some((capacity, _)), Some(n)) if n <= capacity => Ok(n),
            (Some((capacity, _)), Some(needed)) => Err(Error::ContextFull { capacity, needed }),
            (Some(_), None) => {
                Err(Error::WrongTask { message: "the state is of a session, not of a generator".into() })
            }
            (None, Some(_)) => {
                Err(Error::WrongTask { message: "the state is of a generator, not of a session".into() })
            }
        }
    }
}

fn bad(why: &str) -> Error {
    Error::Format { message: format!("not a saved state: {why}"), source: None }
}

/// A reader or writer that hashes what goes through it.
struct Hashed<T> {
    inner: T,
    hash: Fnv,
}

impl<W: Write> Hashed<W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.add(bytes);
        self.inner.write_all(bytes)
    }
}

impl<R: Read> Hashed<R> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.inner.read_exact(bytes).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => bad("it ends early"),
            _ => Error::io("a saved state".as_ref(), e),
        })?;
        self.hash.add(bytes);
        Ok(())
    }

    fn get<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }
}
