//! Instruction sets: found once at run time, passed as a value so that tests can force each path.

use std::sync::OnceLock;

/// An instruction set that kernels are built for. All sets give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust, whatever the compiler's baseline makes of it.
    Portable,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL, DQ, VNNI and VBMI.
    Avx512,
}

impl Isa {
    /// Every set, the slowest first.
    pub const ALL: [Isa; 3] = [Isa::Portable, Isa::Avx2, Isa::Avx512];

    /// The fastest set of this machine; looked up once.
    pub fn detect() -> Isa {
        static FOUND: OnceLock<Isa> = OnceLock::new();
        *FOUND.get_or_init(|| Isa::ALL.into_iter().rev().find(|i| i.probe()).unwrap_or(Isa::Portable))
    }

    /// Whether this machine runs it.
    pub fn is_available(self) -> bool {
        self <= Isa::detect()
    }

    #[cfg(target_arch = "x86_64")]
    fn probe(self) -> bool {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        match self {
            Isa::Portable => true,
            Isa::Avx2 => avx2,
            Isa::Avx512 => {
                avx2 && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vnni")
                    && is_x86_feature_detected!("avx512vbmi")
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn probe(self) -> bool {
        self == Isa::Portable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_portable_set_is_always_there() {
        assert!(Isa::Portable.is_available());
        assert!(Isa::detect().is_available());
    }
}
